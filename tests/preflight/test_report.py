"""The table of all hosts, as it is printed."""

import pytest

from vllm_doctor.preflight.host_table import table
from vllm_doctor.preflight.judged import Checked, Result


@pytest.mark.parametrize(
    "line",
    [
        "vllm_instances: {name: code, port: 8001}",
        'vllm_environment: {NCCL_P2P_DISABLE: "1", VLLM_LOGGING_LEVEL: DEBUG}',
        "vllm_metrics_networks: [10.8.0.0/16, 192.0.2.0/24]",
        'vllm_served_model_name: "a name with spaces"',
        "`apt-mark unhold libnvidia-compute nvidia-driver-libs`",
    ],
)
def test_what_is_to_be_copied_stands_on_one_line(line: str) -> None:
    row = Checked(check="port", verdict=Result.FAIL, found="8000 twice", needed="one each", action=f"set {line}")
    assert line in table({"gpu01": [row]})

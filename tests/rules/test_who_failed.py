"""What failed is told by who says it: a client and no hub, a node of Ray and no memory, a user and no missing program.

Composed of what the programs say, with figures of our own.
"""

import pytest

from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.engine import diagnose

SITE = "/opt/v/lib/python3.12/dist-packages"
API = "(APIServer pid=640) INFO 03-14 09:11:58 [api_server.py:1977] vLLM API server version "


def _first(lines: list[str]) -> Finding:
    return diagnose(Snapshot("2026-03-14T09:00:00Z", log=Known(log_of_lines(lines, "log"), "log"))).findings[0]


def _raised(calls: list[str], raised: str, version: str = "0.9.1") -> list[str]:
    lines = [API + version, "Traceback (most recent call last):"]
    for call in calls:
        lines += [f'  File "{SITE}/{call}", line 71, in work', "    return work(*args)"]
    return [*lines, raised]


CLIENT = [
    "Traceback (most recent call last):",
    f'  File "{SITE}/httpx/_transports/default.py", line 101, in map_httpcore_exceptions',
    "    raise mapped_exc(message) from exc",
    "httpx.ConnectTimeout: timed out",
    "",
    "The above exception was the direct cause of the following exception:",
    "",
    "Traceback (most recent call last):",
    f'  File "{SITE}/openai/_base_client.py", line 1024, in request',
    "    raise APITimeoutError(request=request) from err",
    "openai.APITimeoutError: Request timed out.",
]
LOST = (
    "(raylet) The node with node id: 0a1b and address: 192.0.2.7 and node name: gpu-b has been marked dead because "
    "the detector has missed too many heartbeats from it. This can happen when a \t(1) raylet crashes (OOM)"
)
ENDED = (
    "(raylet) Raylet is terminated. Termination is unexpected. Possible reasons include: (1) SIGKILL by the user or "
    "system OOM killer, (2) Invalid memory access from Raylet causing SIGSEGV or SIGBUS"
)
RAY = ["2026-03-14 09:11:50,484 INFO worker.py:1740 -- Connected to Ray cluster.", LOST, ENDED]
STORE = ["vllm/worker/worker.py", "vllm/distributed/communication_op.py", "torch/distributed/distributed_c10d.py"]
LOADER = ["vllm/transformers_utils/config.py", "transformers/modeling_gguf_pytorch_utils.py"]


@pytest.mark.parametrize(
    ("lines", "title", "change"),
    [
        (RAY, "Ray lost a node of the cluster: the node stopped answering", "ray-node"),
        (["/bin/sh: 1: vllm: Permission denied"], "The program may not be run by this user", "service-user"),
        (
            _raised(STORE, "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out "
                    "waiting 900000ms for recv operation to complete"),
            "A rank waited 900 s for another, which sent nothing", "missing-rank",
        ),
        (
            _raised(["vllm_gaudi/v1/worker/hpu_model_runner.py", "vllm/model_executor/layers/linear.py"],
                    "RuntimeError: synGraphCompile failed with synStatus 26 [Generic failure]."),
            "Gaudi's runtime (SynapseAI) refuses a call", "driver",
        ),
        (
            _raised(LOADER, "ValueError: GGUF model with architecture acme4 is not supported yet."),
            "Transformers does not read a GGUF file of this architecture", "model",
        ),
        (
            _raised(["vllm/lora/model_manager.py", "vllm/lora/layers/column_parallel_linear.py"],
                    "RuntimeError: The size of tensor a (2048) must match the size of tensor b (6144) at "
                    "non-singleton dimension 0"),
            "An adapter's matrices do not fit the layer that they belong to", "adapter",
        ),
        (
            _raised(["vllm/inputs/registry.py"], "TypeError: Invalid type of HuggingFace config. Expected type: "
                    "<class 'vllm.transformers_utils.configs.acme.AcmeConfig'>, but found type: "
                    "<class 'transformers.models.acme.configuration_acme.AcmeConfig'>"),
            "The model's configuration is of another class than vLLM's code wants", "transformers",
        ),
    ],
)  # fmt: skip
def test_the_one_that_failed_is_named(lines: list[str], title: str, change: str) -> None:
    found = _first(lines)
    assert found.title == title
    assert found.changes[0].name == change


def test_a_client_that_waits_says_nothing_of_a_hub() -> None:
    found = _first(CLIENT)
    assert found.code != "VD511"
    assert found.title == "The client gave up waiting for the server's answer"


def test_a_call_that_the_model_does_not_offer_asks_for_the_other_kind() -> None:
    up = [API + "0.9.1", "INFO:     Application startup complete."]
    said = "The model does not support Embeddings API"
    told = f'{{"object":"error","message":"{said}","type":"BadRequestError","param":null,"code":400}}'
    found = _first([*up, 'INFO:     192.0.2.7:5021 - "POST /v1/embeddings HTTP/1.1" 400 Bad Request', told])
    assert found.title == "The served model has no such call: it is of another kind"
    assert found.changes[0].name == "task"

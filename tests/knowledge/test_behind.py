"""What is on where a line of vLLM's runs."""

import pytest

from vllm_doctor.knowledge.behind import behind
from vllm_doctor.knowledge.functions import CodePlace, in_function, standing
from vllm_doctor.knowledge.guards import Decider
from vllm_doctor.knowledge.version import as_version

PACKAGES = "/opt/venv/lib/python3.12/site-packages/vllm/"
GATHERS = ("v1/attention/backends/mla/common.py", "_context_parallel_compute_prefill_context")


def told(release: str, file: str, line: int, function: str) -> tuple[Decider, ...]:
    within = in_function(CodePlace(f"{PACKAGES}{file}", line, function), as_version(release))
    assert within is not None
    return behind(within, as_version(release))


def test_a_function_of_a_feature_alone_has_its_option_and_its_neighbour_none() -> None:
    """mla/common.py of 0.11.2: the context of a prompt is gathered from other ranks only where they share the cache."""
    shared = Decider("option", "decode-context-parallel-size", "", ">", "1")
    assert told("0.11.2", GATHERS[0], 1728, GATHERS[1])[0] == shared
    assert shared not in told("0.11.2", GATHERS[0], 1660, "_compute_prefill_context")


def test_inside_a_function_the_test_above_the_line_counts() -> None:
    """gpu_model_runner.py of 0.10.0, `load_model`: LoRA's layers are put in behind a test of their own."""
    file = "v1/worker/gpu_model_runner.py"
    lines = range(1841, 1890)
    behind_lora = [at for at in lines if Decider("option", "enable-lora", "", "on", "") in _at("0.10.0", file, at)]
    assert behind_lora
    assert len(behind_lora) < len(lines)


def _at(release: str, file: str, line: int) -> tuple[Decider, ...]:
    within = in_function(CodePlace(f"{PACKAGES}{file}", line, "load_model"), as_version(release))
    return behind(within, as_version(release)) if within is not None else ()


@pytest.mark.parametrize(("release", "line"), [("0.11.2", 5), ("99.0.0", 1728)])
def test_a_line_or_a_release_that_is_not_known_has_no_place(release: str, line: int) -> None:
    place = CodePlace(f"{PACKAGES}{GATHERS[0]}", line, GATHERS[1])
    assert in_function(place, as_version(release)) is None


def test_one_place_stands_in_several_releases() -> None:
    place = CodePlace(f"{PACKAGES}v1/core/sched/async_scheduler.py", 53, "_update_request_with_output")
    assert {"0.17.0", "0.20.1"} <= set(standing(place))
    assert standing(CodePlace("/opt/other.py", 3, "f")) == ()

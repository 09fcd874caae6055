"""What the launch tells of a message that names no step: the model's size, the fraction, what is set already."""

import pytest

from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Cause
from vllm_doctor.rules.engine import judged

FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of 23.64 GiB of "
    "which 150.81 MiB is free. Including non-PyTorch memory, this process has 23.48 GiB memory in use. Of the "
    "allocated memory {held} GiB is allocated by PyTorch, and {unused} MiB is reserved by PyTorch but unallocated."
)
NONE_LEFT = (
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing "
    "the engine."
)


def _first(*lines: str) -> Finding:
    return judged(Snapshot("2026-03-14T09:00:00Z", log=Known(log_of_lines(lines, "log"), "log"))).findings[0]


@pytest.mark.parametrize(
    ("launch", "too_large"),
    [
        ("vllm serve acme/chat-32B-Instruct --gpu-memory-utilization 0.95", True),
        ("vllm serve acme/chat-32B-Instruct-AWQ --gpu-memory-utilization 0.95", False),
        ("vllm serve acme/chat-72B-Instruct-AWQ --gpu-memory-utilization 0.95", True),
        ("vllm serve acme/chat-32B-Instruct --tensor-parallel-size 4", False),
        ("vllm serve acme/chat-32B-Instruct --cpu-offload-gb 60 --gpu-memory-utilization 0.95", False),
        ("vllm serve acme/chat-8B-Instruct --gpu-memory-utilization 0.95", False),
    ],
)
def test_weights_that_by_their_name_are_more_than_the_card(launch: str, too_large: bool) -> None:
    found = _first(launch, FULL.format(asked="1.40 GiB", held="22.10", unused="214.06"))
    assert (found.cause is Cause.WEIGHTS_EXCEED_VRAM) is too_large, found.code


def test_a_card_that_is_full_to_a_high_fraction_beside_light_weights_has_its_kv_cache() -> None:
    found = _first(
        "vllm serve acme/chat-8B-Instruct --gpu-memory-utilization 0.98",
        FULL.format(asked="502.00 MiB", held="22.83", unused="94.06"),
    )
    assert found.cause is Cause.UTILIZATION_TOO_HIGH
    assert found.changes[0].name == "gpu-memory-utilization"


@pytest.mark.parametrize(
    ("fraction", "first"), [("0.6", "gpu-memory-utilization"), ("0.95", "quantization"), ("0.97", "quantization")]
)
def test_a_fraction_that_is_nearly_the_whole_card_is_not_raised_first(fraction: str, first: str) -> None:
    found = _first(f"vllm serve acme/chat-14B --gpu-memory-utilization {fraction}", NONE_LEFT)
    assert found.changes[0].name == first


@pytest.mark.parametrize("label", ["", "Command: ", "\u547d\u4ee4\uff1a", "$ "])
def test_a_command_is_read_behind_a_word_and_a_colon(label: str) -> None:
    found = _first(f"{label}vllm serve acme/vision-3B --gpu-memory-utilization 0.3\uff0c24G", NONE_LEFT)
    assert found.cause is Cause.UTILIZATION_TOO_LOW
    assert found.changes[0].before == 0.3


def test_what_a_program_says_of_its_usage_is_no_launch() -> None:
    said = "usage: vllm serve [model_tag] [options]"
    log = log_of_lines([said, NONE_LEFT], "log")
    assert judged(Snapshot("2026-03-14T09:00:00Z", log=Known(log, "log"))).facts.get("model") is None


def test_the_code_below_a_message_tells_that_log_probabilities_were_computed() -> None:
    found = _first(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate ...",
        '  File ".../vllm/v1/sample/sampler.py", line ...',
        "    return logits.log_softmax(dim=-1, dtype=torch.float32)",
        "EngineCore dies (EngineDeadError).",
    )
    assert found.cause is Cause.LOGPROBS_SPIKE


def test_a_method_that_a_client_called_is_no_part_of_the_start() -> None:
    head = "(EngineCore pid=418) ERROR 09-02 20:11:11 [v1/engine/core.py:1240] "
    found = _first(
        "(EngineCore pid=418) INFO 09-02 20:06:36 [gpu_worker.py:560] Available KV cache memory: 64.27 GiB",
        f"{head}Invocation of wake_up method failed",
        f"{head}RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:128",
    )
    assert found.code == "VD314"

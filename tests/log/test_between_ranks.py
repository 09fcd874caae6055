"""A call between the ranks that failed beside another rank's own failure is not the cause, wherever it stands."""

import pytest

from tests.log.judging import judged_text

SITE = "/opt/v/lib/python3.12/site-packages"
NO_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 1 has a total capacity of 79.25 GiB "
    "of which 512.00 MiB is free."
)
SERVES = [
    "(EngineCore_DP0 pid=101) INFO 03-14 09:40:21 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: x",
    "(APIServer pid=1) INFO:     Application startup complete.",
]
ENDS = "(EngineCore_DP0 pid=101) ERROR 03-14 09:51:30 [core.py:710] EngineCore encountered a fatal error."


def failed(rank: int, file: str, function: str, said: str, *, at: str = "09:51:01") -> list[str]:
    head = f"(Worker_TP{rank} pid={301 + rank}) ERROR 03-14 {at} [multiproc_executor.py:671] "
    calls = [f'  File "{SITE}/{file}", line 120, in {function}', "    self.run()"]
    return [head + text for text in ("Traceback (most recent call last):", *calls, said)]


def code_of(*lines: str) -> str:
    return judged_text("\n".join([*SERVES, *lines, ENDS])).findings[0].code


MEMORY = failed(1, "vllm/model_executor/layers/activation.py", "forward_cuda", NO_MEMORY)
PYNCCL = ("vllm/distributed/device_communicators/pynccl.py", "all_reduce")
WAITED = {
    "a CUDA error without its name": (*PYNCCL, "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG)"),
    "an abort": (*PYNCCL, "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0."),
    "the queue": ("vllm/distributed/device_communicators/shm_broadcast.py", "acquire_read", "TimeoutError"),
}


@pytest.mark.parametrize("waited", WAITED)
def test_the_rank_that_failed_at_something_else_is_the_cause(waited: str) -> None:
    first = failed(0, *WAITED[waited])
    assert code_of(*first, *MEMORY) == "VD201"
    assert code_of(*MEMORY, *first) == "VD201"


@pytest.mark.parametrize("waited", WAITED)
def test_without_another_failure_it_is_what_failed(waited: str) -> None:
    assert code_of(*failed(0, *WAITED[waited])) != "VD201"


def test_what_another_replica_lacks_two_minutes_later_explains_nothing() -> None:
    late = failed(1, "vllm/model_executor/layers/activation.py", "forward_cuda", NO_MEMORY, at="09:53:30")
    assert code_of(*failed(0, *WAITED["an abort"]), *late) != "VD201"

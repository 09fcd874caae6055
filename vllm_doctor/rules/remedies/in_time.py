"""Which answers can be true of where in a server's life the failure stands: no client sends anything to a start."""

from collections.abc import Sequence

from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.log.fault import Fault
from vllm_doctor.rules.case import Case

# What a process of the engine writes above the traceback of a start that failed (v1/engine/core.py,
# v1/executor/multiproc_executor.py).
_HEADS = ("engine-core-failed", "worker-failed")
# Its own line may stand among the first of the traceback, which another process's lines go between.
_ABOVE = 400


def in_time(case: Case, fault: Fault, answers: Sequence[Answer]) -> tuple[Answer, ...]:
    """Without what a client could do where the engine itself says that its start failed, and without what is true of a
    start alone elsewhere."""
    starts = of_a_start(case, fault)
    return tuple(a for a in answers if not (a.of_a_client and starts) and (starts or not a.at_start))


def of_a_start(case: Case, fault: Fault) -> bool:
    """Does the log say that the engine's start failed with it, and did no server answer before?"""
    run = case.run
    if run is None or run.up_at(fault):
        return False
    heads = (hit.index for hit in run.hits if hit.id in _HEADS)
    return any(fault.index - _ABOVE <= index <= fault.last for index in heads)

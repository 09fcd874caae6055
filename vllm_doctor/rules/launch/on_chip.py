"""VD519: a kernel does not fit the on-chip shared memory of this GPU; that is neither VRAM nor /dev/shm."""

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Cause, Phase
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.launch._backend import other_backend
from vllm_doctor.rules.launch._fault import named, severity, shown
from vllm_doctor.rules.registry import NotHere, Outcome, Rule, Unseen
from vllm_doctor.rules.say import finding

_IDS = (
    "triton-shared",
    "tile-unsupported",
)


def judge(case: Case) -> Outcome:
    """Did a kernel not fit on-chip memory?"""
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere | Unseen):
        return fault
    return finding(
        RULE,
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=(other_backend(case, "a backend that is not in the traceback has kernels of another size"),),
        refute="the same model starts on a GPU of a newer generation with the same backend",
    )


RULE = Rule(
    code="VD519",
    slug="on-chip-memory",
    title="A kernel needs more on-chip memory than the GPU has",
    node="not-memory",
    cause=Cause.KERNEL_SHARED_MEMORY_LIMIT,
    phase=Phase.NOT_MEMORY,
    reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}),
    judge=judge,
    rank=15,
)

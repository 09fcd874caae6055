"""NCCL's own word, beside the error that torch makes of it, that a segment in /dev/shm could not be had."""

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import Hit, says
from vllm_doctor.rules.case import Case

_FAILED = frozenset({"nccl-system", "nccl-unhandled", "nccl-any", "nccl-numbered"})
SAID = ("nccl-shm", "nccl-fallocate", "shm-full", "shm-object", "shm-segment")


def said_by_nccl(case: Case) -> Hit | None:
    """NCCL's line, where NCCL failed first: its warnings reach the log before or after torch's traceback."""
    run, root = case.run, case.root
    if run is None or root is None or not root.ids & _FAILED:
        return None
    return run.first(*SAID)


# The calls that Python's own dump of a crash shows below it, the innermost first.
_INNER = 6
_BUS = frozenset({"bus-error", "sigbus"})


def of_mapped_weights(case: Case, fault: Fault) -> bool:
    """Did a bus error end a process that read the weights? They are files that are mapped into memory, as /dev/shm's
    segments are, and a page of either that cannot be had ends in the same signal."""
    run = case.run
    if run is None or not fault.ids & _BUS:
        return False
    calls = [line.text for line in run.lines[fault.index :] if line.text.lstrip().startswith("File ")][:_INNER]
    return any(says(call, "call-of-mapped-weights") for call in calls)

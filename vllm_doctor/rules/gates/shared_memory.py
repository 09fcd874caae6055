"""NCCL's own word, beside the error that torch makes of it, that a segment in /dev/shm could not be had."""

from vllm_doctor.log.match import Hit
from vllm_doctor.rules.case import Case

_FAILED = frozenset({"nccl-system", "nccl-unhandled", "nccl-any"})
SAID = ("nccl-shm", "nccl-fallocate", "shm-full", "shm-object", "shm-segment")


def said_by_nccl(case: Case) -> Hit | None:
    """NCCL's line, where NCCL failed first: its warnings reach the log before or after torch's traceback."""
    run, root = case.run, case.root
    if run is None or root is None or not root.ids & _FAILED:
        return None
    return run.first(*SAID)

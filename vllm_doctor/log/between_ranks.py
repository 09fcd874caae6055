"""What ranks say of one another: a call between them fails, or waits in vain, where another rank is gone.

All ranks take part in each call (torch.distributed, NCCL, the executor's message queue). Of two that failed within a
minute the one that failed at something else is the first, whichever the log shows first.
"""

from collections.abc import Sequence

from vllm_doctor.log.clock import seconds_between
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.records.log import FRONT_END, LogLine

# Messages of a call between ranks that name no reason on this rank.
_NO_REASON = frozenset(
    {"nccl-watchdog", "rendezvous", "store-wait", "store-retry", "call-timeout", "nccl-any", "nccl-result"}
    | {"nccl-numbered", "nccl-cupy", "nccl-unhandled"}
)
# A fault that comes later is of another failure: another replica serves on.
_SOON_S = 60.0


def without_those_that_waited(found: Sequence[Fault], lines: Sequence[LogLine]) -> list[Fault]:
    """The faults without calls between ranks that failed beside another process' own failure."""
    own = [fault for fault in found if not _between_ranks(fault) and not fault.bare]
    return [fault for fault in found if not _between_ranks(fault) or not any(_explains(o, fault, lines) for o in own)]


def _between_ranks(fault: Fault) -> bool:
    if fault.ids:
        return fault.ids <= _NO_REASON
    frames = fault.crash.root.frames if fault.crash is not None else ()
    return bool(frames) and says(frames[-1].file, "call-between-ranks")


def _explains(own: Fault, waited: Fault, lines: Sequence[LogLine]) -> bool:
    """Is it of another process, none that answers requests, and not much later?"""
    other, line = lines[own.index], lines[waited.index]
    speakers = [(one.stream, one.process, one.pid) for one in (other, line)]
    if other.process is None or speakers[0] == speakers[1] or other.process.startswith(FRONT_END):
        return False
    passed = seconds_between(line.at, other.at) if own.index > waited.index else None
    return passed is None or passed <= _SOON_S

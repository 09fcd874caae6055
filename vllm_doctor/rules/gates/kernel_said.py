"""What the kernel says, as far as it may belong to the run that is judged."""

from vllm_doctor.log.clock import is_iso
from vllm_doctor.log.match import says
from vllm_doctor.records.host import KernelEvent
from vllm_doctor.rules.case import Case


def oom_killer_was_at_work(case: Case) -> bool:
    """Did it kill something since this run began? A kill without a time, or a run without one, counts."""
    return bool(said_since(case, "kernel-oom"))


def said_since(case: Case, message: str) -> tuple[KernelEvent, ...]:
    """What the kernel says of this kind since this run began, or at a time that cannot be compared with it."""
    run, kernel = case.run, case.kernel
    began = next((line.at for line in run.lines if line.at), None) if run is not None else None
    events = kernel.events if kernel is not None else ()
    return tuple(event for event in events if says(event.text, message) and not _before(event.at, began))


def _before(one: str | None, other: str | None) -> bool:
    """Is `one` earlier, both being ISO times of the same zone? Other forms cannot be compared."""
    if one is None or other is None or not (is_iso(one) and is_iso(other)):
        return False
    return one[:19] < other[:19]

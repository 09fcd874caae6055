"""The kernel's out-of-memory killer, as far as it belongs to the run that is judged."""

from vllm_doctor.log.clock import is_iso
from vllm_doctor.log.match import says
from vllm_doctor.rules.case import Case


def oom_killer_was_at_work(case: Case) -> bool:
    """Did it kill something since this run began? A kill without a time, or a run without one, counts."""
    run, kernel = case.run, case.kernel
    if kernel is None:
        return False
    began = next((line.at for line in run.lines if line.at), None) if run is not None else None
    kills = [event for event in kernel.events if says(event.text, "kernel-oom")]
    return any(not _before(event.at, began) for event in kills)


def _before(one: str | None, other: str | None) -> bool:
    """Is `one` earlier, both being ISO times of the same zone? Other forms cannot be compared."""
    if one is None or other is None or not (is_iso(one) and is_iso(other)):
        return False
    return one[:19] < other[:19]

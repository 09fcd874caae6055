"""The kernel's out-of-memory killer, as far as it belongs to the life that is judged."""

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.rules.case import Case

_OOM = Pattern(r"oom-kill|Out of memory: Killed|Memory cgroup out of memory")
_ISO = Pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


def oom_killer_was_at_work(case: Case) -> bool:
    """Did it kill something since this life began? A kill without a time, or a life without one, counts."""
    run, kernel = case.run, case.kernel
    if kernel is None:
        return False
    began = next((line.at for line in run.lines if line.at), None) if run is not None else None
    kills = [event for event in kernel.events if _OOM.search(event.text)]
    return any(not _before(event.at, began) for event in kills)


def _before(one: str | None, other: str | None) -> bool:
    """Is `one` earlier, both being ISO times of the same zone? Other forms cannot be compared."""
    if one is None or other is None or not _ISO.match(one) or not _ISO.match(other):
        return False
    return one[:19] < other[:19]

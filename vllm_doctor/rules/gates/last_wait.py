"""The wait in which a log ends."""

import itertools
from collections.abc import Sequence

from vllm_doctor.log.clock import minute_of_day
from vllm_doctor.log.match import Hit, says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.startup_phase import StartupPhase

DAY = 24 * 60
# One such line alone tells no time.
_RETRIES = 2


def final_run(run: AnalysedRun, hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """The hits after which no step of the start was reached any more; none once it served."""
    if run.served():
        return ()
    last = max((i for i, stage in run.miles if stage is not StartupPhase.CONFIG), default=-1)
    return tuple(h for h in hits if h.index > last)


def unbroken(run: AnalysedRun, hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Those of the hits with which the run ends: nothing else was written between them (a progress bar would be).

    A mark where somebody cut the log is nothing that was written.
    """
    end = len(run.lines) if run.stopped is None else run.stopped
    at = {h.index: h for h in hits}
    lines = run.lines
    spoken = (i for i in range(end - 1, -1, -1) if lines[i].text.strip() and not says(lines[i].text, "cut-mark"))
    return tuple(at[i] for i in itertools.takewhile(at.__contains__, spoken))[::-1]


def minutes_of(run: AnalysedRun, waits: Sequence[Hit]) -> int:
    """How many minutes the waits take, by their count, and by the clock where lines between were cut out."""
    if len(waits) < _RETRIES:
        return len(waits)
    first, last = (minute_of_day(run.lines[h.index].at) for h in (waits[0], waits[-1]))
    if first is None or last is None:
        return len(waits)
    return max(len(waits), (last - first) % DAY + 1)

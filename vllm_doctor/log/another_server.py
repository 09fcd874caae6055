"""Service that the start above it cannot give: another server, which signs no line, writes into the same text.

Where processes sign their lines, the reader takes two servers apart (read/servers.py). Where they do not, the lines of
the one that serves follow those of the one that begins, or has ended in its start, as if they were its own.
"""

from vllm_doctor.log.clock import seconds_between
from vllm_doctor.log.match import says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.startup_phase import StartupPhase

_ANNOUNCED = ("server-version", "banner-version", "args-non-default", "args-namespace")
_ANSWERS = ("request-ok",)
# What stands at both ends of a start, and is no step of it.
_ENDS = frozenset({StartupPhase.CONFIG, StartupPhase.SERVING})
# Seconds: no server is made in less.
_A_START = 20
_SERVES = ("stats", *_ANSWERS)
# What a start says before it can serve; a line of it may be lost, and each release has some of them.
_READY = ("init-took", "server-starting", "app-started", "uvicorn-running")


def another_server(run: AnalysedRun) -> str | None:
    """What shows it; None where nothing does."""
    begun = run.first(*_ANNOUNCED)
    if begun is None:
        return None
    for wanted in (_SERVES, _ANSWERS):
        serves = next((h for h in run.hits if h.index > begun.index and h.id in wanted), None)
        if serves is None:
            continue
        before = range(begun.index, serves.index)
        ready = any(h.index in before and h.id in _READY for h in run.hits)
        if ready and wanted == _ANSWERS and run.log.lifespan_before:
            # uvicorn tells of requests where it tells of its own start, as the run before shows.
            ready = any(says(run.lines[i].text, "uvicorn-lifespan") for i in before)
        if not ready and not _left_out(run, begun.index, serves.index):
            number = run.lines[serves.index].number
            return (
                f"line {number} is of a server that serves, and the start above it has not reached that phase: another "
                "server writes into the same text; give the log of one server alone"
            )
    return None


def _left_out(run: AnalysedRun, begun: int, serves: int) -> bool:
    """Did somebody leave out the whole start? Then no step of it stands between the lines, and the clock went on."""
    if any(begun < index < serves for index, stage in run.miles if stage not in _ENDS):
        return False
    # uvicorn writes no time: the line above it has one.
    clock = next((line.at for line in reversed(run.lines[begun : serves + 1]) if line.at is not None), None)
    passed = seconds_between(run.lines[begun].at, clock)
    return passed is not None and passed >= _A_START

"""Service that the start above it cannot give: another server, which signs no line, writes into the same text.

Where processes sign their lines, the reader takes two servers apart (read/servers.py). Where they do not, the lines of
the one that serves follow those of the one that begins, or has ended in its start, as if they were its own.
"""

from vllm_doctor.log.match import says
from vllm_doctor.log.root_cause import AnalysedRun

_ANNOUNCED = ("server-version", "banner-version", "args-non-default", "args-namespace")
_ANSWERS = ("request-ok",)
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
        if not ready:
            number = run.lines[serves.index].number
            return (
                f"line {number} is of a server that serves, and the start above it has not come so far: another server "
                "writes into the same text; give each one's log alone"
            )
    return None

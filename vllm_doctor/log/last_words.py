"""What stands at the very end of a log, below all that the server said, and speaks of an end.

vLLM's processes sign what they write in Python. What ends them from below does not: a runtime in C++ or Rust writes its
last line itself, and a shell, a supervisor or a scheduler writes it for them. They cannot be listed. What they have in
common is the place, behind the last word of the server, and the few names that there are for an end.
"""

from collections.abc import Iterator

from vllm_doctor.log.match import kinds, milestones, says, stops
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.run import PROCESSES
from vllm_doctor.log.traceback import Crash
from vllm_doctor.records.log import LogLine

_SERIOUS = frozenset({"ERROR", "CRITICAL", "FATAL"})
_ABOVE = 3
_ENGINE = ("EngineCore", "Worker", "VllmWorker", "RayWorkerWrapper")


def last_words(run: AnalysedRun) -> LogLine | None:
    """The first line after the server's last that says that something ended or failed; None where there is none.

    A traceback that is whole was judged by what it says.
    """
    known = {h.index for h in run.hits if h.id in milestones() or h.id in stops() or kinds()[h.id] == "benign"}
    last = next((i for i in reversed(range(len(run.lines))) if i in known or _own(run.lines[i])), -1)
    whole = (crash for crash in run.crashes if crash.root.name and crash.root.frames)
    told = {i for crash in whole for i in (*_heading(run, crash), *range(crash.first, crash.last + 1))}
    stream = run.lines[last].stream if last >= 0 else None
    # Whoever told the server to stop kills what does not.
    stopping = run.stopped is not None and run.first("app-stopped", "uvicorn-finished") is None
    for index in range(last + 1, len(run.lines)):
        line = run.lines[index]
        beside = stream is not None and line.stream not in {None, stream}
        if beside or index in told or (stopping and says(line.text, "kill-in-any-words")):
            continue
        if _complains(line):
            return line
    return None


def _heading(run: AnalysedRun, crash: Crash) -> Iterator[int]:
    """The line above a traceback, and what its process said right before, whoever wrote in between."""
    for index in range(max(0, crash.first - _ABOVE), crash.first):
        line = run.lines[index]
        own = line.process is not None and (line.process, line.pid) == (crash.process, crash.pid)
        if own or index == crash.first - 1:
            yield index


def _own(line: LogLine) -> bool:
    """Did vLLM or uvicorn write it with their own logger, or one of vLLM's processes, and not as an error?"""
    if line.level is None:
        return PROCESSES.match(line.process or "") is not None
    # What the front end calls an error is mostly a request's, and was judged; uvicorn's form is anybody's, too.
    return line.level not in _SERIOUS or (line.module != "uvicorn" and not (line.process or "").startswith(_ENGINE))


def _complains(line: LogLine) -> bool:
    text = line.text
    if says(text, "information-line", "python-warning", "warning-line", "ended-in-order", "aside-heading"):
        return False
    return says(text, "end-in-any-words") or (
        says(text, "something-failed") and not says(line.excerpt or text, "calls-itself-harmless")
    )

"""Tracebacks as C++ prints them of an exception that Python raised (pybind11's error_already_set: `error_string`).

The exception comes first, an empty line and `At:` follow, then the calls, the innermost first, as `FILE(LINE): NAME`.
Triton Inference Server's Python backend and every extension of pybind11 that logs what its Python part raised write so.
"""

from collections.abc import Iterator, Sequence

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.log.traceback import Crash, Frame, Link, path_of
from vllm_doctor.records.log import LogLine

_AT = "At:"
_CALL = Pattern(r"\s{1,8}(\S{1,400})\((\d{1,9})\): (\S{1,200})\s{0,8}$")
# The exception's own line: whoever passed it on may have set words of its own before it.
_RAISED = Pattern(
    r"(?:^|: )((?:[A-Za-z_]\w{0,80}\.){0,12}[A-Z]\w{0,80}(?:Error|Exception|Exit|Timeout|Interrupt))(?:: (.*))?$"
)
# Lines of the message that are looked at, upwards, for the exception's name.
_ABOVE = 14


def with_calls_of_pybind(lines: Sequence[LogLine], found: Sequence[Crash]) -> tuple[Crash, ...]:
    """The tracebacks, with those that pybind11 wrote: they take the place of an exception read without its calls."""
    own = tuple(_tracebacks(lines))
    if not own:
        return tuple(found)
    bare = [c for c in found if any(k.frames for k in c.links) or not any(p.first <= c.first <= p.last for p in own)]
    return tuple(sorted((*bare, *own), key=lambda c: c.first))


def _tracebacks(lines: Sequence[LogLine]) -> Iterator[Crash]:
    for index, line in enumerate(lines):
        if line.text.rstrip() != _AT:
            continue
        calls: list[Frame] = []
        for below in lines[index + 1 :]:
            call = _CALL.match(below.text)
            if call is None:
                break
            calls.append(Frame(path_of(call[1]), int(call[2]), call[3]))
        at = _exception(lines, index)
        if not calls or at is None:
            continue
        raised = _RAISED.search(lines[at].text)
        if raised is None:
            continue
        message = "\n".join([raised[2] or "", *(one.text for one in lines[at + 1 : index])]).rstrip()
        link = Link(raised[1], message, tuple(reversed(calls)), at)
        yield Crash((link,), lines[at].process, lines[at].pid, at, index + len(calls), lines[at].level)


def _exception(lines: Sequence[LogLine], index: int) -> int | None:
    """The line above that names the exception; the message may have several lines."""
    above = range(index - 1, max(-1, index - 1 - _ABOVE), -1)
    return next((i for i in above if _RAISED.search(lines[i].text) is not None), None)

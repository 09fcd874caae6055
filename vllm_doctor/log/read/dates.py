"""Takes a text apart into which logs of different days were put: one process writes in the order of its time.

A log that was pasted above another or into it keeps its dates. Two zones, a late rank and a restart differ by less than
a day; whoever supervises a server starts it again within minutes, and a person within hours.
"""

from collections.abc import Sequence

import msgspec

from vllm_doctor.log.clock import second_of_year
from vllm_doctor.log.match import says
from vllm_doctor.log.read.runs import announces, launched_with, model_of
from vllm_doctor.records.log import LogLine

_DAY = 86_400
# `second_of_year` counts months of 31 days.
_YEAR = 12 * 31 * _DAY
# More spans than so many are no logs, but a text of dates.
_SPANS = 32
_SERIOUS = frozenset({"ERROR", "CRITICAL"})


class _Span(msgspec.Struct):
    """Lines whose clocks go on from one another, wherever they stand."""

    first: int
    last: int
    began: int
    latest: int
    told: int = 0
    serious: bool = False


def of_their_days(lines: Sequence[LogLine], *, in_place: bool) -> list[list[LogLine]]:
    """The lines of each log in it; one list where the days tell of one.

    Of a unit and of a container (`in_place`) what begins days later took the place of what was there.
    """
    spans: list[_Span] = []
    whose: list[int] = []
    now = 0
    for index, line in enumerate(lines):
        at = second_of_year(line.at) if line.module not in {None, "uvicorn"} else None
        if at is not None:
            now = _place(spans, at, index, now)
            if now >= _SPANS:
                return [list(lines)]
            span = spans[now]
            span.last, span.latest, span.told = index, at, span.told + 1
            span.serious = span.serious or line.level in _SERIOUS
        whose.append(now)
    if len(spans) < 2:
        return [list(lines)]
    logs = _logs(lines, spans, whose, in_place=in_place)
    found: dict[int, list[LogLine]] = {}
    for span_number, line in zip(whose, lines, strict=True):
        found.setdefault(logs[span_number], []).append(line)
    return list(found.values())


def _place(spans: list[_Span], at: int, index: int, now: int) -> int:
    """The span that this time goes on with: the one that speaks, else the one that spoke last; else a new one."""
    if spans and abs(_ahead(at, spans[now].latest)) <= _DAY:
        return now
    near = [n for n, span in enumerate(spans) if abs(_ahead(at, span.latest)) <= _DAY]
    if near:
        return max(near, key=lambda n: spans[n].last)
    spans.append(_Span(index, index, at, at))
    return len(spans) - 1


def _logs(lines: Sequence[LogLine], spans: Sequence[_Span], whose: Sequence[int], *, in_place: bool) -> list[int]:
    """The log of each span: it goes on with one that has come to its end above it, at an earlier time."""
    logs: list[int] = []
    ends: list[_Span] = []
    for number, span in enumerate(spans):
        before = [n for n, end in enumerate(ends) if end.last < span.first and _ahead(span.began, end.latest) > 0]
        log = max(before, key=lambda n: ends[n].last, default=len(ends))
        if span.told == 1 and not span.serious and ends:
            log = logs[-1]  # one date may be part of what it says
        elif log < len(ends) and not in_place and _apart(lines, logs, whose, log, number):
            log = len(ends)
        logs.append(log)
        ends[log : log + 1] = [span]
    return logs


def _apart(lines: Sequence[LogLine], logs: Sequence[int], whose: Sequence[int], log: int, number: int) -> bool:
    """Does a server begin in this span of which nothing shows that it is the one before: no name in front of its
    lines, and no model?"""
    own = [line for line, span in zip(lines, whose, strict=True) if span == number]
    if not any(announces(line.text) or launched_with(line.text) or says(line.text, "engine-config") for line in own):
        return False
    before = [line for line, span in zip(lines, whose, strict=True) if span < number and logs[span] == log]
    names = [{line.stream for line in part} for part in (before, own)]
    if names[0] == names[1] != {None}:
        return False
    return model_of(own) is None or model_of(own) != model_of(before)


def _ahead(one: int, other: int) -> int:
    """By how many seconds one time is later than the other, at whichever turn of the year."""
    return (one - other + _YEAR // 2) % _YEAR - _YEAR // 2

"""A table that a log service or a viewer gives out, as the lines of one column: CSV, TSV, or drawn with bars."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from vllm_doctor.log.read.entry import ENTRIES

# What a row of a table without a head begins with: when, in seconds or milliseconds (CloudWatch).
_EPOCH = re.compile(r"\d{10,19},")
# A time that is put before its line, where the line may have none of its own.
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)\Z")
_RULE = frozenset("|+:=- \t\r")
_FEW = 3
_MOST_COLUMNS = 60
_SAID = (*(text.lower() for text, _ in ENTRIES), "text", "content", "raw", "entry", "logline")
_WHEN = ("timestamp", "time", "date", "datetime", "timegenerated", "ts", "ingestiontime")
_WHO = ("pod", "podname", "kubernetespodname", "instance", "container", "containername", "host", "hostname")
_NAME = re.compile(r"[\w./-]{1,120}\Z")


class _Head(msgspec.Struct, frozen=True):
    """The first row: how many columns there are, which one holds what was said, and which ones when and by whom."""

    columns: int
    said: int
    when: int | None
    who: int | None


def rows_said(text: str) -> str:
    """What the rows of a table say, each in its line, the oldest first; the same text where it is none."""
    first = next((line for line in text.split("\n", _FEW)[:_FEW] if not _RULE.issuperset(line)), "")
    if _EPOCH.match(first) is not None or text.count("\n") < _FEW - 1:
        return _without_head(text)
    if (head := _head(_cells(first))) is not None:
        return _drawn(text, head)
    for sign in (",", "\t"):
        if sign in first and (head := _head(_parsed(first, sign))) is not None:
            return _separated(text, sign, head) or _without_head(text)
    return _drawn_below(text) if "\n|" in text else _without_head(text)


def _head(cells: Sequence[str]) -> _Head | None:
    """The columns, where one has a name that log services give to what was said."""
    names = [re.sub(r"\W|_", "", cell.partition(" [")[0].lower()) for cell in cells]
    said, when, who = (
        next((names.index(name) for name in known if name in names), None) for known in (_SAID, _WHEN, _WHO)
    )
    if said is None or not 2 <= len(names) <= _MOST_COLUMNS or not all(names):
        return None
    return _Head(len(names), said, when, who)


def _parsed(line: str, sign: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=sign), [])
    except csv.Error:
        return []


def _separated(text: str, sign: str, head: _Head) -> str | None:
    """None where a row has another number of cells: then the first line only looked like a head."""
    try:
        rows = [row for row in csv.reader(io.StringIO(text), delimiter=sign) if row][1:]
    except csv.Error:
        return None
    if len(rows) < _FEW or any(len(row) != head.columns for row in rows):
        return None
    return "\n".join(("", *_told(rows, head)))


def _told(rows: Sequence[Sequence[str]], head: _Head) -> Iterator[str]:
    whens = [row[head.when].strip() for row in rows] if head.when is not None else []
    if whens and whens[0] > whens[-1] and all(a >= b for a, b in pairwise(whens)):
        rows, whens = rows[::-1], whens[::-1]  # a viewer shows the newest first
    whos = [row[head.who].strip() for row in rows] if head.who is not None else []
    several = len({*whos}) > 1 and all(map(_NAME.match, whos))
    for at, row in enumerate(rows):
        said = row[head.said].rstrip("\n")
        whose = f"[pod/{whos[at]}] " if several else ""  # as `kubectl logs --prefix` tells several apart
        yield f"{whose}{whens[at]} {said}" if whens and _TIME.match(whens[at]) else whose + said


def _cells(line: str) -> list[str]:
    framed = line[:1] == "|" and line.rstrip()[-1:] == "|"
    return [cell.strip() for cell in line.rstrip()[1:-1].split("|")] if framed else []


def _drawn_below(text: str) -> str:
    """The same of a table that stands below other lines."""
    above, _, below = text.partition("\n|")
    head = _head(_cells("|" + below.partition("\n")[0]))
    return text if head is None else f"{above}\n{_drawn('|' + below, head)}"


def _drawn(text: str, head: _Head) -> str:
    """A cell may hold bars of its own (a bar of progress): the others are counted from both ends."""
    rows: list[list[str]] = []
    last = 0
    given = text.split("\n")
    for at, line in enumerate(given):
        if line[:1] != "|":
            continue
        last = at
        behind = head.columns - head.said - 1
        left = line.rstrip()[1:-1].split("|", head.said)
        if len(left) <= head.said or _RULE.issuperset(line):
            continue
        inner = left[-1].rsplit("|", behind) if behind else [left[-1]]
        said = inner[0].removeprefix(" ").rstrip()
        rows.append([*left[:-1], said, *inner[1:]])
    told = _told([row for row in rows[1:] if len(row) == head.columns], head)
    below = given[last + 1 :]
    return "\n".join(("", *told, *(below if not all(map(_RULE.issuperset, below)) else ())))


def _without_head(text: str) -> str:
    """Rows of a time and what was said, below a head with names of its own or none."""
    head, *rest = text.split("\n")
    rows = [*rest] if _EPOCH.match(head) is None else [head, *rest]
    told = [row for row in rows if row.strip()]
    if len(told) < _FEW or any(_EPOCH.match(row) is None for row in told):
        return text
    said = (row.partition(",")[2].strip() for row in rows)
    quoted = '"'
    lines = (one[1:-1].replace('""', quoted) if len(one) > 1 and one[0] == one[-1] == quoted else one for one in said)
    return "\n".join((*([""] if len(rows) == len(rest) else ()), *lines))

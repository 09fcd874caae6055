"""Turns a log that a page or `journalctl -r` shows newest first the right way round."""

import re
from collections.abc import Sequence
from itertools import pairwise

from vllm_doctor.log.clock import day_and_time
from vllm_doctor.records.log import LogLine

# A page's own line above each entry: the whole time and nothing else.
_HEAD = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,\dZ+:]*\s*$")
# What another logger of the same program sets behind its file: the year, too, and parts of a second.
_BESIDE = re.compile(r"\S{1,40}\s{0,20}:\d{1,6}\s{1,8}\d{4}-(\d\d-\d\d \d\d:\d\d:\d\d)[,.]\d")
# Fewer lines with a time, or fewer steps back, may be processes that write at the same moment, or a turn of the year.
_STAMPED = 3
_BACK = 2
# Such processes step forward in a log that is upside down, too; in one of several runs most steps are forward.
_BACK_FOR_EACH_FORWARD = 10
_TRACEBACK = "Traceback (most recent call last):"
_CALL = 'File "'
# A program's bar may stand in between.
_NEAR = 3


def oldest_first(lines: Sequence[LogLine]) -> Sequence[LogLine] | None:
    """The entries in the order in which they were written; None where they stand in it already.

    An entry begins at the page's line with its time, where the page has such lines, else at each line with a time;
    where even tracebacks are upside down, each line is one.
    """
    heads = [line.text.strip() for line in lines if line.at is None and _HEAD.match(line.text)]
    stamps = heads or [at for line in lines if (at := _stamp(line)) is not None]
    back = sum(later < earlier for earlier, later in pairwise(stamps))
    forward = sum(later > earlier for earlier, later in pairwise(stamps))
    each_line = not heads and _calls_stand_above(lines)
    if back or forward or heads:
        turned = len(stamps) >= _STAMPED and back >= max(_BACK, forward * _BACK_FOR_EACH_FORWARD)
    else:
        turned = each_line
    if not turned:
        return None
    if each_line:
        return [*reversed(lines)]
    entries: list[list[LogLine]] = []
    for line in lines:
        begins = bool(_HEAD.match(line.text)) if heads else _stamp(line) is not None
        if begins or not entries:
            entries.append([])
        entries[-1].append(line)
    return [line for entry in reversed(entries) for line in entry]


def _calls_stand_above(lines: Sequence[LogLine]) -> bool:
    """Do the calls of each traceback stand above its heading, and none below? Of lines of one moment, or of none,
    nothing else tells the order."""
    told = [line.text for line in lines if line.text.strip()]
    heads = [index for index, text in enumerate(told) if text.rstrip().endswith(_TRACEBACK)]
    calls = [text.lstrip().startswith(_CALL) for text in told]
    above = [any(calls[max(0, i - _NEAR) : i]) for i in heads]
    below = [any(calls[i + 1 : i + 1 + _NEAR]) for i in heads]
    return bool(heads) and all(above) and not any(below)


def _stamp(line: LogLine) -> str | None:
    if line.at is not None:
        return day_and_time(line.at)
    beside = _BESIDE.match(line.text)
    return beside[1] if beside is not None else None

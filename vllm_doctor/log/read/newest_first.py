"""Turns a log that a web page shows newest first the right way round."""

import re
from collections.abc import Sequence
from itertools import pairwise

from vllm_doctor.records.log import LogLine

# A page's own line above each entry: the whole time and nothing else.
_HEAD = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,\dZ+:]*\s*$")
_VLLM = re.compile(r"\d\d-\d\d \d\d:\d\d:\d\d$")
# What another logger of the same program sets behind its file: the year, too, and parts of a second.
_BESIDE = re.compile(r"\S{1,40}\s{0,20}:\d{1,6}\s{1,8}\d{4}-(\d\d-\d\d \d\d:\d\d:\d\d)[,.]\d")
# Fewer lines with a time, or fewer steps back, may be processes that write at the same moment, or a turn of the year.
_STAMPED = 3
_BACK = 2


def oldest_first(lines: Sequence[LogLine]) -> Sequence[LogLine] | None:
    """The entries in the order in which they were written; None where they stand in it already.

    An entry begins at the page's line with its time, where the page has such lines, else at each line with a time.
    """
    heads = [line.text.strip() for line in lines if line.at is None and _HEAD.match(line.text)]
    stamps = heads or [at for line in lines if (at := _stamp(line)) is not None]
    if len(stamps) < _STAMPED or any(later > earlier for earlier, later in pairwise(stamps)):
        return None
    if sum(later < earlier for earlier, later in pairwise(stamps)) < _BACK:
        return None
    entries: list[list[LogLine]] = []
    for line in lines:
        begins = bool(_HEAD.match(line.text)) if heads else line.at is not None or _stamp(line) is not None
        if begins or not entries:
            entries.append([])
        entries[-1].append(line)
    return [line for entry in reversed(entries) for line in entry]


def _stamp(line: LogLine) -> str | None:
    if line.at is not None:
        return line.at if _VLLM.match(line.at) else None
    beside = _BESIDE.match(line.text)
    return beside[1] if beside is not None else None

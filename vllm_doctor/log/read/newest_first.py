"""Turns a log that a web page shows newest first the right way round."""

import re
from collections.abc import Sequence
from itertools import pairwise

from vllm_doctor.records.log import LogLine

# A page's own line above each entry: the whole time and nothing else.
_HEAD = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,\dZ+:]*\s*$")
_VLLM = re.compile(r"\d\d-\d\d \d\d:\d\d:\d\d$")
# Fewer lines with a time, or fewer steps back, may be processes that write at the same moment, or a turn of the year.
_STAMPED = 3
_BACK = 2


def oldest_first(lines: Sequence[LogLine]) -> Sequence[LogLine] | None:
    """The entries in the order in which they were written; None where they stand in it already.

    An entry begins at the page's line with its time, where the page has such lines, else at each line with a time.
    """
    heads = [line.text.strip() for line in lines if line.at is None and _HEAD.match(line.text)]
    stamps = heads or [line.at for line in lines if line.at is not None and _VLLM.match(line.at)]
    if len(stamps) < _STAMPED or any(later > earlier for earlier, later in pairwise(stamps)):
        return None
    if sum(later < earlier for earlier, later in pairwise(stamps)) < _BACK:
        return None
    entries: list[list[LogLine]] = []
    for line in lines:
        begins = bool(_HEAD.match(line.text)) if heads else line.at is not None
        if begins or not entries:
            entries.append([])
        entries[-1].append(line)
    return [line for entry in reversed(entries) for line in entry]

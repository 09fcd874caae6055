"""Which function of vLLM raises in these words: what a quoted last line of a traceback still tells of its calls.

Of each sentence of a `raise` or an `assert` the table (said_by.json) has no words, but three fingerprints, of three
words in a row each. A message that holds them all, of the same kind, is that sentence, whatever values stand in it.
tools/releases/said_by.py reads the wheels.
"""

import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from vllm_doctor.knowledge.version import Version, as_version

# Words in a row that one fingerprint is of, and how many fingerprints tell a sentence.
_WORDS, _PRINTS = 3, 3
# The kinds that pydantic passes on under its own name.
_PASSED_ON = frozenset({"ValueError", "AssertionError"})
_READ = 2000


class SaidBy(NamedTuple):
    """A call that says a sentence, and the first and the last release known to have it there."""

    file: str
    function: str
    kind: str
    first: Version
    last: Version


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`rows`: fingerprints, file, function, kind and releases; the latter four are places in the lists above."""

    source: str
    releases: tuple[str, ...]
    files: tuple[str, ...]
    functions: tuple[str, ...]
    kinds: tuple[str, ...]
    rows: tuple[str, ...]


def fingerprints(text: str, hole: str = "") -> tuple[str, ...]:
    """Of each three words in a row, in order; none of words that hold `hole`, where a value stands."""
    words = text.split()
    runs = (words[i : i + _WORDS] for i in range(len(words) - _WORDS + 1))
    return tuple(
        f"{zlib.crc32(' '.join(run).encode()) & 0xFFFFFF:06x}"
        for run in runs
        if not hole or not any(hole in word for word in run)
    )


def told_by(text: str, hole: str) -> str:
    """The fingerprints that tell a sentence, as one word; empty where too little of it is fixed."""
    found = sorted(set(fingerprints(text, hole)))[:_PRINTS]
    return "".join(found) if len(found) == _PRINTS else ""


def said_by(kind: str, message: str, at: Version | None = None) -> SaidBy | None:
    """The call of vLLM that raises `kind` with such a message in this release, else in the newest that has it.

    None where no sentence fits, or files of several parts of that release have the same one.
    """
    found = list(_fitting(kind, message[:_READ]))
    newest = max((one.last for one in found), default=None)
    told = [one for one in found if at is not None and one.first <= at <= one.last]
    told = told or [one for one in found if one.last == newest]
    return told[0] if len({one.file.rpartition("/")[0] for one in told}) == 1 else None


def _fitting(kind: str, message: str) -> Iterator[SaidBy]:
    here = frozenset(fingerprints(message))
    table, by_first = _read()
    for first in sorted(here & by_first.keys()):
        for row in by_first[first]:
            prints, file, function, of_kind, releases = row.split()
            own = table.kinds[int(of_kind)]
            parts = (prints[i : i + 6] for i in range(0, len(prints), 6))
            if (own == kind or (kind == "ValidationError" and own in _PASSED_ON)) and here.issuperset(parts):
                start, _, end = releases.partition("-")
                yield SaidBy(
                    table.files[int(file)],
                    table.functions[int(function)],
                    own,
                    as_version(table.releases[int(start)]),
                    as_version(table.releases[int(end) if end else -1]),
                )


@cache
def _read() -> tuple[_Table, dict[str, list[str]]]:
    table = msgspec.json.decode(Path(__file__).with_name("said_by.json").read_bytes(), type=_Table)
    by_first: dict[str, list[str]] = {}
    for row in table.rows:
        by_first.setdefault(row[:6], []).append(row)
    return table, by_first

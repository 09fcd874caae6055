"""What the rows of a log in JSON say, whatever its writer calls the fields: a row a line, or one document for all.

The field with the text is the one in which lines of vLLM's, uvicorn's and Python's begin. A logger of Python's has
their parts in fields of its own (logging.LogRecord, structlog), and an exception's calls beside its message.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeAlias

import msgspec

from vllm_doctor.log.read.entry import ENTRIES, PAYLOADS
from vllm_doctor.log.read.envelope import begins_own, known_part, time_in
from vllm_doctor.log.read.prefix import Head
from vllm_doctor.log.read.printable import printable_text

Leaf: TypeAlias = tuple[tuple[str, ...], str]

# Rows that make a log, of the first lines; what is read of each; and so long is a time at most.
_FEW, _LOOKED_AT, _MOST_LEAVES, _DEEP, _SHORT = 3, 200, 4000, 40, 40
_OF_A_ROW = re.compile(r"[^{]{0,400}?(?=\{\s*\")")
_TRACEBACK = "Traceback (most recent call last)"
# Who wrote it, where several containers' rows stand in one text; hosts may be the ranks of one server.
_WHO = frozenset({"pod", "podname", "kubernetespodname", "k8spodname", "containername", "container"})
_LEVELS = ("levelname", "level", "severity", "log.level")
_WORDS = {"warn": "WARNING", "err": "ERROR", "fatal": "CRITICAL"}
_NAMES = ("name", "logger", "logger_name")


class _Row(msgspec.Struct, frozen=True):
    """The line of a row, what stands before it there, its fields, and each text in them with its place."""

    at: int
    before: str
    fields: dict[str, object]
    leaves: list[Leaf]


def rows_read(raw: Sequence[str]) -> tuple[list[str], dict[int, Head]]:
    """The lines, each row as its text, and what its fields tell of it; others as they are."""
    told = (line for line in raw if line.strip())
    if sum(_row(line) is not None for line in islice(told, _LOOKED_AT)) < _FEW:
        return [*raw], {}
    read = ((at, _row(line)) for at, line in enumerate(raw))
    rows = [_Row(at, *one, [*islice(_leaves(one[1]), _MOST_LEAVES)]) for at, one in read if one is not None]
    path = _text_of([row.leaves for row in rows])
    whose = _whose(rows)
    found = [*raw]
    heads: dict[int, Head] = {}
    for row in rows:
        said = "\n".join(text.rstrip("\n") for one, text in row.leaves if one == path)
        plain = _plain(row.fields)
        as_it_is = not said or (not row.before and plain is not None and plain.rstrip("\n") == said)
        said = said or plain or ""
        trace = next((text for _, text in row.leaves if _TRACEBACK in text and text not in said), None)
        head = _head(row, whose.get(row.at))
        if said and not (as_it_is and trace is None and head.level is None):
            whole = said if trace is None else f"{said.rstrip()}\n{trace}"
            found[row.at] = row.before[: known_part(row.before)] + printable_text(whole.rstrip("\n"))
            heads[row.at] = head
        elif head.stream is not None:
            heads[row.at] = Head(stream=head.stream)
    return found, heads


def lines_of(document: object) -> list[str]:
    """The text of the entries of one document, in its order; none where fewer than a few are lines of vLLM's."""
    leaves = [*_leaves(document)]
    path = _text_of([leaves])
    told = [text for one, text in leaves if one == path]
    return told if sum(begins_own(text) for text in told) >= _FEW else []


def _row(line: str) -> tuple[str, dict[str, object]] | None:
    """What stands before a row, and the row; None where the line does not end with an object."""
    if line.rstrip()[-1:] != "}":
        return None
    before = _OF_A_ROW.match(line)
    if before is None:
        return None
    try:
        row = json.loads(line[before.end() :])
    except (ValueError, RecursionError):
        return None
    return (before[0], row) if isinstance(row, dict) and "error" not in row else None


def _leaves(value: object, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Each text of a document with its place: the keys to it, and of a row of cells which cell it is."""
    if isinstance(value, str):
        yield path, value
    elif len(path) > _DEEP:
        return
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    elif isinstance(value, list):
        cells = any(isinstance(inner, str) for inner in value)
        for at, inner in enumerate(value):
            yield from _leaves(inner, (*path, str(at) if cells else "*"))


def _text_of(rows: Sequence[Sequence[Leaf]]) -> tuple[str, ...] | None:
    """The place in which lines of vLLM's begin most often."""
    counts: Counter[tuple[str, ...]] = Counter()
    for leaves in rows:
        counts.update(path for path, text in leaves if begins_own(text))
    return counts.most_common(1)[0][0] if counts else None


def _plain(row: dict[str, object]) -> str | None:
    """What prefix.py takes as a row's text."""
    inner = next((row[key] for key in PAYLOADS if isinstance(row.get(key), dict)), None)
    for part in (row, inner):
        if isinstance(part, dict):
            said = next((part[key] for key, _ in ENTRIES if isinstance(part.get(key), str)), None)
            if isinstance(said, str):
                return said
    return None


def _whose(rows: Sequence[_Row]) -> dict[int, str]:
    """The container of each row, where there are several."""
    named = ((row.at, next((text for path, text in row.leaves if _names_a_pod(path)), None)) for row in rows)
    found = {at: name for at, name in named if name is not None}
    return found if 1 < len({*found.values()}) <= max(2, len(found) // 10) else {}


def _names_a_pod(path: tuple[str, ...]) -> bool:
    last = path[-1] if len(path) < 2 or path[-1] != "name" else path[-2]
    return re.sub(r"\W|_", "", last.lower()) in _WHO


def _head(row: _Row, whose: str | None) -> Head:
    stamps = (at for text in (row.before, *(t for _, t in row.leaves if len(t) < _SHORT)) if (at := time_in(text)))
    level, module = _of_a_logger(row.fields)
    return Head(next(stamps, None), f"pod/{whose}" if whose else None, level, module)


def _of_a_logger(row: dict[str, object]) -> tuple[str | None, str | None]:
    """Level and file of a record that logging made in vLLM or uvicorn; a collector's own level says nothing."""
    name = next((row[key] for key in _NAMES if isinstance(row.get(key), str)), "")
    told = next((row[key] for key in _LEVELS if isinstance(row.get(key), str)), None)
    if not isinstance(name, str) or not isinstance(told, str):
        return None, None
    level = _WORDS.get(told.lower(), told.upper())
    if name.split(".")[0] == "uvicorn":
        return level, "uvicorn"
    file = row.get("filename") or row.get("pathname") or name.rsplit(".", 1)[-1] + ".py"
    line = row.get("lineno")
    return (level, f"{file}:{line if isinstance(line, int) else 0}") if name.split(".")[0] == "vllm" else (None, None)

"""Every sentence of a `raise`, an `assert`, an answer with an error or a check of compiled code, as fingerprints, with
the function that says it (knowledge/said_by/).

A release adds its own: a row whose sentence it still has goes on, one that it lacks ends with the release before. A row
ends with `-` where the newest release has it, so that the next one moves no line.
"""

from __future__ import annotations

import ast
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from releases import compiled, texts
from releases.answered import answered
from releases.raised import Raised, raised, raised_whole
from releases.wheel import Wheel
from vllm_doctor.knowledge import said_by
from vllm_doctor.knowledge.said_by import COMPILED, OWN
from vllm_doctor.knowledge.said_by.short import whole_of
from vllm_doctor.knowledge.version import as_version

FOLDER = Path(said_by.__file__).parent
_SOURCE = "{}'s wheels, each `raise`, `assert` and answered error with a sentence: tools/release.py said"
_OF_SOURCES = "vLLM's source distributions, each check of csrc/ with a sentence: tools/release.py said"
_SIGNS = ("raise ", "assert ", "create_error_response(")
_LEFT_OUT = ("vllm/benchmarks/", "vllm/assets/", "vllm/third_party/", "vllm/vllm_flash_attn/")

# What Python says itself, and what code that stands in for it repeats: nobody is told by these words.
_OF_PYTHON = (
    "got multiple values for argument",
    "got an unexpected keyword argument",
    "got some positional-only arguments passed as keyword arguments",
    "takes no keyword arguments",
    "missing 1 required positional argument:",
    "missing a required argument:",
    "too many positional arguments",
    "positional arguments but",
    "object has no attribute",
    "type object has no attribute",
    "module has no attribute",
    "object does not support item assignment",
    "object does not support the context manager protocol",
    "unsupported operand type(s) for",
    "not supported between instances of",
    "argument must be a string, a bytes-like object or a real number, not",
    "object cannot be interpreted as an integer",
    "cannot import name from",
    "No module named",
    "is not defined",
    "division by zero",
    "list index out of range",
    "indices must be integers or slices, not",
    "attempt to assign sequence of size to extended slice of size",
    "is not implemented",
    "dictionary changed size during iteration",
    "not enough values to unpack (expected",
    "too many values to unpack (expected",
)
_PYTHON = frozenset(one for text in _OF_PYTHON for one in said_by.fingerprints(text))
# In checks of more sources than this three words in a row tell nothing.
_TELLING = 6
_WORD = re.compile(r"[^\W\d_]{2,}")
# Sources that have been read, by what they hold: most of a release is in the one before it, word for word.
_SOURCES: dict[tuple[int, int, bool], frozenset[tuple[str, str, str]]] = {}

# What is told by its fingerprints has no blank in them.
Row = tuple[str, str, str, str]  # fingerprints or a whole short sentence, file, function, kind
Said = tuple[str, str, str]  # the same without the file


def read(wheel: Wheel) -> frozenset[Row]:
    """The sentences of one release."""
    return frozenset(_rows(wheel))


def _rows(wheel: Wheel) -> Iterator[Row]:
    checked = {path: list(compiled.checks(text)) for path, text in wheel.files.items() if not path.endswith(".py")}
    # vLLM's own are told to be vLLM's however many kernels copy them
    common = _common(checked) if wheel.project != COMPILED else frozenset()
    for path, checks in checked.items():
        yield from ((told, path, function, kind) for told, function, kind in _compiled(checks, common))
    general = _general() if wheel.project != OWN else frozenset()
    for path, text in wheel.files.items():
        if path not in checked and not path.startswith(_LEFT_OUT) and any(sign in text for sign in _SIGNS):
            key = zlib.crc32(text.encode()), len(text), bool(general)
            if key not in _SOURCES:
                _SOURCES[key] = frozenset(_of_python(wheel.tree(path), general))
            yield from ((told, path, function, kind) for told, function, kind in _SOURCES[key])


@cache
def _general() -> frozenset[str]:
    """Three words in a row that four packages and more write: a library's sentence is not told by them alone."""
    return frozenset(one for text in _phrases() for one in said_by.fingerprints(text))


@cache
def _plain() -> frozenset[str]:
    """The words that are in many of them."""
    found = Counter(word.lower() for text in _phrases() for word in _WORD.findall(text))
    return frozenset(word for word, times in found.items() if times > _TELLING)


@cache
def _phrases() -> tuple[str, ...]:
    return tuple(json.loads(Path(__file__).with_name("general.json").read_text(encoding="utf-8")))


def _compiled(checks: Iterable[Raised], common: frozenset[str]) -> Iterator[Said]:
    for _, function, kind, sentence in checks:
        # what is long enough and told by nothing of its own is copied by every kernel
        whole = "" if said_by.told_by(sentence, texts.HOLE) else _whole(sentence)
        if prints := said_by.told_by(sentence, texts.HOLE, common) or whole:
            yield prints, function, kind


def _of_python(tree: ast.Module, general: frozenset[str]) -> Iterator[Said]:
    told: dict[tuple[str, str], list[str]] = {}
    answers = list(answered(tree))
    for _, function, kind, sentence in (*raised(tree), *answers):
        if prints := _told_by(sentence, general):
            told.setdefault((function, kind), []).append(prints)
            yield prints, function, kind
    for _, function, kind, sentence in (*raised_whole(tree), *answers):
        prints = said_by.told_by(sentence, texts.HOLE, general)
        here = frozenset(said_by.fingerprints(sentence, texts.HOLE))
        if not prints and (whole := _whole(sentence)):
            yield whole, function, kind
        # what was put together from names has no text of its own above
        elif not any(here.issuperset(_parts(one)) for one in told.get((function, kind), ())) and (
            prints := _told_by(sentence, general)
        ):
            yield prints, function, kind


def _told_by(sentence: str, general: frozenset[str]) -> str:
    """The fingerprints of a long sentence; empty for Python's own."""
    prints = said_by.told_by(sentence, texts.HOLE, general)
    return "" if _PYTHON.issuperset(_parts(prints)) else prints


def _parts(prints: str) -> list[str]:
    return [prints[i : i + 6] for i in range(0, len(prints), 6)]


def _whole(sentence: str) -> str:
    """A short sentence; empty for Python's own, and for one that has only words that everybody writes."""
    whole = "" if any(one in sentence for one in _OF_PYTHON) else whole_of(sentence, texts.HOLE)
    return "" if _plain().issuperset(map(str.lower, _WORD.findall(whole))) else whole


def _common(checked: dict[str, list[Raised]]) -> frozenset[str]:
    """Words that the checks of many sources begin with, or quote as their condition: they tell none of them."""
    found = Counter(
        one
        for checks in checked.values()
        for one in {one for check in checks for one in said_by.fingerprints(check.sentence, texts.HOLE)}
    )
    return frozenset(one for one, times in found.items() if times > _TELLING)


def merge(wheels: Iterable[Wheel], folder: Path = FOLDER) -> dict[str, int]:
    """Add these releases to their packages' tables, or read them once more; how many rows each table then has."""
    tables: dict[str, _Table] = {}
    for wheel in wheels:
        tables.setdefault(wheel.project, _Table(folder / f"{wheel.project}.json")).add(wheel)
    return {name: table.write(_source(name)) for name, table in tables.items()}


def _source(name: str) -> str:
    return _OF_SOURCES if name == COMPILED else _SOURCE.format("vLLM" if name == OWN else name)


class _Table:
    """One package's table as it grows."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._releases, self._lists, self._found = _load(file)

    def add(self, wheel: Wheel) -> None:
        """This release's rows, in place of those that it had before."""
        for held in self._found.values():
            held.discard(wheel.version)
        for row in read(wheel):
            self._found.setdefault(row, set()).add(wheel.version)
        self._releases = sorted({*self._releases, wheel.version}, key=as_version)

    def write(self, source: str) -> int:
        """Write it; how many rows it has."""
        lines = sorted(_lines(self._releases, {row: held for row, held in self._found.items() if held}))
        # What is listed keeps its place, so that rows of earlier releases stay as they are.
        lists = [
            [*known, *sorted({line[at] for line in lines}.difference(known))] for at, known in enumerate(self._lists, 1)
        ]
        places = [{name: str(i) for i, name in enumerate(names)} for names in lists]
        rows, short = ([_row(line, places) for line in lines if (" " in line[0]) is whole] for whole in (False, True))
        told = zip(
            ("releases", "files", "functions", "kinds", "rows", "short"),
            (self._releases, *lists, rows, short),
            strict=True,
        )
        parts = [json.dumps({"source": source})[1:-1], *(f"{json.dumps(name)}: {_listed(held)}" for name, held in told)]
        self._file.parent.mkdir(exist_ok=True)
        self._file.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")
        return len(lines)


def _row(line: tuple[str, ...], places: list[dict[str, str]]) -> str:
    """A line as the table has it; a whole sentence ends with a tab."""
    prints, *named, span = line
    numbers = (held[one] for held, one in zip(places, named, strict=True))
    return f"{prints}{chr(9) if ' ' in prints else ' '}{' '.join((*numbers, span))}"


def _listed(held: list[str]) -> str:
    return "[\n" + ",\n".join(json.dumps(one) for one in held) + "\n]"


def _lines(releases: list[str], found: dict[Row, set[str]]) -> Iterator[tuple[str, str, str, str, str]]:
    """A row for each unbroken run of releases that have a sentence there."""
    for row, held in found.items():
        start: int | None = None
        for at, version in enumerate([*releases, ""]):
            if version in held:
                start = at if start is None else start
            elif start is not None:
                yield (*row, f"{start}-" if at == len(releases) else f"{start}-{at - 1}")
                start = None


def _load(file: Path) -> tuple[list[str], list[list[str]], dict[Row, set[str]]]:
    if not file.is_file():
        return [], [[], [], []], {}
    told = json.loads(file.read_text(encoding="utf-8"))
    releases: list[str] = told["releases"]
    found: dict[Row, set[str]] = {}
    for line in (*told["rows"], *told.get("short", ())):
        prints, path, function, kind, span = line.replace("\t", " ").rsplit(" ", 4)
        first, _, last = span.partition("-")
        row = (prints, told["files"][int(path)], told["functions"][int(function)], told["kinds"][int(kind)])
        found.setdefault(row, set()).update(releases[int(first) : int(last) + 1 if last else None])
    return releases, [told["files"], told["functions"], told["kinds"]], found

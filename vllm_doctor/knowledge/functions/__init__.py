"""Where vLLM's functions stand in each release, and which releases changed them.

tools/releases/functions.py reads the wheels and describes the table.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from vllm_doctor.knowledge.pattern import compiled
from vllm_doctor.knowledge.version import Version, as_version

_FILE = Path(__file__).with_name("vllm.json")
_ROOT = "vllm/"
# So many places must be known, and so great a part of them stand where a release has them. Programs around vLLM and
# builds of one's own move a few; of three lines that no release wrote, two hardly fit one by chance.
_PLACES = 3
_AGREE = 0.8


class CodePlace(msgspec.Struct, frozen=True):
    """A line of a file that a log names, and the function around it; empty where vLLM's logger stamped its own."""

    file: str
    line: int
    function: str = ""


class InFunction(NamedTuple):
    """Where a place lies in a release's function: so many lines below the first of `Class.name` in a file of vLLM's."""

    file: str
    name: str
    below: int


class FunctionHistory(msgspec.Struct, frozen=True):
    """One function's body as a release has it.

    `since` is the release that brought this body, `before` the one ahead of it where the file was there with another
    body or without the function; None where the oldest release has it. `changed` is the first later release without
    this body, `gone` where that has no such function; None where the newest still has it.
    """

    name: str
    since: str | None
    before: str | None
    changed: str | None
    gone: bool


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    releases: tuple[str, ...]
    files: dict[str, str]


class _Body(msgspec.Struct, frozen=True):
    """Where a function stands in one content of a file; `body` counts its bodies."""

    first: int
    last: int
    body: int


class _Source(msgspec.Struct, frozen=True):
    """A file: the releases of each of its contents, the logger's lines, and its functions by content."""

    runs: tuple[tuple[int, int], ...]
    loggers: tuple[frozenset[int], ...]
    functions: dict[str, tuple[_Body | None, ...]]


def releases_of(places: Iterable[CodePlace]) -> tuple[str, ...]:
    """The releases that have their code where a log says it stands, oldest first; none where too little agrees."""
    votes: Counter[int] = Counter()
    known = 0
    for place in set(places):
        at = _standing(place)
        if at is not None:
            known += 1
            votes.update(at)
    most = max(votes.values(), default=0)
    if most < _PLACES or most < _AGREE * known:
        return ()
    return tuple(_table().releases[at] for at in sorted(at for at, count in votes.items() if count == most))


def last_with(calls: Iterable[tuple[str, str]]) -> str | None:
    """The last release that has all of these functions, each a file and its name, empty where the file alone counts.

    What no release has counts for nothing. None where the newest has them all, or no release does.
    """
    having = [at for file, function in set(calls) if (at := _having(file, function))]
    common = frozenset.intersection(*having) if having else frozenset()
    newest = len(_table().releases) - 1
    return _table().releases[max(common)] if common and newest not in common else None


def standing(place: CodePlace) -> tuple[str, ...]:
    """The releases that have their code where one place says it stands; none of a file that is not known."""
    return tuple(_table().releases[at] for at in sorted(_standing(place) or ()))


def history_of(place: CodePlace, version: Version) -> FunctionHistory | None:
    """What became of the function around a place; None where that release has none of its name there."""
    found = _around(place, version)
    return _history(*found) if found is not None else None


def in_function(place: CodePlace, version: Version) -> InFunction | None:
    """The function around a place, as that release has it; None where it has none of its name there."""
    path, found = _within(place.file), _around(place, version)
    if path is None or found is None:
        return None
    _, name, _, here = found
    return InFunction(path, name, place.line - here.first)


@cache
def files_of(function: str) -> tuple[str, ...]:
    """The files of vLLM's in which some release has a function of this name, outside of a class or in one."""
    named = (f";{function} ", f".{function} ", f"|{function} ")
    return tuple(path for path, told in _table().files.items() if any(one in told for one in named))


def _around(place: CodePlace, version: Version) -> tuple[_Source, str, int, _Body] | None:
    """The innermost function around a place: its file, its name, which content of the file, and where it stands."""
    path = _within(place.file)
    at = _release(version)
    source = _source(path) if path is not None else None
    if source is None or at is None:
        return None
    content = next((i for i, (first, last) in enumerate(source.runs) if first <= at <= last), None)
    if content is None:
        return None
    around = [
        (one.last - one.first, name, one)
        for name, bodies in source.functions.items()
        if (one := bodies[content]) is not None and _named(name, place.function) and one.first <= place.line <= one.last
    ]
    if not around:
        return None
    _, name, here = min(around, key=lambda one: one[0])
    return source, name, content, here


def last_releases(version: Version, count: int) -> tuple[str, ...]:
    """A release and those before it, so many in all; none of one that was not read."""
    at = _release(version)
    return _table().releases[max(0, at + 1 - count) : at + 1] if at is not None else ()


def changed_since(version: Version, files: str) -> tuple[int, int]:
    """Of how many releases after this one the code in files of this pattern (`/vllm/…`) is another than the one before,
    and how many releases there are; (0, 0) of a release that was not read."""
    at = _release(version)
    if at is None:
        return 0, 0
    found: set[int] = set()
    for path, told in _table().files.items():
        if compiled(files).search(f"/{_ROOT}{path}"):
            begins = (int(run.partition("-")[0]) for run in told.partition("|")[0].split(","))
            found.update(first for first in begins if first > at)
    return len(found), len(_table().releases) - at - 1


def _history(source: _Source, name: str, content: int, here: _Body) -> FunctionHistory:
    releases, bodies = _table().releases, source.functions[name]
    first, last = content, content
    while first > 0 and _follows(source, first) and _same(bodies[first - 1], here):
        first -= 1
    while last + 1 < len(bodies) and _follows(source, last + 1) and _same(bodies[last + 1], here):
        last += 1
    since, end = source.runs[first][0], source.runs[last][1]
    ended = last + 1 == len(bodies) or not _follows(source, last + 1)
    gone = end + 1 < len(releases) and (ended or bodies[last + 1] is None)
    return FunctionHistory(
        name.rstrip("'"),
        releases[since] if since else None,
        releases[since - 1] if first and _follows(source, first) else None,
        releases[end + 1] if end + 1 < len(releases) else None,
        gone,
    )


def _follows(source: _Source, content: int) -> bool:
    """Is there no release without the file between a content and the one before?"""
    return source.runs[content - 1][1] + 1 == source.runs[content][0]


def _same(one: _Body | None, other: _Body) -> bool:
    return one is not None and one.body == other.body


def _standing(place: CodePlace) -> frozenset[int] | None:
    """The releases that have it there; None where no release has such a file."""
    if not place.function:
        paths: Iterable[str] = _of_name().get(PurePosixPath(place.file).name, ())
        stamped = [path for path in paths if f"/{path}".endswith(f"/{place.file}")]
        return frozenset(at for path in stamped for at in _logging(path, place.line)) if stamped else None
    path = _within(place.file)
    source = _source(path) if path is not None else None
    if source is None:
        return None
    here = (bodies for name, bodies in source.functions.items() if _named(name, place.function))
    return frozenset(
        at
        for bodies in here
        for (first, last), one in zip(source.runs, bodies, strict=True)
        if one is not None and one.first <= place.line <= one.last
        for at in range(first, last + 1)
    )


def _having(file: str, function: str) -> frozenset[int]:
    """The releases that have a function in a file of vLLM's."""
    path = _within(file)
    source = _source(path) if path is not None else None
    if source is None:
        return frozenset()
    named = [bodies for name, bodies in source.functions.items() if function and _named(name, function)]
    return frozenset(
        at
        for content, (first, last) in enumerate(source.runs)
        if not function or any(bodies[content] is not None for bodies in named)
        for at in range(first, last + 1)
    )


def _logging(path: str, line: int) -> Iterator[int]:
    source = _source(path)
    for (first, last), lines in zip(source.runs, source.loggers, strict=True) if source is not None else ():
        if line in lines:
            yield from range(first, last + 1)


def _within(file: str) -> str | None:
    """`v1/engine/core.py` of the path that a log prints; None for what is not of vLLM."""
    _, found, path = f"/{file}".rpartition(f"/{_ROOT}")
    return path if found else None


def _named(name: str, function: str) -> bool:
    """Is `Class.name` what a traceback calls `name`? From Python 3.11 on some print the class too."""
    return f".{name}".rstrip("'").endswith(f".{function.rpartition('.')[2]}")


def _release(version: Version) -> int | None:
    """The place of a release; of one that was not read None."""
    return next((at for at, one in enumerate(_table().releases) if as_version(one) == version), None)


@cache
def _of_name() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for path in _table().files:
        found.setdefault(path.rpartition("/")[2], []).append(path)
    return {name: tuple(paths) for name, paths in found.items()}


@cache
def _source(path: str) -> _Source | None:
    told = _table().files.get(path)
    if told is None:
        return None
    runs, loggers, functions = told.split("|")
    held = (row.split(" ") for row in functions.split(";"))
    return _Source(
        tuple((int(first), int(last)) for first, _, last in (run.partition("-") for run in runs.split(","))),
        tuple(frozenset(_lines(row)) for row in loggers.split("/")),
        {name: tuple(_bodies(words)) for name, *words in held},
    )


def _lines(row: str) -> Iterator[int]:
    at = 0
    for distance in row.split(",") if row else ():
        at += int(distance)
        yield at


def _bodies(words: Iterable[str]) -> Iterator[_Body | None]:
    first = length = body = 0
    for word in words:
        if word == "-":
            yield None
            continue
        if word[0] in "@~":
            begins, _, lasts = word[1:].partition("+")
            first, length = int(begins), int(lasts)
            body += word[0] == "@"
        elif word != "=":
            first += int(word)
        yield _Body(first, first + length, body)


@cache
def _table() -> _Table:
    return msgspec.json.decode(_FILE.read_bytes(), type=_Table)

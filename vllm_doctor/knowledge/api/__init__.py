"""What programs take from vLLM by name: which releases have a module, a name of it, a member of a class, an argument.

tools/releases/api.py reads the wheels. What all releases have, or what lives exactly as long as its owner, is not in
the table: of that nothing is said.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from vllm_doctor.knowledge.version import Version, as_version

Kind = Literal["modules", "names", "members", "arguments", "required", "abstract", "v0"]
_FILE = Path(__file__).with_name("vllm.json")
_PACKAGE = "vllm"
_MANY = 2  # of more places than this none is the one that a name moved to


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """By owner `first-last,first- name name;first-last name`, by the releases' places; a run without a last goes on."""

    source: str
    releases: tuple[str, ...]
    modules: dict[str, str]
    names: dict[str, str]
    members: dict[str, str]
    arguments: dict[str, str]
    required: dict[str, str]
    abstract: dict[str, str]
    v0: dict[str, str]


class Lifetime(msgspec.Struct, frozen=True):
    """The releases that have a name: the first, the last, and whether it ended before the newest that is known."""

    first: str
    last: str
    ended: bool

    @property
    def told(self) -> str:
        """`0.3.0 to 0.9.2`, `0.12.0 and later`, `0.10.2 alone`."""
        if not self.ended:
            return f"{self.first} and later"
        return f"{self.first} alone" if self.first == self.last else f"{self.first} to {self.last}"


class Came(msgspec.Struct, frozen=True):
    """The release from which on something is asked of a program, and the one before it."""

    since: str
    before: str


class Lost(msgspec.Struct, frozen=True):
    """What its owner has no more, and from which release on."""

    name: str
    came: Came


def span(kind: Kind, owner: str, name: str, at: Version | None) -> Lifetime | None:
    """When vLLM has a name that it has not at a release; None where that is not known, or the release has it.

    Of an unknown release: where the name came, or went.
    """
    held = _runs(kind, owner, name)
    if not held or has(kind, owner, name, at):
        return None
    releases = _table().releases
    return Lifetime(releases[held[0][0]], releases[held[-1][1]], held[-1][1] < len(releases) - 1)


def has(kind: Kind, owner: str, name: str, at: Version | None) -> bool:
    """Is it known that a release has a name?"""
    return at is not None and _run_at(_runs(kind, owner, name), at) is not None


def has_method(owner: str, name: str, at: Version | None) -> bool:
    """Is it known that a class of a release has a method? Of an attribute that is only set in time it says nothing."""
    return has("members", owner, f"{name}()", at)


def since(kind: Kind, owner: str, name: str, at: Version | None) -> Came | None:
    """From which release on it is so at a release; None where it was so no more there, or in the oldest already."""
    held = _runs(kind, owner, name)
    run = _run_at(held, at) if at is not None else held[-1] if held else None
    releases = _table().releases
    if run is None and held and at is not None and at < _versions()[held[0][0]]:
        run = held[0]  # Python says that it is so: a development build on the way to that release
    return Came(releases[run[0]], releases[run[0] - 1]) if run is not None and run[0] > 0 else None


def went(kind: Kind, owner: str, at: Version | None) -> Lost | None:
    """What an owner lost last before a release, which has it no more."""
    releases = _table().releases
    ends = [
        (held[-1][1], name)
        for group in getattr(_table(), kind).get(owner, "").split(";")
        for name in group.split(" ")[1:]
        if (held := _runs(kind, owner, name)) and held[-1][1] < len(releases) - 1
        if not (at is not None and as_version(releases[held[-1][1]]) >= at)
    ]
    last, name = max(ends, default=(-1, ""))
    return Lost(name, Came(releases[last + 1], releases[last])) if name else None


def abstract(name: str, at: Version | None) -> Came | None:
    """From which release on a method is abstract at a release; None where classes that ask for it differ in that."""
    found = {since("abstract", owner, name, at) for owner in _owners("abstract", name)}
    known = [one for one in found if one is not None]
    return known[0] if len(known) == 1 else None


def passed(method: str, name: str, at: Version | None) -> Came | None:
    """From which release on a method of any class of vLLM's takes an argument."""
    owners = (one for one in _owners("arguments", name) if one.rpartition(".")[2] == method)
    found = [one for owner in owners if (one := since("arguments", owner, name, at)) is not None]
    return min(found, key=lambda one: as_version(one.since), default=None)


def is_argument(name: str) -> bool:
    """Does anything that programs call of vLLM take an argument of that name in any release?"""
    return next(_owners("arguments", name), None) is not None


def is_class(name: str) -> bool:
    """Is there a class of vLLM's of that name in any release?"""
    table = _table()
    return name in table.members or any(owner.partition(".")[0] == name for owner in table.arguments)


def module(name: str, at: Version | None) -> Lifetime | None:
    """When vLLM has a module."""
    return span("modules", _PACKAGE, name, at)


def moved(name: str, at: Version | None) -> tuple[str, ...]:
    """The modules in which a release, or else the newest, has a name; none where they are many."""
    found = tuple(owner for owner in _owners("names", name) if has("names", owner, name, at or _newest()))
    return found if len(found) <= _MANY else ()


def _newest() -> Version:
    return as_version(_table().releases[-1])


def _runs(kind: Kind, owner: str, name: str) -> list[tuple[int, int]]:
    """The places of the releases that have it, as unbroken runs; the last of an open one is the newest release's."""
    table = _table()
    for group in getattr(table, kind).get(owner, "").split(";"):
        told, *names = group.split(" ")
        if name in names or f"{name}()" in names:
            ends = (run.partition("-") for run in told.split(","))
            return [(int(first), int(last) if last else len(table.releases) - 1) for first, _, last in ends]
    return []


def _run_at(held: list[tuple[int, int]], at: Version) -> tuple[int, int] | None:
    """The run that a release is in; one that is newer than all is as the newest."""
    versions = _versions()
    at = min(at, versions[-1])
    return next((run for run in held if versions[run[0]] <= at <= versions[run[1]]), None)


def _owners(kind: Kind, name: str) -> Iterator[str]:
    for owner, row in getattr(_table(), kind).items():
        if name in row and any(name in group.split(" ")[1:] for group in row.split(";")):
            yield owner


@cache
def _versions() -> tuple[Version, ...]:
    return tuple(as_version(text) for text in _table().releases)


@cache
def _table() -> _Table:
    return msgspec.json.decode(_FILE.read_bytes(), type=_Table)

"""What programs take from vLLM by name: which releases have a module, a name of it, a member of a class, an argument.

tools/releases/api.py reads the wheels. What all releases have, or what lives exactly as long as its owner, is not in
the table: of that nothing is said.
"""

from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from vllm_doctor.knowledge.version import Version, as_version

Kind = Literal["modules", "names", "members", "arguments"]
_FILE = Path(__file__).with_name("vllm.json")
_PACKAGE = "vllm"


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """By owner `name:first-last,first-` of each name, by the releases' places; a run without a last one goes on."""

    source: str
    releases: tuple[str, ...]
    modules: dict[str, str]
    names: dict[str, str]
    members: dict[str, str]
    arguments: dict[str, str]


class Span(msgspec.Struct, frozen=True):
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


def span(kind: Kind, owner: str, name: str, at: Version | None) -> Span | None:
    """When vLLM has a name that it has not at a release; None where that is not known, or the release has it.

    Of an unknown release: where the name came, or went.
    """
    table = _table()
    row = getattr(table, kind).get(owner, "")
    told = next((one.partition(":")[2] for one in row.split(" ") if one.partition(":")[0] == name), "")
    if not told:
        return None
    ends = [run.partition("-") for run in told.split(",")]
    held = [(int(first), int(last) if last else len(table.releases) - 1) for first, _, last in ends]
    versions = [as_version(text) for text in table.releases]
    if at is not None and any(versions[a] <= at <= versions[b] for a, b in held):
        return None
    if at is not None and at > versions[-1] and not ends[-1][2]:
        return None
    return Span(table.releases[held[0][0]], table.releases[held[-1][1]], bool(ends[-1][2]))


def module(name: str, at: Version | None) -> Span | None:
    """When vLLM has a module."""
    return span("modules", _PACKAGE, name, at)


def moved(name: str) -> str | None:
    """The one module in which the newest release has a name; None where none or several have it."""
    found = [owner for owner, row in _table().names.items() if _has_now(row, name)]
    return found[0] if len(found) == 1 else None


def _has_now(row: str, name: str) -> bool:
    return any(one.endswith("-") for one in row.split(" ") if one.partition(":")[0] == name)


@cache
def _table() -> _Table:
    return msgspec.json.decode(_FILE.read_bytes(), type=_Table)

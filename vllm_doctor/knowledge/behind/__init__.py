"""Which option or variable is on where a line of vLLM's runs, as the source of its release has it.

tools/releases/behind.py reads the wheels and describes the table.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from vllm_doctor.knowledge.functions import InFunction
from vllm_doctor.knowledge.guards import Decider, decider
from vllm_doctor.knowledge.version import Version, as_version

_FILE = Path(__file__).with_name("vllm.json")
_WHOLE = "*"


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    releases: tuple[str, ...]
    conditions: tuple[str, ...]
    files: dict[str, str]


def behind(place: InFunction, version: Version) -> tuple[Decider, ...]:
    """What is on where a place runs: the test next to it first, those above the calls of its function last."""
    at = next((i for i, one in enumerate(_table().releases) if as_version(one) == version), None)
    told = _functions(place.file).get(place.name) if at is not None else None
    if told is None or at is None:
        return ()
    since = max((release for release in told if release <= at), default=None)
    rows = [row.partition(" ")[::2] for row in told[since].split(",")] if since is not None and told[since] else []
    inside = sorted((width, int(which)) for lines, which in rows if (width := _width(lines, place.below)) is not None)
    known = (decider(_table().conditions[which]) for _, which in inside)
    return tuple(dict.fromkeys(one for one in known if one is not None))


def _width(lines: str, below: int) -> float | None:
    """How many lines a test holds for; None where the place is in none of them."""
    if lines == _WHOLE:
        return float("inf")
    first, _, last = lines.partition("-")
    return int(last) - int(first) if int(first) <= below <= int(last) else None


@cache
def _functions(path: str) -> dict[str, dict[int, str]]:
    """Each function of a file: from which release on it has which rows."""
    told = _table().files.get(path, "")
    return {name: dict(_runs(runs)) for name, _, runs in (row.partition("\t") for row in told.split("\n") if row)}


def _runs(told: str) -> Iterator[tuple[int, str]]:
    for run in told.split("|"):
        since, _, rows = run.partition(":")
        yield int(since), rows


@cache
def _table() -> _Table:
    return msgspec.json.decode(_FILE.read_bytes(), type=_Table)

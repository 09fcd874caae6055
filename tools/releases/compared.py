"""Which releases of a known issue somebody has compared: what its failing line rests on in each, and which were read.

compared.json has of each entry `where` it fails in vLLM, the digest of what that rests on in runs of releases
(releases/failing.py; `-`: the place is not there), and which digests were `read` and fail. An entry claims a release
only where that reads as one that was read. `but` says why it begins or ends where the place alone does not show it;
`nowhere` why an entry has no place: another package, or compiled code, fails. `packages` has the same of each other
package that fails, in that package's own releases (releases/compared_packages.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from vllm_doctor.knowledge.known_issues import Issue
from vllm_doctor.knowledge.versions import as_version

FILE = Path(__file__).with_suffix(".json")
ABSENT = "-"


@dataclass(frozen=True)
class Compared:
    """Of one entry; `call` and `line` are patterns by which a person found the place, where its own do not."""

    where: str = ""
    call: str = ""
    line: str = ""
    bodies: str = ""
    read: str = ""
    but: str = ""
    nowhere: str = ""

    @property
    def found(self) -> Mapping[str, str]:
        """The patterns of a person's, as `place` takes them; empty where there are none."""
        return {"call": self.call, "line": self.line} if self.call else {}

    def digests(self, releases: Sequence[str]) -> dict[str, str]:
        """What the line rests on in each of the releases that were compared."""
        made = {}
        for run in filter(None, self.bodies.split(", ")):
            span, digest = run.split()
            first, _, last = span.partition("-")
            # By their places: a version does not tell a release from its post releases.
            made.update(dict.fromkeys(releases[releases.index(first) : releases.index(last or first) + 1], digest))
        return made


# The releases that were compared, oldest first, and what was found of each entry.
Table = tuple[tuple[str, ...], Mapping[str, Compared]]


@cache
def compared() -> Table:
    """Of vLLM's own code."""
    return _table(json.loads(FILE.read_text(encoding="utf-8")))


@cache
def compared_packages() -> Mapping[str, Table]:
    """Of each other package."""
    held = json.loads(FILE.read_text(encoding="utf-8"))
    return {name: _table(table) for name, table in held["packages"].items()}


def _table(held: Mapping[str, Any]) -> Table:
    return tuple(held["releases"]), {name: Compared(**row) for name, row in held["entries"].items()}


def runs(found: Mapping[str, str]) -> str:
    """Digests of releases that follow each other, as compared.json has them."""
    made: list[list[str]] = []
    for release, digest in found.items():
        if made and made[-1][2] == digest:
            made[-1][1] = release
        else:
            made.append([release, release, digest])
    return ", ".join(f"{first if first == last else f'{first}-{last}'} {digest}" for first, last, digest in made)


def write(vllm: Table, packages: Mapping[str, Table]) -> None:
    """A line for each entry."""
    parts = ",\n".join(f"  {json.dumps(name)}: {{{_written(*table)}}}" for name, table in sorted(packages.items()))
    FILE.write_text(f'{{{_written(*vllm)},\n "packages": {{\n{parts}\n}}}}\n', encoding="utf-8")


def _written(releases: Sequence[str], entries: Mapping[str, Compared]) -> str:
    rows = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps({k: v for k, v in vars(row).items() if v}, ensure_ascii=False)}"
        for name, row in entries.items()
    )
    return f'"releases": {json.dumps(list(releases))},\n "entries": {{\n{rows}\n}}'


def uncompared(one: Issue, row: Compared | None, releases: Sequence[str]) -> list[str]:
    """What an entry claims and nobody has compared; and releases beside its own that fail alike."""
    if row is None:
        return ["nobody has said where it fails; run: tools/known_issues.py compare SOURCES"]
    if row.nowhere:
        return []
    since, fixed = (as_version(bound) if bound is not None else None for bound in (one.since, one.fixed))
    met = [
        release
        for release in releases
        if (since is None or since <= as_version(release)) and (fixed is None or as_version(release) < fixed)
    ]
    digests, read = row.digests(releases), row.read.split()
    told = [f"{release}: nobody has compared it" for release in met if release not in digests]
    told += [
        f"{release}: nobody has read what it rests on there ({digests[release]})"
        for release in met
        if digests.get(release, ABSENT) != ABSENT and digests[release] not in read
    ]
    if row.but:
        return told
    there = [release for release in met if digests.get(release, ABSENT) != ABSENT]
    if not there:
        return [*told, "no release of it has the place where it fails"]
    # Without `since` an entry says nothing of when it began.
    first = as_version(met[0] if since is not None else there[0])
    absent = [release for release in met if digests.get(release) == ABSENT and as_version(release) >= first]
    told += [f"{release}: the place where it fails is not there" for release in absent]
    before = [release for release in releases if since is not None and as_version(release) < since]
    # What a proof shows of another file is why it ends.
    elsewhere = any(
        proof.of_code and not proof.package and proof.first == one.fixed and not row.where.startswith(f"{proof.file}:")
        for proof in one.proof
    )
    bounds = [release for release in releases if fixed is not None and as_version(release) >= fixed]
    after = [] if elsewhere else bounds
    alike = [release for release in (*before, *after) if digests.get(release) in read]
    return [*told, *(f"{release}: fails alike, beside its releases" for release in alike)]

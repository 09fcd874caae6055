"""Compare what the failing line of each known issue rests on in the releases that it is met in, and in those beside."""

from __future__ import annotations

import difflib
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from releases.compared import ABSENT, Compared, runs
from releases.failing_places import Release, digest, place, rests_on
from vllm_doctor.knowledge.known_issues import Issue
from vllm_doctor.knowledge.versions import as_version

# Releases before its first and from its end on: what tells that a span is too narrow.
_BESIDE = 2
_LEFT_OUT = "vllm/benchmarks/"


@dataclass(frozen=True)
class Found:
    """Where an entry fails in a release, and what its line rests on there."""

    calls: tuple[str, ...]
    text: str

    @property
    def digest(self) -> str:
        """Its short name."""
        return digest(self.text) or ABSENT


def compare(
    codes: Mapping[str, Path | zipfile.Path],
    entries: Collection[Issue],
    known: Mapping[str, Compared],
    releases: Sequence[str],
    package: str = "",
) -> dict[str, dict[str, Found]]:
    """Entry → release → what it rests on there, oldest first; of those of `releases` whose code is there: vLLM's, or
    each of another package, of which an entry has no span."""
    wanted = {one.id: releases if package else near(one, releases) for one in entries}
    found: dict[str, dict[str, Found]] = {one.id: {} for one in entries}
    before: Release | None = None
    for release in reversed(tuple(codes)):
        asked = [one for one in entries if release in wanted[one.id]]
        if not asked:
            continue
        before = Release(dict(_files(codes[release], package)), before)
        for one in asked:
            row = known.get(one.id, Compared())
            calls, text = rests_on(place(one, row.found), before)
            found[one.id][release] = Found(tuple(calls), text)
    return {name: dict(reversed(list(rows.items()))) for name, rows in found.items()}


def near(one: Issue, releases: Sequence[str]) -> list[str]:
    """The releases of an entry, and those just beside."""
    since, fixed = (as_version(bound) if bound is not None else None for bound in (one.since, one.fixed))
    before = [release for release in releases if since is not None and as_version(release) < since][-_BESIDE:]
    after = [release for release in releases if fixed is not None and as_version(release) >= fixed][:_BESIDE]
    inside = [
        release
        for release in releases
        if (since is None or since <= as_version(release)) and (fixed is None or as_version(release) < fixed)
    ]
    return [*before, *inside, *after]


def kept(row: Compared, found: Mapping[str, Found], releases: Sequence[str] = ()) -> Compared:
    """What is kept of it, beside what was kept of the `releases` that are not there now; bodies that no release has any
    longer were not read. Where a person said whose code fails, that stays."""
    if row.nowhere:
        return row
    both = {**row.digests(releases), **{release: one.digest for release, one in found.items()}}
    digests = {release: both[release] for release in (*releases, *both) if release in both}
    where = next((one.calls[0] for one in reversed(list(found.values())) if one.calls), row.where)
    read = " ".join(dict.fromkeys(one for one in row.read.split() if one in digests.values()))
    return replace(row, where=where, bodies=runs(digests), read=read)


def differences(found: Mapping[str, Found]) -> Iterator[str]:
    """How what a line rests on changed from one release to the next, to be read."""
    last: Found | None = None
    shown = ""
    for release, one in found.items():
        if last is not None and one.digest == last.digest:
            continue
        yield f"--- {release} {one.digest} {', '.join(one.calls)}"
        lines = one.text.splitlines()
        if shown and one.text:
            yield from list(difflib.unified_diff(shown.splitlines(), lines, lineterm="", n=0))[2:]
        else:
            yield from lines
        last, shown = one, one.text or shown


def _files(code: Path | zipfile.Path, package: str) -> Iterator[tuple[str, str]]:
    if isinstance(code, Path):
        # A folder may be linked to: its names are read from where it stands.
        real = code.resolve()
        every = ((path.relative_to(real).as_posix(), path) for path in sorted(real.rglob("*.py")))
        wanted = ((name, path) for name, path in every if _wanted(name, package))
        yield from ((name, path.read_text(encoding="utf-8", errors="replace")) for name, path in wanted)
        return
    for name in sorted(code.root.namelist()):
        if name.endswith(".py") and _wanted(name, package):
            yield name, (code / name).read_text(encoding="utf-8", errors="replace")


def _wanted(name: str, package: str) -> bool:
    return bool(package) or (name.startswith("vllm/") and not name.startswith(_LEFT_OUT))

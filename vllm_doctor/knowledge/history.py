"""What was known of a name from release to release: the reader of history/*.json.

Each name has a line of (release, what is known from it on); nothing stands for a release that has not got it. The
files are made from releases/ by tools/release.py. Standard library only, as compat.py.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from vllm_doctor.knowledge.version import Version, as_version

FOLDER = Path(__file__).with_name("history")

Record = Mapping[str, object]
_NOTHING: Record = {}


class ReleaseHistory:
    """One section of the releases' files: names, each with what was known of it and when that changed."""

    def __init__(self, releases: list[str], lines: Mapping[str, list[list[object]]]) -> None:
        self.texts = tuple(releases)
        self.releases = tuple(as_version(text) for text in releases)
        # A plan asks by the ten thousand: keys are compared as tuples, and a name's releases are numbered once.
        self._keys = [release.key for release in self.releases]
        self._index = {text: at for at, text in enumerate(releases)}
        self._lines = lines
        self._numbered: dict[str, tuple[list[int], list[object]]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._lines

    def names(self) -> tuple[str, ...]:
        """All names of any release."""
        return tuple(self._lines)

    def exists(self, name: str, at: Version) -> bool | None:
        """Has the release this name? None before the first release that was read, and between two that disagree;
        after the newest its answer stands."""
        here = self._before(at)
        if name not in self._lines:
            return False
        if here < 0:
            return None
        found = self._at(name, here) is not None
        if self.releases[here] == at or here == len(self.releases) - 1:
            return found
        return found if (self._at(name, here + 1) is not None) == found else None

    def value(self, name: str, at: Version) -> Record:
        """What is known of the name at a release: of the last one up to it that has the name, else of the first."""
        last: object = None
        here = self._before(at)
        for since, known in zip(*self._line(name), strict=True):
            if known is not None and (last is None or since <= here):
                last = known
        return last if isinstance(last, dict) else _NOTHING

    def values(self, name: str) -> Iterator[Record]:
        """Everything that was ever known of the name, oldest first."""
        yield from (known for _, known in self._lines.get(name, ()) if isinstance(known, dict))

    def text(self, name: str, at: Version) -> str | None:
        """The value of a name whose values are texts, at the release at or just below; None where it has none."""
        here = self._before(at)
        found = self._at(name, here) if here >= 0 else None
        return found if isinstance(found, str) else None

    def from_on(self, name: str, at: Version) -> list[str]:
        """The values of a name whose values are texts: at the release at or just below, then of those after it."""
        here = max(self._before(at), 0)
        found = (self._at(name, index) for index in range(here, len(self.releases)))
        return [text for text in found if isinstance(text, str)]

    def around(self, name: str, at: Version) -> tuple[str, ...] | None:
        """The values of a name whose values are texts, where the release was read: of it alone; between two that were:
        of both; after the newest: of that. None before the first, and where one of them has no such name."""
        here = self._before(at)
        if here < 0:
            return None
        near = {here} if self.releases[here] == at else {here, min(here + 1, len(self.releases) - 1)}
        found = tuple(text for text in (self._at(name, index) for index in sorted(near)) if isinstance(text, str))
        return found if len(found) == len(near) else None

    def exact(self, name: str, release: str) -> str | None:
        """As `text`, of the very release with this text (post releases apart); None for one that was not read."""
        found = self._at(name, self._index[release]) if release in self._index else None
        return found if isinstance(found, str) else None

    def span(self, name: str) -> tuple[str, str]:
        """The first and the last release that has the name."""
        line = self._lines[name]
        first = next(str(text) for text, known in line if known is not None)
        end, known = line[-1]
        return first, self.texts[-1] if known is not None else self.texts[self._index[str(end)] - 1]

    def _before(self, at: Version) -> int:
        return bisect_right(self._keys, at.key) - 1

    def _at(self, name: str, index: int) -> object:
        since, known = self._line(name)
        here = bisect_right(since, index) - 1
        return known[here] if here >= 0 else None

    def _line(self, name: str) -> tuple[list[int], list[object]]:
        """From which releases on something else is known of a name, by their places, and what."""
        found = self._numbered.get(name)
        if found is None:
            line = self._lines.get(name, ())
            found = [self._index[str(text)] for text, _ in line], [known for _, known in line]
            self._numbered[name] = found
        return found


@cache
def _file(name: str) -> Mapping[str, object]:
    loaded: dict[str, object] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


@cache
def history(file: str, section: str) -> ReleaseHistory:
    """A section of one of the files, read once."""
    releases, lines = _file(file)["releases"], _file(file)[section]
    if not isinstance(releases, list) or not isinstance(lines, dict):
        raise TypeError(f"history/{file}.json: {section} does not have its shape")
    return ReleaseHistory(releases, lines)


@cache
def beginning(file: str, section: str, start: str) -> ReleaseHistory:
    """The names of a file's one section that begin so. The rest of a large file is not taken apart: each name has a
    line of its own, and they are sorted (tools/releases/history.py)."""
    text = (FOLDER / f"{file}.json").read_text(encoding="utf-8")
    head, first = text.partition(f' "{section}": {{')[0], text.find(f'\n  "{start}')
    last = text.find("\n", text.rfind(f'\n  "{start}') + 1)
    lines = text[first:last].rstrip().rstrip(",") if first >= 0 else ""
    return ReleaseHistory(json.loads(f"{head.rstrip().rstrip(',')}}}")["releases"], json.loads(f"{{{lines}}}"))

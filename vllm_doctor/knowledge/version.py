"""A vLLM version: as vLLM logs it, in the order of its release numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from vllm_doctor.knowledge.pattern import Pattern

_VERSION = Pattern(
    r"\s{0,20}v?(\d{1,9}(?:\.\d{1,9}){0,50})\s{0,20}[-._]?\s{0,20}((?:a|b|rc|alpha|beta)\d{0,24})?(.*)",
    re.IGNORECASE | re.DOTALL | re.ASCII,
)


@dataclass(frozen=True)
class Version:
    """A vLLM version. Order and equality look at the release numbers alone: a development build of X.Y.Z behaves
    as X.Y.Z, and a local part ("+cpu", "+g1234") does not change the flags."""

    release: tuple[int, ...]
    text: str = field(compare=False, default="")
    prerelease: bool = field(compare=False, default=False)

    key: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Made once: a plan compares versions by the ten thousand.
        object.__setattr__(self, "key", (*self.release, 0, 0, 0, 0)[:4])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.key == other.key

    def __lt__(self, other: Version) -> bool:
        return self.key < other.key

    def __le__(self, other: Version) -> bool:
        return self.key <= other.key

    def __gt__(self, other: Version) -> bool:
        return self.key > other.key

    def __ge__(self, other: Version) -> bool:
        return self.key >= other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return ".".join(map(str, self.release))


@lru_cache(maxsize=1024)
def parse_version(text: str) -> Version | None:
    """Version of texts as vLLM logs them: 0.33.0, v0.10.1.1, 0.11.0rc2.dev12+g1a2b3c4, 0.19.0+cpu. None if there is
    none."""
    found = _VERSION.match(text)
    if not found:
        return None
    numbers = tuple(int(n) for n in found[1].split("."))
    if len(numbers) < 2 or len(numbers) > 4 or max(numbers) > 9999:
        return None
    rest = found[3] or ""
    return Version(numbers, text.strip(), bool(found[2]) or ".dev" in rest.split("+")[0])


# What setuptools-scm adds where the checkout was changed.
_BUILT = Pattern(r"\.d(\d{4})(\d\d)(\d\d)\s*\Z")


def built_on(text: str) -> str | None:
    """The day on which a build of a changed checkout was made, `2025-01-03` of 0.1.dev3896+ga491d6f.d20250103."""
    found = _BUILT.search(text)
    return "-".join(found.groups()) if found else None


# A whole release as PEP 440 writes it, what a person types; a log has more words behind its version.
_WRITTEN = Pattern(
    r"v?\d{1,4}(?:\.\d{1,4}){1,3}(?:(?:a|b|rc)\d{1,4})?(?:\.post\d{1,4})?(?:\.dev\d{1,6})?(?:\+[A-Za-z0-9][A-Za-z0-9.]{0,60})?",
    re.ASCII,
)


def is_written(text: str) -> bool:
    """Is this a version and nothing else, as one gives it to an option?"""
    return _WRITTEN.fullmatch(text) is not None


# A release as its tag has it, without a candidate's or a development build's mark.
_RELEASE = Pattern(r"\d{1,4}\.\d{1,4}\.\d{1,4}(?:\.post\d{1,4})?", re.ASCII)


def is_release(text: str) -> bool:
    """Is this a release's exact number, as an inventory pins one?"""
    return _RELEASE.fullmatch(text) is not None


def as_version(version: Version | str) -> Version:
    """The version itself, or the parsed text. Raises ValueError for a text that is no version."""
    if isinstance(version, Version):
        return version
    parsed = parse_version(version)
    if parsed is None:
        raise ValueError(f"not a vLLM version: {version!r}")
    return parsed

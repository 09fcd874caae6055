"""The hash locks of role vllm: what each says that it installs on. The lock owns that fact, not the wheel."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from vllm_doctor.knowledge.compat import numbers

_NAME = re.compile(r"(?P<version>\d[^+]*)\+(?P<variant>[^-]+)-(?P<machine>[^-]+)\.lock")
_HEAD = re.compile(
    r"^# installs on: (?P<machine>\S+), glibc (?P<glibc>\S+), Python (?P<pythons>[\d. ]+)$", re.MULTILINE
)


@dataclass(frozen=True)
class Lock:
    """One lock: a release's build for one architecture, the oldest glibc and the Pythons that all its wheels take."""

    version: str
    variant: str
    machine: str
    glibc: str
    pythons: tuple[str, ...]

    @property
    def build(self) -> str:
        """The release and its build, as people name them: `0.32.0+cu130`."""
        return f"{self.version}+{self.variant}"

    @property
    def name(self) -> str:
        """The lock's file, without its ending."""
        return f"{self.build}-{self.machine}"

    def takes(self, python: str) -> bool:
        """Whether it installs on this Python, `3.12` or `3.12.4`."""
        return numbers(python)[:2] in {numbers(one) for one in self.pythons}


def read(folder: Path) -> tuple[Lock, ...]:
    """All locks of a folder, oldest release first; a file without the line `# installs on:` is no lock of ours.

    Raises OSError where the folder cannot be read.
    """
    found = []
    for path in folder.glob("*.lock"):
        named = _NAME.fullmatch(path.name)
        with path.open(encoding="utf-8") as lines:
            head = _HEAD.search(lines.read(1000))
        if named is not None and head is not None:
            pythons = tuple(head["pythons"].split())
            found.append(Lock(named["version"], named["variant"], head["machine"], head["glibc"], pythons))
    return tuple(sorted(found, key=lambda lock: (numbers(lock.version), lock.variant, lock.machine)))


def nearest_version(wanted: str, versions: Iterable[str]) -> str | None:
    """The release to install instead of one without a lock: the nearest by its numbers, not by its letters."""

    def distance(version: str) -> list[int]:
        return [abs(one - other) for one, other in zip_longest(numbers(version), numbers(wanted), fillvalue=0)]

    return min(sorted(set(versions), key=numbers, reverse=True), key=distance, default=None)

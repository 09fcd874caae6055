"""What a hash lock pins: the packages that are installed, each with the digests of the files that it may come as."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

REPO = Path(__file__).resolve().parent.parent
DOCTOR = REPO / "roles" / "vllm_doctor" / "files" / "requirements.lock"
TOOLS = REPO / "tools" / "lock" / "dev.txt"
_PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)===?(?P<version>[^\s;\\]+)\s*(?:;\s*(?P<marker>[^\\]+?))?\s*\\?$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class Pin(NamedTuple):
    """One package of a lock."""

    name: str
    version: str
    marker: str | None
    sha256: tuple[str, ...]

    @property
    def public(self) -> str:
        """The version as advisories name it: without the build (`2.13.0+cpu`)."""
        return self.version.partition("+")[0]


def releases() -> list[Path]:
    """The locks of role vllm."""
    return sorted((REPO / "roles" / "vllm" / "files" / "locks").glob("*.lock"))


def pins(lock: Path) -> list[Pin]:
    """Read a lock that pip or uv wrote. Raises ValueError for a line that is no pin, or a pin without a hash."""
    found: list[Pin] = []
    for number, line in enumerate(lock.read_text(encoding="utf-8").splitlines(), 1):
        said = line.strip()
        if not said or said.startswith("#"):
            continue
        if hashes := _HASH.findall(said):
            found[-1] = found[-1]._replace(sha256=(*found[-1].sha256, *hashes))
        elif match := _PIN.match(said):
            found.append(Pin(match["name"].lower(), match["version"], match["marker"], ()))
        else:
            raise ValueError(f"{lock}:{number}: is no pinned package: {said}")
    if bare := [pin.name for pin in found if not pin.sha256]:
        raise ValueError(f"{lock}: without a hash: {', '.join(bare)}")
    return found

"""Libraries of the operating system that compiled modules load, and what brings each: system_libraries.json."""

import re
from functools import cache
from pathlib import Path

import msgspec


class SystemLibrary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`library` matches a file's name. `apt` and `dnf` are packages, empty where no package of the system brings it;
    `command` is then what to type."""

    library: str
    why: str
    apt: str = ""
    dnf: str = ""
    command: str = ""

    @property
    def typed(self) -> str:
        """What to type, for Debian's family with that of Red Hat beside it."""
        return self.command or f"apt-get install -y {self.apt}   # dnf install -y {self.dnf}"


@cache
def system_libraries() -> tuple[SystemLibrary, ...]:
    """All of them, as data."""
    text = Path(__file__).with_name("system_libraries.json").read_bytes()
    return msgspec.json.decode(text, type=tuple[SystemLibrary, ...])


def system_library(file: str) -> SystemLibrary | None:
    """What brings a library's file; None for one that is not known."""
    return next((one for one in system_libraries() if re.match(one.library, file)), None)

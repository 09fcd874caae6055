"""The files behind a unit's EnvironmentFile=, which systemd reads as root and never shows."""

import re
import shlex
from pathlib import Path

_MOST_BYTES = 1 << 16
_SHOWN = re.compile(r" \(ignore_errors=(?:yes|no)\)$")


def environment_files(shown: str) -> dict[str, str]:
    """What the files in `systemctl show`'s EnvironmentFiles assign; a file that may not be read assigns nothing."""
    assigned: dict[str, str] = {}
    for entry in shown.splitlines():
        path = Path(_SHOWN.sub("", entry.strip()))
        try:
            with path.open("rb") as file:
                text = file.read(_MOST_BYTES).decode(errors="replace")
        except OSError:
            continue
        for line in text.splitlines():
            assigned |= _assignment(line)
    return assigned


def _assignment(line: str) -> dict[str, str]:
    if line.lstrip().startswith(("#", ";")):
        return {}
    try:
        words = shlex.split(line)
    except ValueError:
        return {}
    name, equals, value = " ".join(words).partition("=")
    return {name: value} if equals and name.isidentifier() else {}

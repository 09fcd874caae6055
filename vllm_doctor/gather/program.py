"""The program that a unit starts: which part of its path is not there, and what beside it leads to the same program."""

import os
from pathlib import Path

from vllm_doctor.records.host import Program

# Releases and environments beside the one that is gone: nobody keeps more.
_MOST = 64


def gone(program: str) -> Program | None:
    """None where the program is there, or where nobody may look."""
    path = Path(program)
    if not path.is_absolute() or path.exists():
        return None
    missing = next((step for step in (*reversed(path.parents), path) if not step.exists()), path)
    rest = path.relative_to(missing)
    try:
        beside = [entry for entry in sorted(missing.parent.iterdir())[:_MOST] if entry != missing]
        below = [one for entry in beside if entry.is_dir() for one in sorted(entry.iterdir())[:_MOST]]
    except OSError:
        return Program(os.fspath(missing))
    whole = [one for one in (*beside, *below) if _starts(one / rest)]
    return Program(os.fspath(missing), tuple(dict.fromkeys(os.path.realpath(one) for one in whole)))


def _starts(program: Path) -> bool:
    try:
        return program.is_file() and os.access(program, os.X_OK)
    except OSError:
        return False

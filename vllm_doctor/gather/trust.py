"""Who can change a file before we use it? Only root, and whoever runs us, may be able to."""

import os
import re
import stat
from pathlib import Path

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_BETWEEN = re.compile("[:;]")


def why_not(path: str | os.PathLike[str]) -> str | None:
    """None for a path that nobody but root and we can change, else the reason.

    Every folder on the way counts; where one is sticky (/tmp), what lies in it and is not theirs stays as it is.
    """
    real = Path(os.path.realpath(path))
    for place in (real, *real.parents):
        try:
            found = place.stat()
        except OSError as problem:
            return f"{place}: {problem.strerror}"
        if found.st_uid not in {0, os.geteuid()}:
            return f"{place} belongs to user {found.st_uid}"
        sticky = place != real and found.st_mode & stat.S_ISVTX
        if found.st_mode & _OTHERS & ~_own_group(found) and not sticky:
            return f"{place} can be written by others (mode {stat.S_IMODE(found.st_mode):o})"
    return None


def _own_group(found: os.stat_result) -> int:
    """The right of the group, where the group is root's or the one that bears nobody but us."""
    return stat.S_IWGRP if found.st_gid == 0 or (os.geteuid() and found.st_gid == os.getegid()) else 0


def library_folders() -> list[str]:
    """The folders of LD_LIBRARY_PATH that only root and we can change, without links on the way."""
    real = [os.path.realpath(folder) for folder in _named() if why_not(folder) is None]
    return [folder for folder in real if not _BETWEEN.search(folder)]


def refused_folders() -> dict[str, str]:
    """The other folders of LD_LIBRARY_PATH, each with the reason."""
    reasons = {folder: why_not(folder) for folder in _named()}
    return {folder: why for folder, why in reasons.items() if why is not None}


def _named() -> list[str]:
    """To the loader an empty or relative entry is the folder we stand in: those are nobody's choice. `vllm-doctor`
    starts Python without the variable, and hands it on by another name."""
    named = os.environ.get("VLLM_DOCTOR_LIBRARIES") or os.environ.get("LD_LIBRARY_PATH", "")
    return [folder for folder in _BETWEEN.split(named) if folder.startswith("/")]

"""Who can change a file before we use it? Only root, and whoever runs us, may be able to."""

import os
import pwd
import re
import stat
from pathlib import Path

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_MOST_STEPS = 400
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


def closed_to(user: str, handle: int) -> bool:
    """May root, who opened this file by a name that `user` could choose, tell what `user` himself may not read?

    Told by owners and modes of the file and of every folder on the way, links resolved. A user without a name in the
    system's list (DynamicUser=) has what all others have.
    """
    try:
        known = pwd.getpwnam(user) if not user.isdecimal() else pwd.getpwuid(int(user))
        uid, groups = known.pw_uid, os.getgrouplist(known.pw_name, known.pw_gid)
    except (KeyError, OverflowError):
        uid, groups = int(user) if user.isdecimal() else -1, []
    if uid == 0:
        return False
    try:
        real = Path(os.readlink(f"/proc/self/fd/{handle}"))  # noqa: PTH115 - /proc's links are no paths
        ways = [(os.fstat(handle), 0o4), *((folder.stat(), 0o1) for folder in real.parents)]
    except OSError:
        return True
    return any(not _right(found, uid, groups) & needed for found, needed in ways)


def led_astray(name: str, handle: int) -> bool:
    """Did somebody's link (root's apart) lead to the file that was opened by `name`? Whatever stands there by now."""
    try:
        return os.readlink(f"/proc/self/fd/{handle}") != _by_roots_links(os.path.abspath(name))  # noqa: PTH100, PTH115
    except OSError:
        return True


def _by_roots_links(name: str) -> str:
    """Where the path leads by root's links alone."""
    at, rest = "/", [part for part in name.split("/") if part]
    for _ in range(_MOST_STEPS):
        if not rest:
            break
        step = os.path.join(at, rest.pop(0))  # noqa: PTH118
        found = os.lstat(step)
        if not stat.S_ISLNK(found.st_mode) or found.st_uid != 0:
            at = step
            continue
        target = os.path.normpath(os.path.join(at, os.readlink(step)))  # noqa: PTH115, PTH118
        at, rest = "/", [*(part for part in target.split("/") if part), *rest]
    return at


def _right(found: os.stat_result, uid: int, groups: list[int]) -> int:
    shift = 6 if found.st_uid == uid else 3 if found.st_gid in groups else 0
    return found.st_mode >> shift & 0o7


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

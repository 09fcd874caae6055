# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""One run at a time on a host: a file that names the run, and that counts for nothing once its lease is over.

The run renews it for as long as it lives (plugins/action/run_lock.py), so a restart of the host does not end it, and
a controller that lost its power does not hold the host for ever.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

FOLDER = "/var/lib/vllm-doctor-roles"
NAME = "run.json"
LEASE_S = 900


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let nobody else read or write the lock meanwhile; the folder is made where it is missing."""
    while True:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(here, fcntl.LOCK_EX)
            # A run that let go takes the folder with it where nothing else is in it.
            if not os.fstat(here).st_nlink:
                continue
            yield
        finally:
            os.close(here)
        return


def holder(folder: Path, now: float) -> dict[str, Any] | None:
    """The run that holds the host, with `ends_in`, the seconds that its lock lasts if nothing more is heard of it."""
    lock = folder / NAME
    try:
        ends_in = lock.stat().st_mtime + LEASE_S - now
        run = json.loads(lock.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    # A clock that was set back must not make a lock that lasts.
    known = isinstance(run, dict) and "run" in run and 0 < ends_in <= LEASE_S
    return {**run, "ends_in": round(ends_in)} if known else None


def take(mine: dict[str, Any], *, folder: Path, now: float, only_look: bool) -> dict[str, Any]:
    """Take the host for a run. `other` is the run that has it, if there is one; `taken` says whether it is new here."""
    if only_look:
        other = holder(folder, now)
        return {"other": None if other is None or other["run"] == mine["run"] else other, "taken": False}
    with alone(folder):
        other = holder(folder, now)
        if other is not None:
            return {"other": None if other["run"] == mine["run"] else other, "taken": False}
        new = folder / (NAME + ".new")
        with suppress(FileNotFoundError):
            new.unlink()
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(mine, file, sort_keys=True)
        os.utime(new, (now, now))
        new.replace(folder / NAME)
    return {"other": None, "taken": True}


def taken(mine: dict[str, Any], folder: str, *, only_look: bool) -> dict[str, Any]:
    """As `take`, by the clock of this host."""
    return take(mine, folder=Path(folder), now=time.time(), only_look=only_look)

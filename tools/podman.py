"""podman, called as every tool here must call it; what this checkout calls its own."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
REPO = TOOLS.parent
PODMAN = str(TOOLS / "bin" / "podman")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vllm-doctor"

# The same eight digits as inventories/sandbox and tools/hosttest compute: sha1 of the checkout's path.
PREFIX = "vd-" + hashlib.sha1(str(REPO).encode(), usedforsecurity=False).hexdigest()[:8]


class HostError(Exception):
    """Something that the person at the keyboard can put right; the message says how."""


def say(text: str) -> None:
    """Show progress on standard error, so that standard output stays for answers."""
    print(text, file=sys.stderr, flush=True)


def podman(*args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run podman; raise HostError with its own last words if it fails."""
    done = subprocess.run([PODMAN, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if check and done.returncode != 0:
        words = done.stderr.strip() or done.stdout.strip() or f"exit {done.returncode}"
        raise HostError(f"podman {args[0]} failed: {words}")
    return done


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Let one process at a time do what NAME stands for."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield

"""Runs a program of the host with a deadline, and leaves it behind when it does not end.

`subprocess.run(timeout=…)` kills the child and then waits for it without limit; a child in uninterruptible sleep (a
hung driver, a dead NFS server) never ends. Here the process group is killed and abandoned: nobody waits for it.
"""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO, TypeAlias

import msgspec

CHUNK = 1 << 16


class Ran(msgspec.Struct, frozen=True):
    """The program ended by itself. `cut` is true when it had more to say than was asked for."""

    code: int
    out: bytes
    err: str
    cut: bool = False


class NotRun(msgspec.Struct, frozen=True):
    """It could not be started, or did not end in time: then `pid` was left behind and `out` is what it had said."""

    reason: str
    missing: bool = False
    pid: int | None = None
    out: bytes = b""


Outcome: TypeAlias = Ran | NotRun


def run(
    argv: Sequence[str],
    *,
    deadline_s: float,
    max_bytes: int = 16 << 20,
    env: Mapping[str, str] | None = None,
) -> Outcome:
    """Run `argv` without a shell and with an English locale; `max_bytes` of output end it as well as `deadline_s`."""
    try:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, **(env or {}), "LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""},
        )
    except FileNotFoundError:
        return NotRun(f"{argv[0]} is not installed", missing=True)
    except OSError as refused:
        return NotRun(f"{argv[0]} could not be started: {refused.strerror}")
    if child.stdout is None or child.stderr is None:
        raise AssertionError("pipes were asked for")
    end = time.monotonic() + deadline_s
    out, err, ended = _drain(child.stdout, child.stderr, end, max_bytes)
    # Closed pipes are mostly the end of the program, which a busy machine may take a while to tell.
    code = _code(child, max(end, time.monotonic() + 0.2)) if ended else None
    if code is None and len(out) >= max_bytes:
        _kill(child)
        return Ran(0, out, err, cut=True)
    if code is None:
        _kill(child)
        return NotRun(f"{argv[0]} did not answer within {deadline_s:g} s", pid=child.pid, out=out)
    return Ran(code, out, err)


def _drain(out: IO[bytes], err: IO[bytes], end: float, max_bytes: int) -> tuple[bytes, str, bool]:
    """What both pipes say until they close (True), the deadline or the size limit (False)."""
    parts: dict[int, list[bytes]] = {out.fileno(): [], err.fileno(): []}
    size = 0
    with selectors.DefaultSelector() as open_pipes:
        open_pipes.register(out, selectors.EVENT_READ)
        open_pipes.register(err, selectors.EVENT_READ)
        while open_pipes.get_map() and size < max_bytes:
            ready = open_pipes.select(max(0.0, end - time.monotonic()))
            if not ready:
                break
            for key, _ in ready:
                piece = os.read(key.fd, CHUNK)
                if not piece:
                    open_pipes.unregister(key.fileobj)
                parts[key.fd].append(piece)
                size += len(piece)
        ended = not open_pipes.get_map()
    said = b"".join(parts[out.fileno()]), b"".join(parts[err.fileno()]).decode(errors="replace")
    out.close()
    err.close()
    return said[0], said[1], ended


def _code(child: subprocess.Popen[bytes], end: float) -> int | None:
    """The exit code of a child whose pipes are closed; None if it lives on regardless."""
    while (code := child.poll()) is None and time.monotonic() < end:
        time.sleep(0.002)
    return code


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill the whole process group and do not wait: a process in uninterruptible sleep would keep us here."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
    child.poll()

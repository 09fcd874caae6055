"""Starts processes; the only place that does. They get a deadline, and no say of the folder or the shell we stand in.

The doctor is run as root, wherever one happens to stand. So a program is looked up on a fixed path and starts in `/`
with an environment of its own; a Python module of ours starts isolated (`-I`): `-m` alone would look into the current
folder first. tests/meta/test_processes.py forbids any other way to start one.

`subprocess.run(timeout=…)` kills the child and then waits for it without limit; a child in uninterruptible sleep (a
hung driver, a dead NFS server) never ends. Here the process group is killed and abandoned: nobody waits for it.
"""

import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, TypeAlias

import msgspec

from vllm_doctor.gather import trust

CHUNK = 1 << 16
# What sudo and systemd look through; the caller's PATH may hold `.` or a folder that others write.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENVIRONMENT = {"LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}


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


ProgramOutcome: TypeAlias = Ran | NotRun


def python(
    module: str,
    *arguments: str,
    deadline_s: float,
    stdin: bytes = b"",
    max_bytes: int = 16 << 20,
    memory_bytes: int | None = None,
) -> ProgramOutcome:
    """Run a module of this package in an interpreter of its own: for what may hang, crash, or compute for ever.

    A thread cannot be given a deadline against work of the processor; this can. The interpreter takes 20 ms to start.
    """
    found = trust.library_folders()
    env = {"LD_LIBRARY_PATH": ":".join(found)} if found else {}
    return run(
        [sys.executable, "-I", "-m", module, *arguments],
        deadline_s=deadline_s,
        stdin=stdin,
        max_bytes=max_bytes,
        memory_bytes=memory_bytes,
        env=env,
    )


def run(
    argv: Sequence[str],
    *,
    deadline_s: float,
    max_bytes: int = 16 << 20,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    memory_bytes: int | None = None,
) -> ProgramOutcome:
    """Run `argv` without a shell and with an English locale; `max_bytes` of output end it as well as `deadline_s`.

    The program is an absolute path or a name on `PATH`. Of the caller's environment it gets nothing; `env` is added
    to what it needs to say plain English. `memory_bytes` bounds its address space.
    """
    if "/" in argv[0] and not argv[0].startswith("/"):
        raise ValueError(f"{argv[0]}: needed: an absolute path, or a name to look up")
    given = _file_of(stdin) if stdin else subprocess.DEVNULL
    try:
        child = subprocess.Popen(
            list(argv),
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
            env={"PATH": PATH, **(env or {}), **_ENVIRONMENT},
        )
    except FileNotFoundError:
        return NotRun(f"{argv[0]} is not installed", missing=True)
    except OSError as refused:
        return NotRun(f"{argv[0]} could not be started: {refused.strerror}")
    finally:
        if given >= 0:
            os.close(given)
    if memory_bytes is not None:
        with suppress(ProcessLookupError):
            resource.prlimit(child.pid, resource.RLIMIT_AS, (memory_bytes, memory_bytes))
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


def _file_of(data: bytes) -> int:
    """A file that is nowhere and holds this: a pipe would have to be fed while the output is read."""
    file = os.memfd_create("stdin")
    with os.fdopen(os.dup(file), "wb") as out:
        out.write(data)
    os.lseek(file, 0, os.SEEK_SET)
    return file


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

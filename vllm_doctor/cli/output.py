"""The file that is named with --output: what it may replace, asked before any work is done."""

import errno
import os
import shlex
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from vllm_doctor.cli.command_line import STDIN
from vllm_doctor.cli.errors import UsageProblem

_OF_PROMETHEUS = b"# HELP vllm_doctor_"


def unwritten(target: str, problem: OSError) -> UsageProblem:
    """Why the file was not written, and what to do; one that stood there is as it was."""
    full = problem.errno in {errno.ENOSPC, errno.EDQUOT}
    advice = (
        f"free space there (df {shlex.quote(str(Path(target).parent))})" if full else "name a file that you may write"
    )
    return UsageProblem(f"--output {target}: {problem.strerror}: {advice}")


def settle(target: str, *, force: bool, reads: Iterable[tuple[str, str | None]] = (), refreshed: bool = False) -> str:
    """The path to write, links followed. Raises UsageProblem for one that must not be replaced.

    `reads` are the options that name a file to read: none of them is ever replaced. Other files that hold something are
    replaced with `force` only. `refreshed`: the file is meant to be written again and again (node_exporter's text
    file), so one that we wrote is ours.
    """
    with suppress(OSError):
        link = Path(target).lstat()
        if stat.S_ISLNK(link.st_mode) and link.st_uid not in {0, os.geteuid()}:
            raise UsageProblem(f"--output {target}: is a link that user {link.st_uid} made: name a file")
    try:
        there = Path(target).stat()
    except OSError:
        return os.path.realpath(target)
    if not stat.S_ISREG(there.st_mode):
        return target
    for option, name in reads:
        if name is not None and _same(name, there):
            raise UsageProblem(f"--output {target}: {option} {name} reads it: name another file")
    if there.st_size and not force and not (refreshed and _ours(target)):
        size = f"{there.st_size:,} bytes"
        raise UsageProblem(f"--output {target}: exists ({size}): name another file, or replace it with --force")
    return os.path.realpath(target)


def _same(name: str, there: os.stat_result) -> bool:
    try:
        read = os.fstat(sys.stdin.fileno()) if name == STDIN else Path(name).stat()
    except (OSError, ValueError):
        return False
    return os.path.samestat(read, there)


def _ours(target: str) -> bool:
    try:
        with Path(target).open("rb") as file:
            return file.read(len(_OF_PROMETHEUS)) == _OF_PROMETHEUS
    except OSError:
        return False

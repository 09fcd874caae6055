"""One run of a playbook on the controller: who plays it, and how its hosts are released when it is over.

A playbook has no task that is played after a failure, Ctrl-C or a kill. So each host that a run has taken gets a
keeper: a fork of the task that took it, with the task's own connection. It waits on a pipe whose other end the run's
process holds, and which the kernel closes with that process.
"""

import atexit
import getpass
import math
import os
import select
import shlex
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from types import FrameType
from typing import Any, Protocol
from uuid import uuid4

FOLDER = "/var/lib/vllm-doctor-roles"
LEASE_S = 900  # as in plugins/module_utils/run_lock.py, which cannot import this
RENEW_S = 120  # several may be lost, as in a restart of the host
TRY_S = 30
AGAIN_S = 10
WAIT_S = 10  # of the run at its end, for keepers that let go


@dataclass(frozen=True)
class PlaybookRun:
    """Who plays what, since when; `run` tells it from every other run."""

    run: str
    playbook: str
    who: str
    process: int
    since: str

    def plain(self) -> dict[str, object]:
        """As a lock has it."""
        return asdict(self)


@dataclass(frozen=True)
class _Pipes:
    """Both ends of two pipes: the run's process holds `lives`, its keepers hold `kept`; each waits for the other's."""

    over: int
    lives: int
    released: int
    kept: int


# Only what this run has taken is renewed or removed, and only while nobody else reads or writes it, as in the module.
_MINE = "cd {folder} 2>/dev/null || exit 0; exec flock . sh -c 'grep -qs {run} run.json || exit 0; {deed}'"
_RENEW, _RELEASE = "touch -c run.json", 'rm -f run.json; rmdir "$PWD" 2>/dev/null || true'

_begun: tuple[PlaybookRun, _Pipes] | None = None


def begin(playbook: str) -> None:
    """Called in the run's own process, before any task is forked from it; once, however many playbooks it plays."""
    global _begun  # noqa: PLW0603
    if _begun is not None:
        return
    since = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    who = f"{os.environ.get('SUDO_USER') or _user()}@{socket.gethostname()}"
    _begun = PlaybookRun(uuid4().hex, playbook, who, os.getpid(), since), _Pipes(*os.pipe(), *os.pipe())
    atexit.register(_end)


def current() -> PlaybookRun | None:
    """The run that this process is, or is a task of."""
    return _begun[0] if _begun else None


def keep(shell: Callable[[str], int], folder: str, *, every: float = RENEW_S) -> None:
    """Have a host's lock renewed while the run lives, and removed when it is over.

    `shell` runs a script on the host as root, and gives its exit status.
    """
    if _begun is None or os.fork() != 0:
        return
    try:
        run, pipes = _begun
        _detach({pipes.over, pipes.kept})
        mine = partial(_MINE.format, folder=shlex.quote(folder), run=run.run)
        renew, release = partial(_well, shell, mine(deed=_RENEW)), partial(_well, shell, mine(deed=_RELEASE))
        _watch(pipes, renew, release, every)
    finally:
        os._exit(0)


class HostTask(Protocol):
    """What is asked of a task of Ansible's (its ActionBase), which this package never imports."""

    _display: Any

    def _low_level_execute_command(self, cmd: str, *, sudoable: bool) -> dict[str, Any]: ...


def shell_of(task: HostTask) -> Callable[[str], int]:
    """What runs a script on the host over the task's own connection; it shows nothing, as the run may have ended."""

    def shell(script: str) -> int:
        task._display.verbosity = 0  # noqa: SLF001
        return int(task._low_level_execute_command(script, sudoable=True)["rc"])  # noqa: SLF001

    return shell


def said(other: Mapping[str, object]) -> str:
    """Name a run that has a host."""
    return f"{other.get('playbook')} of {other.get('who')}, process {other.get('process')}, since {other.get('since')}"


def way_out(other: Mapping[str, object]) -> str:
    """What to do about a run that has a host."""
    minutes = math.ceil(float(str(other.get("ends_in") or 0)) / 60)
    file = f"{FOLDER}/run.json"
    return f"wait for its end; if that process is gone, its lock ends in {minutes} min, or now with `rm {file}` there"


def _end() -> None:
    """Wait until the hosts are released, so that whoever plays next finds them free; not for a host that is lost."""
    if _begun is None or os.getpid() != _begun[0].process:
        return
    pipes = _begun[1]
    os.close(pipes.lives)
    os.close(pipes.kept)
    with suppress(KeyboardInterrupt):
        select.select([pipes.released], [], [], WAIT_S)


def _detach(needed: set[int]) -> None:
    """Leave the task's session and let go of all that it had open: nobody waits for a keeper to end."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/dev/fd"):  # noqa: PTH208
        if int(name) not in {*needed, nothing}:
            with suppress(OSError):  # what listed them is closed by now
                os.fstat(int(name))
                # Taken, not closed: an object of the task must not close what gets its number.
                os.dup2(nothing, int(name))


def _watch(pipes: _Pipes, renew: Callable[[], bool], release: Callable[[], bool], every: float) -> None:
    until = time.monotonic() + LEASE_S
    while not select.select([pipes.over], [], [], every)[0]:
        if renew():
            until = time.monotonic() + LEASE_S
    while not release():
        with suppress(OSError):
            os.close(pipes.kept)
        if time.monotonic() > until:  # the lock has ended by itself
            return
        time.sleep(AGAIN_S)


def _well(shell: Callable[[str], int], script: str) -> bool:
    """Whether a script ended well; a host that hangs is as one that does not answer."""

    def hangs(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, hangs)
    signal.alarm(TRY_S)
    try:
        return shell(script) == 0
    except Exception:  # noqa: BLE001
        return False
    finally:
        signal.alarm(0)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return str(os.getuid())

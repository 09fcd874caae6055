"""What one command may take of the machine, whatever it was given: processor time and memory, held by the kernel.

Every reader has its own bounds; this is the last one, over the judging and the rendering too. The processes that a
command starts are counted each for itself, and a reading of one unit has less (`gather.worker`). `tune` is left alone:
its load tools work for minutes, and it reads nothing that strangers wrote; so are `guard`, whose unit
bounds it, and those
that wait for a start or for a person.
"""

import resource
import signal
from collections.abc import Sequence
from functools import partial

# A bundle of 140,000 lines, the largest honest input that was tried, takes 4 s on an idle processor.
SECONDS = 12
# Of what is written to (heap, threads' stacks); with what is only read of libraries it stays below 300 MiB.
BYTES = 280 << 20
# After SECONDS the kernel reminds us every second; one that computes without hearing it is killed so much later.
_DEAF_S = 2
_FREE = ("tune", "guard", "recover", "debug", "watch", "--version")
# It redacts all that each unit of the host wrote: 8,000 lines take 3 s on a busy machine.
_LONG = {"bundle": 60}


class OutOfTimeError(BaseException):
    """The processor time is spent; its text says how much that was.

    No `except Exception` on the way may take it for a failure of its own.
    """


def hold(argv: Sequence[str]) -> None:
    """Bound this process from here on; a lower limit of the user's own (`ulimit -t`, `-d`) stays."""
    command = argv[0] if argv else ""
    if command in _FREE:
        return
    seconds = _LONG.get(command, SECONDS)
    signal.signal(signal.SIGXCPU, partial(_spent, seconds))
    _lower(resource.RLIMIT_CPU, seconds, seconds + _DEAF_S)
    _lower(resource.RLIMIT_DATA, BYTES, resource.RLIM_INFINITY)


def _lower(what: int, soft: int, hard: int) -> None:
    now = resource.getrlimit(what)
    least = [min((one for one in pair if one != resource.RLIM_INFINITY), default=resource.RLIM_INFINITY)
             for pair in zip((soft, hard), now, strict=True)]  # fmt: skip
    resource.setrlimit(what, (least[0], least[1]))


def _spent(seconds: int, *_: object) -> None:
    raise OutOfTimeError(f"{seconds} s of processor time")

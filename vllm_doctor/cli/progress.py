"""What a person waits for: a line on the terminal once a second has passed, gone when the answer comes."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_AFTER_S, _EVERY_S = 1.0, 0.5


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say `what` and for how long, on a terminal alone. An alarm does it: a thread would forbid the readings' forks."""
    if not sys.stderr.isatty() or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
        yield
        return
    began = time.monotonic()
    said = False

    def tell(_signal: int, _frame: FrameType | None) -> None:
        nonlocal said
        said = True
        sys.stderr.write(f"\r\x1b[2K{what} ({time.monotonic() - began:.0f} s)")
        sys.stderr.flush()

    signal.signal(signal.SIGALRM, tell)
    signal.setitimer(signal.ITIMER_REAL, _AFTER_S, _EVERY_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        if said:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()

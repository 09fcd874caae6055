"""Work in a copy of this process, which the kernel ends: a search of `re` cannot be stopped from outside."""

import os
import signal
from collections.abc import Callable


def said_within(work: Callable[[int], None], patience_s: float) -> tuple[str, bool]:
    """What `work` writes to the descriptor that it is given, and whether it was ended after `patience_s` of processor
    time, or broke."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_PROF, patience_s)
            work(writing)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        text = told.read().decode()
    return text, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0

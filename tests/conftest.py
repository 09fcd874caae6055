"""Each test begins in the same surroundings, whoever starts it."""

import gc
import os
import signal
import threading
from socketserver import TCPServer

import pytest

# readline, which pytest loads, tells its width to every process that it starts; a reader's shell may do the same.
# What the doctor prints is laid out for such a width, and the tests hold it as it is without.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)

# A shell without job control starts `make test &` with Ctrl-C ignored, and every child inherits that: tests that press
# it would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Collecting makes millions of objects that all stay, and the garbage collector walks them again and again.
def pytest_configure() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()  # nothing is frozen yet: tests ask it for all objects that it knows


def pytest_unconfigure() -> None:
    gc.freeze()  # the process ends: Python would walk them all three times more


def spinning() -> list[str]:
    """Servers whose socket was closed while their loop goes on: it turns without end, and takes a processor."""
    found = []
    for thread in threading.enumerate():
        server = getattr(getattr(thread, "_target", None), "__self__", None)
        if isinstance(server, TCPServer) and server.socket.fileno() == -1:
            thread.join(2)  # one that was told to end is about to
            if thread.is_alive():
                found.append(str(server.RequestHandlerClass))
                server.shutdown()  # the files after it are not to blame
    return found


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The servers of one file took ten minutes of processors, in the name of the files after it."""
    if nextitem is None or nextitem.path != item.path:
        assert spinning() == [], "call shutdown() before server_close()"

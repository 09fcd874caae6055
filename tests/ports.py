"""Ports for programs that must be told theirs before they listen."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

# Below those that the kernel gives to who asks for any: a port that was asked for and let go may be given again before
# the program listens on it.
CHOICE = range(20000, 32768)
_given: set[int] = set()


def unused() -> int:
    """A port of 127.0.0.1 that nobody listens on; none is given twice."""
    for port in random.sample(CHOICE, k=200):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port
    raise OSError(f"no port of {CHOICE} is free")

"""Log lines in the form of the release: (APIServer pid=1) INFO 11-22 10:00:00 [file.py:1] text."""

from __future__ import annotations

import os
import sys
import time


class Log:
    """The log of one process; `name` as vLLM calls it."""

    def __init__(self, name: str) -> None:
        self.name, self.pid = name, os.getpid()

    def write(self, level: str, place: str, text: str) -> None:
        """One message; each of its lines with the prefix, as vLLM's formatter does."""
        prefix = f"({self.name} pid={self.pid}) {level} {time.strftime('%m-%d %H:%M:%S')} [{place}] "
        sys.stdout.write("".join(f"{prefix}{line}\n" for line in text.splitlines()))
        sys.stdout.flush()

    def info(self, place: str, text: str) -> None:
        """An INFO line."""
        self.write("INFO", place, text)

    def error(self, place: str, text: str) -> None:
        """An ERROR line."""
        self.write("ERROR", place, text)

    def uvicorn(self, text: str) -> None:
        """What uvicorn writes, which has no time of its own."""
        sys.stdout.write(f"({self.name} pid={self.pid}) INFO:     {text}\n")
        sys.stdout.flush()

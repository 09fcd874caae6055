"""A process that has collected every test once: a bug is tried in a fork of it, so it costs its tests alone.

A bug in what runs as a module is imported has to be there from the start: that is told (`ELSEWHERE`), and it is tried
in a process that has imported nothing.
"""

import json
import os
import signal
import tempfile
from pathlib import Path

import pytest

from tests.mutants.covered import COLLECTED, everything
from tests.mutants.put_in import OnlyByImportError, put_in

PASSED, FAILED, ELSEWHERE = 0, 1, 77


class Served:
    """The other end: asked with a bug and its tests, it tells how the fork that tried them ended."""

    def __init__(self) -> None:
        asks, self._asks = os.pipe()
        self._told, tells = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._asks)
            os.close(self._told)
            _serve(asks, tells)
        os.close(asks)
        os.close(tells)
        self._answers = os.fdopen(self._told)

    def status(self, path: Path, number: int, tests: list[str], clock: int) -> int:
        """As `os.waitstatus_to_exitcode` has it. Raises EOFError where the process has ended."""
        os.write(self._asks, (json.dumps([str(path), number, tests, clock]) + "\n").encode())
        answer = self._answers.readline()
        if not answer:
            raise EOFError
        return int(answer)

    def close(self) -> None:
        os.close(self._asks)
        os.waitpid(self.pid, 0)


def begin(clock: int, for_ever: int) -> None:
    """In the fork of a bug: it ends by itself, and writes to nobody."""
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (for_ever, for_ever))
    signal.alarm(clock)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


# Seconds of the processor after which a bug goes on for ever; a busy machine does not make them more.
FOR_EVER = 180


class _Bugs:
    """Instead of running the tests: answers what is asked."""

    def __init__(self, asks: int, tells: int) -> None:
        self._asks, self._tells = asks, tells

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            return True  # a file that cannot be collected would make every bug look caught
        everything()
        items = {item.nodeid: item for item in session.items}
        with os.fdopen(self._asks) as asks:
            for line in asks:
                path, number, tests, clock = json.loads(line)
                code = self._tried(session, Path(path), number, [items[t] for t in tests if t in items], clock)
                os.write(self._tells, f"{code}\n".encode())
        return True

    def _tried(self, session: pytest.Session, path: Path, number: int, items: list[pytest.Item], clock: int) -> int:
        child = os.fork()
        if child == 0:
            begin(clock, FOR_EVER)
            code = FAILED
            try:
                with tempfile.TemporaryDirectory() as folder:
                    put_in(path, number, Path(folder))
                    code = _run(session, items)
            except OnlyByImportError:
                code = ELSEWHERE
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run(session: pytest.Session, items: list[pytest.Item]) -> int:
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return FAILED
    return PASSED


def _serve(asks: int, tells: int) -> None:
    try:
        pytest.main(["-q", "-s", "-p", "no:cacheprovider", *COLLECTED], plugins=[_Bugs(asks, tells)])
    finally:
        os._exit(0)

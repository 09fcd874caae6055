"""`pytest -p tests.dearest` ends with the test files that took most of the processors, what they started included."""

import os
from collections import Counter

import pytest

SHOWN = 25
_files: Counter[str] = Counter()
_now = ["", 0.0]  # the file whose tests run, and what was used when the first of them began


def _used() -> float:
    """Seconds of processors of this process, and of those that it started and that ended."""
    return sum(os.times()[:4])


def _count(file: str) -> None:
    """Another file begins: what was used since the last one began is the last one's."""
    used = _used()
    _files[str(_now[0])] += used - _now[1]  # type: ignore[assignment,operator]
    _now[:] = file, used


def pytest_runtest_logstart(nodeid: str) -> None:
    """Once a test and no more: what is done here is done 32,000 times."""
    file = nodeid.partition("::")[0]
    if file != _now[0]:
        _count(file)


def pytest_sessionfinish() -> None:
    _count("")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    _files.pop("", None)  # what was used before the first test
    terminalreporter.section(f"processors: {sum(_files.values()):.0f} s in all, the dearest files")
    for name, seconds in _files.most_common(SHOWN):
        terminalreporter.write_line(f"{seconds:8.1f} s  {name}")

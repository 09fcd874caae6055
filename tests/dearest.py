"""`pytest -p tests.dearest` ends with the test files that took most of the processors, what they started included."""

import os
from collections import Counter
from collections.abc import Generator

import pytest

SHOWN = 25
_began = pytest.StashKey[float]()
_files: Counter[str] = Counter()


def _used() -> float:
    """Seconds of processors of this process, and of those that it started and that ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_began] = _used()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport]:
    """The last report of a test says what it took; a worker's reports come to the main process whole."""
    report = yield
    if call.when == "teardown":
        report.processors = _used() - item.stash.get(_began, _used())
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _files[report.nodeid.partition("::")[0]] += getattr(report, "processors", 0.0)  # type: ignore[assignment]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section(f"processors: {sum(_files.values()):.0f} s in all, the dearest files")
    for name, seconds in _files.most_common(SHOWN):
        terminalreporter.write_line(f"{seconds:8.1f} s  {name}")

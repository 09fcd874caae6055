"""Which tests run which line: one run of the tests under coverage, a context each test; kept in build/mutants."""

import json
import os
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import coverage
import pytest
from coverage.numbits import numbits_to_nums

REPO = Path(__file__).resolve().parents[2]
KEPT = REPO / "build" / "mutants"
# Folders of tests that hold a number: none needs a host. Left out beside the others are those that ask one thing of
# every scenario again, which the approved answers say.
TESTS = ("approved", "gather", "launch", "log", "plan", "remedy", "rules")
LEFT_OUT = ("tests/rules/test_runs.py", "tests/rules/test_wordings.py")
# Slower than this, a test is asked only where no other runs a line: seconds of the processor, its children's too.
SLOW = 6.0
# With more failures than these the tree is broken, and no bug would be seen.
MAY_FAIL = 3


class _Contexts:
    """Tells coverage which test runs, and how long it takes."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self.measured = measured
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> object:
        self.measured.switch_context(item.nodeid)
        before = _spent()
        result = yield
        self.seconds[item.nodeid] = _spent() - before
        self.measured.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)


def _spent() -> float:
    """Seconds of the processor until now: a busy machine does not make them more, as it does those of a clock."""
    return sum(os.times()[:4])


def measure(only: Sequence[str] = ()) -> None:
    """Run the tests once and keep what each of them touches; with `only`, those files' beside what was kept before.

    A test that fails without any bug is never asked: one of many is named (a busy machine is enough for that). Raises
    SystemExit where more fail, or none can be collected."""
    KEPT.mkdir(parents=True, exist_ok=True)
    data = KEPT / "coverage"
    if not only:
        data.unlink(missing_ok=True)
    measured = coverage.Coverage(data_file=str(data), source_pkgs=["vllm_doctor"], config_file=False)
    if only:
        measured.load()
    contexts = _Contexts(measured)
    measured.start()
    others = [folder for folder in (REPO / "tests").iterdir() if folder.is_dir() and folder.name not in TESTS]
    ignored = [f"--ignore={path}" for path in (*others, *LEFT_OUT)]
    asked = only or (*ignored, str(REPO / "tests"))
    code = pytest.main(["-q", "-p", "no:cacheprovider", *asked], plugins=[contexts])
    measured.stop()
    measured.save()
    before = seconds() if only else {}
    asked_again = {test: took for test, took in contexts.seconds.items() if test not in contexts.failed}
    (KEPT / "seconds.json").write_text(json.dumps({**before, **asked_again}), encoding="utf-8")
    if code not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED} or len(contexts.failed) > MAY_FAIL:
        raise SystemExit("tests fail without any bug; see above")
    for test in sorted(contexts.failed):
        print(f"fails without any bug, and is not asked: {test}")


def lines() -> dict[str, dict[int, list[str]]]:
    """By file (relative to the repository) and line: the tests that run it, of those that pass."""
    passed = seconds()
    found: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    with sqlite3.connect(KEPT / "coverage") as base:
        rows = base.execute(
            "select path, context, numbits from line_bits "
            "join file on file.id = file_id join context on context.id = context_id"
        )
        for path, context, bits in rows:
            if context in passed:
                of_file = found[str(Path(path).relative_to(REPO))]
                for number in numbits_to_nums(bits):
                    of_file[number].append(context)
    return found


def seconds() -> dict[str, float]:
    """What each test took under coverage, seconds of the processor."""
    read: dict[str, float] = json.loads((KEPT / "seconds.json").read_text(encoding="utf-8"))
    return read

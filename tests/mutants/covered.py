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


class _Contexts:
    """Tells coverage which test runs, and how long it takes."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self.measured = measured
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> object:
        self.measured.switch_context(item.nodeid)
        before = _spent()
        result = yield
        self.seconds[item.nodeid] = _spent() - before
        self.measured.switch_context("")
        return result


def _spent() -> float:
    """Seconds of the processor until now: a busy machine does not make them more, as it does those of a clock."""
    return sum(os.times()[:4])


def measure(only: Sequence[str] = ()) -> None:
    """Run the tests once and keep what each of them touches; with `only`, those files' beside what was kept before.
    Raises SystemExit where one fails."""
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
    if code != pytest.ExitCode.OK:
        raise SystemExit("tests fail without any bug; see above")
    before = seconds() if only else {}
    (KEPT / "seconds.json").write_text(json.dumps({**before, **contexts.seconds}), encoding="utf-8")


def lines() -> dict[str, dict[int, list[str]]]:
    """By file (relative to the repository) and line: the tests that run it."""
    found: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    with sqlite3.connect(KEPT / "coverage") as base:
        rows = base.execute(
            "select path, context, numbits from line_bits "
            "join file on file.id = file_id join context on context.id = context_id"
        )
        for path, context, bits in rows:
            if context:
                of_file = found[str(Path(path).relative_to(REPO))]
                for number in numbits_to_nums(bits):
                    of_file[number].append(context)
    return found


def seconds() -> dict[str, float]:
    """What each test took under coverage, seconds of the processor."""
    read: dict[str, float] = json.loads((KEPT / "seconds.json").read_text(encoding="utf-8"))
    return read

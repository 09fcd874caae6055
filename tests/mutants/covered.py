"""Which tests run which block: one run of the tests with a note at the head of each block; kept in build/mutants.

What is kept is used again while neither the tool nor its tests change: `make mutants` then asks at once.
"""

import functools
import gc
import hashlib
import importlib
import json
import os
import pkgutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.blocks import Noting, block_of

REPO = Path(__file__).resolve().parents[2]
KEPT = REPO / "build" / "mutants"
ROOMS = ("rules", "remedy", "plan", "gather")  # folders of vllm_doctor
# Folders of tests that hold a number: none needs a host. Left out beside the others are those that ask one thing of
# every scenario again, which the approved answers say.
TESTS = ("approved", "gather", "plan", "remedy", "rules")
LEFT_OUT = ("tests/rules/test_runs.py", "tests/rules/test_wordings.py")
COLLECTED = (*(f"--ignore={path}" for path in LEFT_OUT), *(f"tests/{folder}" for folder in TESTS))
# What one test computed and another would look up: that other one would not be known to run it. Of the tests' own
# caches those two hold answers; the others hold what was given.
_ROOMS = tuple(f"vllm_doctor.{room}" for room in ROOMS)
_ANSWERS = {"tests.scenarios.loading.diagnosis", "tests.scenarios.loading.snapshot"}
# Slower than this, a test is asked only where no other runs a line: seconds of the processor, its children's too.
SLOW = 6.0
# With more failures than these the tree is broken, and no bug would be seen.
MAY_FAIL = 3


class _Notes:
    """Writes a line a test: what it took, and the blocks that it ran; each block has a number."""

    def __init__(self, noting: Noting, file: Path) -> None:
        self.noting, self.file = noting, file
        self.caches: list[Any] = []
        self.numbers: dict[tuple[str, int], int] = {}
        self.failed: set[str] = set()

    def pytest_collection_finish(self) -> None:
        self.caches = [
            one
            for one in gc.get_objects()
            if isinstance(one, functools._lru_cache_wrapper)
            and (one.__module__.startswith(_ROOMS) or f"{one.__module__}.{one.__qualname__}" in _ANSWERS)
        ]
        everything()
        (KEPT / "collected.json").write_text(json.dumps(sorted(self.noting.began)), encoding="utf-8")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> object:
        for cached in self.caches:
            cached.cache_clear()
        self.noting.began.clear()
        before = _spent()
        result = yield
        spent = _spent() - before
        new = {one: len(self.numbers) + at for at, one in enumerate(self.noting.began - self.numbers.keys())}
        self.numbers.update(new)
        if item.nodeid not in self.failed:
            numbers = [self.numbers[one] for one in self.noting.began]
            told = [item.nodeid, round(spent, 3), numbers, [[*one, at] for one, at in new.items()]]
        else:
            told = [item.nodeid, None, [], [[*one, at] for one, at in new.items()]]
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(told, separators=(",", ":")) + "\n")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)


def everything() -> None:
    """Import each module of the rooms."""
    for room in _ROOMS:
        package = importlib.import_module(room)
        for found in pkgutil.walk_packages(package.__path__, f"{room}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)


def _spent() -> float:
    """Seconds of the processor until now: a busy machine does not make them more, as it does those of a clock."""
    return sum(os.times()[:4])


def tree() -> str:
    """What the tool and its tests are now."""
    told = hashlib.sha256()
    for folder in ("vllm_doctor", "tests"):
        for path in sorted((REPO / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and "mutants" not in path.parts:
                told.update(str(path.relative_to(REPO)).encode() + b"\0" + path.read_bytes())
    return told.hexdigest()


def kept() -> bool:
    """Was this very tree measured, to the end?"""
    whole = KEPT / "tree"
    return whole.is_file() and whole.read_text() == tree()


def measure(only: Sequence[str] = ()) -> None:
    """Run the tests once and keep what each of them touches; with `only`, those tests' beside what was kept before.

    A test that fails without any bug is never asked: one of many is named (a busy machine is enough for that). Raises
    SystemExit where more fail, or none can be collected."""
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / "tree").unlink(missing_ok=True)
    for old in () if only else KEPT.glob("*.jsonl"):
        old.unlink()
    noting = Noting(REPO, ROOMS)
    noting.put_in()
    notes, before = _Notes(noting, KEPT / f"blocks-{len(list(KEPT.glob('*.jsonl')))}.jsonl"), tree()
    code = pytest.main(["-q", "-p", "no:cacheprovider", *(only or COLLECTED)], plugins=[notes])
    if code not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED} or len(notes.failed) > MAY_FAIL:
        raise SystemExit("tests fail without any bug; see above")
    for test in sorted(notes.failed):
        print(f"fails without any bug, and is not asked: {test}")
    if not only:
        (KEPT / "tree").write_text(before)


class Covered:
    """What was kept: by test its seconds and how many blocks it runs, by file and block its tests."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.widths: dict[str, int] = {}
        self._of: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        self._blocks: dict[str, Mapping[int, int]] = {}
        told = json.loads((KEPT / "collected.json").read_text(encoding="utf-8"))
        self._collected = {(path, block) for path, block in told}
        for path in sorted(KEPT.glob("*.jsonl")):
            self._read(path)

    def _read(self, kept: Path) -> None:
        where: dict[int, tuple[str, int]] = {}
        for line in kept.read_text(encoding="utf-8").splitlines():
            test, seconds, numbers, new = json.loads(line)
            where.update({number: (path, block) for path, block, number in new})
            if seconds is not None:
                self.seconds[test], self.widths[test] = seconds, len(numbers)
                for number in numbers:
                    path, block = where[number]
                    self._of[path][block].append(test)

    def files(self) -> list[str]:
        """Every file of which a test runs anything, relative to the repository."""
        return list(self._of)

    def of_file(self, path: str) -> set[str]:
        """The tests that run anything of a file."""
        return {test for tests in self._of.get(path, {}).values() for test in tests}

    def _block(self, path: str, line: int) -> int | None:
        if path not in self._blocks:
            self._blocks[path] = block_of((REPO / path).read_text(encoding="utf-8"))
        return self._blocks[path].get(line)

    def of_line(self, path: str, line: int) -> list[str]:
        """The tests that run a line of a function; none of what runs as the module is imported."""
        block = self._block(path, line)
        return self._of.get(path, {}).get(block, []) if block is not None else []

    def by_collecting(self, path: str, line: int) -> bool:
        """Does a line run before any test does: as modules are imported, or tests collected?"""
        block = self._block(path, line)
        return block is None or (path, block) in self._collected

"""`make mutants`: small bugs put into the rooms that make numbers, one at a time; which of them does no test see?

A sample by seed, each bug in a fork of this process: the module's changed tree takes its place as it is imported, and
the tests that run its line are asked, the quickest first. Exit status 1 where fewer are caught than --least says.
"""

import argparse
import collections
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mutants import covered, typed
from tests.mutants.covered import Covered
from tests.mutants.mutate import Mutant, mutant, sites
from tests.mutants.put_in import put_in
from tests.mutants.served import ELSEWHERE, FOR_EVER, PASSED, Served, begin

REPO = covered.REPO
ROOMS = covered.ROOMS
# Of the tests that run a line, so many seconds of them are asked.
ENOUGH = 60.0
# And of these so many of the tests that run the fewest lines of the package: a line that everything runs is held by
# the test of its own module.
NARROW = 12.0
_CODE = re.compile(r"vd\d{3}(?=_)")
_CAUGHT, _REFUSED, _SURVIVED, _UNCOVERED = "caught", "refused by the types", "survived", "no test runs it"
# The clock ran out before the tests did: of the bug nothing is known.
_UNDECIDED = "undecided"


# Tests and the type check both stand before a landing.
_SEEN = (_CAUGHT, _REFUSED)


class Bug(NamedTuple):
    """A place for a bug: room, file, and which of the file's changes."""

    room: str
    path: Path
    number: int


def places(rooms: tuple[str, ...]) -> dict[str, list[Bug]]:
    """Every bug that can be made, by room."""
    found: dict[str, list[Bug]] = {}
    for room in rooms:
        files = sorted((REPO / "vllm_doctor" / room).rglob("*.py"))
        found[room] = [Bug(room, f, n) for f in files for n in range(len(sites(f.read_text(encoding="utf-8"))))]
    return found


def asked(
    tests: list[str], bug: Bug, seconds: dict[str, float], widths: Mapping[str, int], enough: float = ENOUGH
) -> list[str]:
    """The tests to ask: the rule's own approved answers, the narrowest tests, all other answers, the room's tests, the
    rest; the quick first. `widths` says how many lines of the package each test runs.

    Approved answers stand before the room's tests because they hold the most figures: of a line that everything runs
    the room's tests alone take longer than is spent on one bug."""
    code = _CODE.match(bug.path.name)
    near = {"approved": 1, bug.room: 2}

    def rank(test: str) -> tuple[int, float, str]:
        own = code is not None and code[0].upper() in test
        return 0 if own else near.get(test.split("/")[1], 3), seconds.get(test, 0.1), test

    rank_of = sorted(set(tests), key=rank)
    quick = [t for t in rank_of if seconds.get(t, 0.1) < covered.SLOW] or rank_of[:1]
    narrow: list[str] = []
    for test in sorted(quick, key=lambda test: (widths[test], test)):
        if sum(seconds.get(t, 0.1) for t in (*narrow, test)) > NARROW:
            break
        narrow.append(test)
    own = [test for test in quick if rank(test)[0] == 0]
    chosen, spent = [], 0.0
    for test in dict.fromkeys((*own, *narrow, *quick)):
        spent += seconds.get(test, 0.1)
        if spent > enough and chosen:
            break
        chosen.append(test)
    return chosen


def verdict(served: Served, bug: Bug, tests: list[str], clock: int, *, early: bool) -> str:
    """Is the bug seen by one of the tests? A child that dies, or goes on for ever, saw it too; of one that was stopped
    by the clock, after so many seconds, nothing is said."""
    if not tests:
        return _UNCOVERED
    code = ELSEWHERE if early else served.status(bug.path, bug.number, tests, clock)
    if code == ELSEWHERE:
        child = os.fork()
        if child == 0:
            _child(bug, tests, clock)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {PASSED: _SURVIVED, -signal.SIGALRM: _UNDECIDED}.get(code, _CAUGHT)


def _child(bug: Bug, tests: list[str], clock: int) -> None:
    begin(clock, FOR_EVER)
    try:
        with tempfile.TemporaryDirectory() as folder:
            put_in(bug.path, bug.number, Path(folder))
            code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests])
    except BaseException:  # noqa: BLE001 - the bug broke even the collecting of tests
        code = 1
    os._exit(0 if code == pytest.ExitCode.OK else 1)


def _running(bug: Bug, line: int, of: Covered) -> list[str]:
    """The tests that run a line. What runs as the module is imported is credited to none: then whoever runs anything of
    the module or imports it by its name is asked; of one that holds nothing but data, whoever runs anything of a module
    that imports it."""
    path = str(bug.path.relative_to(REPO))
    if found := of.of_line(path, line):
        return list(found)
    files = _reading(bug)
    reading = {test for test in of.seconds if test.partition("::")[0] in files}
    return sorted(of.of_file(path) | reading) or _importing(bug, of) or _starting(bug, of)


def _reading(bug: Bug) -> set[str]:
    """The files of tests that import a module by its name: a test may read its tables and run nothing of it."""
    above, _, name = ".".join(bug.path.relative_to(REPO).with_suffix("").parts).rpartition(".")
    imports = re.compile(rf"from {above}\.{name} import|from {above} import [^\n]*\b{name}\b")
    files = (path for folder in covered.TESTS for path in (REPO / "tests" / folder).rglob("test_*.py"))
    return {str(path.relative_to(REPO)) for path in files if imports.search(path.read_text(encoding="utf-8"))}


def _importing(bug: Bug, of: Covered) -> list[str]:
    above, _, name = ".".join(bug.path.relative_to(REPO).with_suffix("").parts).rpartition(".")
    imports = re.compile(rf"from {above}\.{name} import|from {above} import [^\n]*\b{name}\b")
    named = [file for file in of.files() if imports.search((REPO / file).read_text(encoding="utf-8"))]
    return sorted({test for file in named for test in of.of_file(file)})


def _starting(bug: Bug, of: Covered) -> list[str]:
    """The tests that run a line which names this module: of one that is run in an interpreter of its own."""
    name = f'"{".".join(bug.path.relative_to(REPO).with_suffix("").parts)}"'
    found: set[str] = set()
    for file in of.files():
        for number, text in enumerate((REPO / file).read_text(encoding="utf-8").splitlines(), 1):
            found.update(of.of_line(file, number) if name in text else ())
    return sorted(found)


def _warm() -> None:
    """Import what is not ours, so that each child need not."""
    import hypothesis
    import jsonschema
    import msgspec
    import rich.console
    import typer
    import urllib3
    import yaml

    assert all((hypothesis, jsonschema, msgspec, rich.console, typer, urllib3, yaml))
    ours = [name for name in sys.modules if name.partition(".")[0] == "vllm_doctor"]
    assert not ours, f"already imported, so no bug could be put in: {ours}"


def main() -> int:
    """Exit status: 0, or 1 where too few bugs were caught."""
    asked_for = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    asked_for.add_argument("--rooms", default=",".join(ROOMS))
    asked_for.add_argument("--each", type=int, default=110, help="bugs in each room (default %(default)s)")
    asked_for.add_argument("--seed", type=int, default=1)
    asked_for.add_argument("--minutes", type=float, default=60.0, help="begin no other bug after so many")
    asked_for.add_argument(
        "--clock", type=int, default=600, help="seconds after which a bug is given up (default %(default)s)"
    )
    asked_for.add_argument(
        "--enough", type=float, default=ENOUGH, help="seconds of tests for a bug (default %(default)s)"
    )
    asked_for.add_argument("--least", type=float, default=0.85, help="share to be caught (default %(default)s)")
    asked_for.add_argument("--file", default="", help="only files whose path holds this")
    asked_for.add_argument("--again", action="store_true", help="use the coverage of the run before")
    o = asked_for.parse_args()
    if not o.again and not covered.kept() and os.waitstatus_to_exitcode(os.waitpid(_measuring(), 0)[1]) != 0:
        return 2
    served = Served()
    _warm()
    tried = _tried(o, served)
    served.close()
    return _report(o, tried)


def _measuring() -> int:
    child = os.fork()
    if child == 0:
        try:
            covered.measure()
        except SystemExit as told:
            print(told, file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return child


def _tried(o: argparse.Namespace, served: Served) -> list[tuple[Bug, Mutant, str]]:
    of = Covered()
    chance, end = random.Random(o.seed), time.monotonic() + o.minutes * 60
    drawn = []
    for bugs in places(tuple(o.rooms.split(","))).values():
        fit = [b for b in bugs if o.file in str(b.path)]
        drawn += chance.sample(fit, min(o.each, len(fit)))
    chance.shuffle(drawn)
    tried = []
    for bug in drawn:
        if time.monotonic() > end:
            break
        source = bug.path.read_text(encoding="utf-8")
        changed = mutant(source, sites(source)[bug.number])
        tests = _running(bug, changed.line, of)
        early = of.by_collecting(str(bug.path.relative_to(REPO)), changed.line)
        told = verdict(served, bug, asked(tests, bug, of.seconds, of.widths, o.enough), o.clock, early=early)
        if told in {_SURVIVED, _UNCOVERED} and typed.refuses(bug.path, changed):
            told = _REFUSED
        tried.append((bug, changed, told))
        if told not in _SEEN:
            print(f"{len(tried)}: {told}: {bug.path.relative_to(REPO)}:{changed.line}: {changed.what}", flush=True)
    return tried


def _report(o: argparse.Namespace, tried: list[tuple[Bug, Mutant, str]]) -> int:
    for room in dict.fromkeys(bug.room for bug, _, _ in tried):
        count = collections.Counter(told for bug, _, told in tried if bug.room == room)
        print(f"{room}: {_told(count)}")
    whole = collections.Counter(told for _, _, told in tried)
    decided = len(tried) - whole[_UNDECIDED]
    share = sum(whole[one] for one in _SEEN) / decided if decided else 0.0
    print(f"all: {_told(whole)}; seed {o.seed}, at most {o.each} a room")
    return 0 if share >= o.least else 1


def _told(count: "collections.Counter[str]") -> str:
    decided = count.total() - count[_UNDECIDED]
    seen, every = sum(count[one] for one in _SEEN), max(1, decided)
    undecided = f"; {count[_UNDECIDED]} undecided" if count[_UNDECIDED] else ""
    return (
        f"{seen} of {decided} seen ({seen / every:.0%}): "
        f"{count[_CAUGHT]} by tests ({count[_CAUGHT] / every:.0%}), "
        f"{count[_REFUSED]} by the types; {count[_SURVIVED]} survived, {count[_UNCOVERED]} no test runs{undecided}"
    )


if __name__ == "__main__":
    sys.exit(main())

"""`make mutants`: small bugs put into the rooms that make numbers, one at a time; which of them does no test see?

A sample by seed, each bug in a fork of this process: the module's changed tree takes its place as it is imported, and
the tests that run its line are asked, the quickest first. Exit status 1 where fewer are caught than --least says.
"""

import argparse
import ast
import collections
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mutants import covered, typed
from tests.mutants.mutate import Mutant, mutant, sites
from tests.mutants.put_in import put_in

REPO = covered.REPO
ROOMS = ("rules", "remedy", "plan", "gather")  # folders of vllm_doctor
# Of the tests that run a line, so many seconds of them are asked.
ENOUGH = 60.0
# And of these so many of the tests that run the fewest lines of the package: a line that everything runs is held by
# the test of its own module.
NARROW = 12.0
# Seconds of the processor after which a bug goes on for ever; a busy machine does not make them more.
FOR_EVER = 180
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


def asked(tests: list[str], bug: Bug, seconds: dict[str, float], widths: Mapping[str, int]) -> list[str]:
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
        if spent > ENOUGH and chosen:
            break
        chosen.append(test)
    return chosen


def verdict(bug: Bug, tests: list[str], clock: int) -> str:
    """Is the bug seen by one of the tests? A child that dies, or goes on for ever, saw it too; of one that was stopped
    by the clock, after so many seconds, nothing is said."""
    if not tests:
        return _UNCOVERED
    child = os.fork()
    if child == 0:
        _child(bug, tests, clock)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return {0: _SURVIVED, -signal.SIGALRM: _UNDECIDED}.get(code, _CAUGHT)


def _child(bug: Bug, tests: list[str], clock: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (FOR_EVER, FOR_EVER))
    signal.alarm(clock)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    try:
        with tempfile.TemporaryDirectory() as folder:
            put_in(bug.path, bug.number, Path(folder))
            code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests])
    except BaseException:  # noqa: BLE001 - the bug broke even the collecting of tests
        code = 1
    os._exit(0 if code == pytest.ExitCode.OK else 1)


def _running(line: int, source: str, of_file: Mapping[int, list[str]]) -> list[str]:
    """The tests that run a line. What runs as the module is imported is credited to none, or to whoever came first:
    then whoever runs anything of the module is asked."""
    functions = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    within = any(f.body[0].lineno <= line <= (f.end_lineno or 0) for f in functions)
    found = of_file.get(line, []) if within else []
    return found or sorted({test for one in of_file.values() for test in one})


def _importing(bug: Bug, lines: Mapping[str, Mapping[int, list[str]]]) -> list[str]:
    """The tests that run anything of a module that imports this one: of one that holds nothing but data."""
    above, _, name = ".".join(bug.path.relative_to(REPO).with_suffix("").parts).rpartition(".")
    imports = re.compile(rf"from {above}\.{name} import|from {above} import [^\n]*\b{name}\b")
    found: set[str] = set()
    for file, of_file in lines.items():
        if imports.search((REPO / file).read_text(encoding="utf-8")):
            found.update(test for of_line in of_file.values() for test in of_line)
    return sorted(found)


def _starting(bug: Bug, lines: dict[str, dict[int, list[str]]]) -> list[str]:
    """The tests that run a line which names this module: of one that is run in an interpreter of its own."""
    name = f'"{".".join(bug.path.relative_to(REPO).with_suffix("").parts)}"'
    found: set[str] = set()
    for file, of_file in lines.items():
        for number, text in enumerate((REPO / file).read_text(encoding="utf-8").splitlines(), 1):
            found.update(of_file.get(number, ()) if name in text else ())
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
    asked_for.add_argument("--least", type=float, default=0.85, help="share to be caught (default %(default)s)")
    asked_for.add_argument("--file", default="", help="only files whose path holds this")
    asked_for.add_argument("--again", action="store_true", help="use the coverage of the run before")
    o = asked_for.parse_args()
    if not o.again and os.waitstatus_to_exitcode(os.waitpid(_measuring(), 0)[1]) != 0:
        return 2
    _warm()
    return _report(o, _tried(o))


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


def _tried(o: argparse.Namespace) -> list[tuple[Bug, Mutant, str]]:
    lines, seconds = covered.lines(), covered.seconds()
    widths = collections.Counter(t for of_file in lines.values() for of_line in of_file.values() for t in of_line)
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
        of_file = lines.get(str(bug.path.relative_to(REPO)), {})
        tests = _running(changed.line, source, of_file) or _importing(bug, lines) or _starting(bug, lines)
        told = verdict(bug, asked(tests, bug, seconds, widths), o.clock)
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

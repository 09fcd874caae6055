"""What a rule answers where a figure of its scenario is another: each halved and doubled; a line where it matters.

A scenario shows an answer on one side of a threshold. Here every figure of the log, the metrics and what was given
moves, so that a sum with a wrong sign, a bound or a unit shows in a line that a person can check in the head. Where
another figure turns the answer (it is none, its confidence or its changes are others), a line says between which two.
"""

import re
import tempfile
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from tests.approved.text import number
from tests.scenarios.loading import gathered, names, scenario
from vllm_doctor.records.finding import Finding
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.engine import ask
from vllm_doctor.rules.registry import loaded

# A number that stands alone: no part of a version, a name, a path, a time or a shape of another unit.
_NUMBER = re.compile(r"(?<![\w.:/#,-])(?:\d{1,3}(?:,\d{3})+|\d{1,12}(?:\.\d{1,6})?)(?![\w:/]|[.,-]\d| pid)")
# What stands before a message in a log line; of a call in a traceback, all of it.
_HEAD = re.compile(r'.* File ".*|.*?\] |\(\w+ pid=\d+\) ')
# Figures of the log's last lines, where it fails, and of what was given.
_OF_LOG, _OF_GIVEN = 10, 8
# And those that their words say a second time.
_REPEATED = 4
# Of each rule so many of its scenarios that fire.
_SCENARIOS = 8


@cache
def codes() -> tuple[str, ...]:
    """The rules with a scenario that fires and has a figure."""
    return tuple(sorted({scenario(name)["rule"] for name in names() if _swept(name)}))


def answers(code: str) -> str:
    """The rule's own answers, a block a scenario."""
    swept = [name for name in names() if scenario(name)["rule"] == code and _swept(name)][:_SCENARIOS]
    return "\n".join("\n".join(_block(name)) + "\n" for name in swept)


# A figure is looked at from none of it to so many times of it, for where the answer turns; what is 0 up to so much.
_TIMES = 10
# Between two figures that lie as close as this part of them nothing is looked for; of small ones the unit is 1 or 0.01.
_CLOSE = 2000


def _swept(name: str) -> bool:
    return scenario(name)["expect"] == "finding" and any(True for _ in _variants(scenario(name)))


def _block(name: str) -> Iterator[str]:
    said = scenario(name)
    before = _answer(said)
    yield f"{name}: {before}"
    for where, old, new, changed in _variants(said):
        after = _answer(changed)
        if after != before:
            yield f"  {where}: {number(old)} -> {number(new)}: {after}"
    for where, path, old in figures(said):
        for far in (old * 0, old * _TIMES or _TIMES):
            yield from _turn(said, where, path, old, far)

    yield from _repeated(said)


def _repeated(said: dict[str, Any]) -> Iterator[str]:
    """With how few of the lines that say the same the answer is another: those at the end are left out."""
    lines = said.get("log", "").splitlines(keepends=True)
    alike: dict[str, list[int]] = {}
    for at, line in enumerate(lines):
        alike.setdefault(_NUMBER.sub("_", _HEAD.sub("", line, count=1)).strip(), []).append(at)
    kind = _kind(said)
    for words, places in alike.items():
        for count in range(len(places) - 1, 0, -1) if words else ():
            left = set(places[count:])
            told = _kind({**said, "log": "".join(one for at, one in enumerate(lines) if at not in left)})
            if told != kind:
                yield f"  {count} of {len(places)} lines {words[:60]}: {told}"
                break


def _turn(said: dict[str, Any], where: str, path: Any, old: float, far: float) -> Iterator[str]:
    """The two neighbours between which the answer turns on the way to `far`, where it does."""
    near, kind = old, _kind(said)
    told = _kind(with_figure(said, path, old, far))
    if told == kind:
        return
    unit = 1 if isinstance(old, int) else 0.01
    while abs(far - near) > max(unit, abs(near + far) / 2 / _CLOSE) * 1.5:
        middle = (near + far) // 2 if isinstance(old, int) else round((near + far) / 2, 2)
        found = _kind(with_figure(said, path, old, middle))
        near, far, told = (middle, far, told) if found == kind else (near, middle, found)
    yield f"  {where}: turns between {number(near)} and {number(far)}: {told}"


def _kind(said: dict[str, Any]) -> str:
    """What the answer is, without its figures."""
    found = _asked(said)
    if not isinstance(found, Finding):
        return f"{type(found).__name__.lower()}: {_NUMBER.sub('_', found.because)}"
    return f"{found.severity}, {found.confidence}; {', '.join(c.name for c in found.changes)}"


def _asked(said: dict[str, Any]) -> Any:
    log = _folder() / "log.txt"
    if "log" in said:
        log.unlink(missing_ok=True)  # ext4 writes a file that was emptied to the disk before it goes on
        log.write_text(said["log"], encoding="utf-8")
    return ask(loaded(said["rule"]), Case(gathered(said, log if "log" in said else None)))


@cache
def _kept() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="sweeps-")


def _folder() -> Path:
    return Path(_kept().name)


def _answer(said: dict[str, Any]) -> str:
    found = _asked(said)
    if not isinstance(found, Finding):
        return f"{type(found).__name__.lower()}: {found.because}"
    changes = [
        f"{c.name} {number(c.before)} -> {number(c.after if c.by is None else f'by {number(c.by)}')}"
        for c in found.changes
    ]
    sums = [f"{a.name} {number(a.value)} {a.unit}" for a in found.arithmetic]
    told = [f"{found.severity}, {found.confidence}", found.title, *filter(None, (found.detail,)), *changes, *sums]
    return "; ".join(told).replace(f"{_folder()}/", "")


def _variants(said: dict[str, Any]) -> Iterator[tuple[str, float, float, dict[str, Any]]]:
    """Where a figure stands, what it was and is now, and the scenario with it."""
    for where, path, old in figures(said):
        for new in dict.fromkeys((_scaled(old, 0.5), _scaled(old, 2))):
            if new != old:
                yield where, old, new, with_figure(said, path, old, new)


def figures(said: dict[str, Any]) -> Iterator[tuple[str, Any, float]]:
    """Where each figure stands, and what it is."""
    of_log = list(_of_log(said.get("log", "")))
    repeated = [one for one in of_log if one[0].endswith(" (last)")]
    yield from [one for one in of_log if one not in repeated][-_OF_LOG:]
    yield from repeated[-_REPEATED:]
    of_given = list(_of_given(said.get("given", {}), ("given",)))
    yield from [one for one in of_given if one[2]][:_OF_GIVEN]
    yield from [one for one in of_given if not one[2]][:_OF_GIVEN]


def _scaled(old: float, factor: float) -> float:
    return int(old * factor) if isinstance(old, int) else round(old * factor, 4)


def _of_log(log: str) -> Iterator[tuple[str, Any, float]]:
    """Each figure of the messages; of the same words the first, and as `(last)` the last one of another line: sums of
    two lines move with either."""
    places: dict[str, list[tuple[tuple[int, int], float]]] = {}
    at = 0
    for line in log.splitlines(keepends=True):
        head = _HEAD.match(line)
        for found in _NUMBER.finditer(line, head.end() if head is not None else 0):
            before = " ".join(line[: found.start()].split("] ")[-1].split()[-3:])
            where = f"{before} _ {' '.join(line[found.end() :].split()[:1])}".strip()
            digits = found[0].replace(",", "")
            if float(digits):
                place = (at + found.start(), at + found.end())
                places.setdefault(where, []).append((place, float(digits) if "." in digits else int(digits)))
        at += len(line)
    ends = {where: (of_words[0], of_words[-1]) for where, of_words in places.items()}
    told = [(where, *first) for where, (first, _) in ends.items()]
    told += [(f"{where} (last)", *last) for where, (first, last) in ends.items() if first != last]
    yield from sorted(told, key=lambda one: one[1])


def _of_given(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[str, Any, float]]:
    """The numbers of what was given beside the log; of a text of metrics the sample's value."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _of_given(one, (*path, key))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _of_given(one, (*path, index))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield ".".join(str(p) for p in path[1:]), path, value


def with_figure(said: dict[str, Any], path: Any, old: float, new: float) -> dict[str, Any]:
    if isinstance(path[0], int):
        start, end = path
        text = f"{new:.2f}" if isinstance(old, float) else f"{new:,}" if "," in said["log"][start:end] else str(new)
        return {**said, "log": said["log"][:start] + text + said["log"][end:]}
    changed = deepcopy(said)
    at: Any = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = new
    return changed

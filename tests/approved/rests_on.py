"""What each rule's answer rests on: each line of a scenario's log left out, each thing given left out, another release,
another card, each option that the rule asks for set. A line where the answer is another: what came, what went.

A gate of two halves that a scenario turns only together shows here as two lines, a remedy's fallback for an older
release as another change, and an option that a remedy reads as another value.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import cache
from typing import Any
from unittest.mock import patch

import msgspec

from tests.approved.text import number
from tests.scenarios.loading import gathered, names, scenario
from vllm_doctor.knowledge import gpus, parser
from vllm_doctor.knowledge.versions import newest_known
from vllm_doctor.launch.table import takes
from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.reading import Known
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.engine import ask
from vllm_doctor.rules.outcome import Unseen
from vllm_doctor.rules.registry import loaded

# Of each rule so many of its scenarios that fire and that do not, the longest first, and so many lines of each.
_SCENARIOS, _LINES = 4, 24
_MISSES = 2
# V0 before and after its profile run, V1 before and after the options that shrink graphs, the newest.
_RELEASES = ("0.4.2", "0.6.6", "0.8.5", "0.10.2", "0.15.0", "0.33.0")
_CARDS = ("Tesla T4", "NVIDIA L4", "NVIDIA H100 80GB HBM3", "NVIDIA B200", "NVIDIA GB10")
_SHOWN = 200


@cache
def codes() -> tuple[str, ...]:
    """The rules with a scenario that fires."""
    return tuple(sorted({scenario(name)["rule"] for name in names() if scenario(name)["expect"] == "finding"}))


def answers(code: str) -> str:
    """A block a scenario; of those that do not fire the parts alone."""
    chosen = (*_chosen(code, "finding", _SCENARIOS), *_chosen(code, "not-here", _MISSES))
    return "\n".join("\n".join((f"{name}", *_block(scenario(name)))) + "\n" for name in chosen)


def _chosen(code: str, expect: str, most: int) -> list[str]:
    found = [n for n in names() if scenario(n)["rule"] == code and scenario(n)["expect"] == expect]
    return sorted(found, key=lambda n: (-len(scenario(n).get("log", "").splitlines()), n))[:most]


def _block(said: dict[str, Any]) -> Iterator[str]:
    before = answer(said)
    yield from _differing(before, _without_a_line(said))
    yield from _differing(before, _without_a_thing(said, ("given",)))
    if said["expect"] != "finding":
        return
    yield from _differing(before, _of_releases(said))
    yield from _differing(before, _of_cards(said))
    launched = said if "launch" in said.get("given", {}) else given(said, launch="vllm serve org/m")
    yield from _differing(answer(launched), _with_options(launched))


def _differing(before: list[str], variants: Iterator[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """Each that answers otherwise: what came, and of a finding that stays one what went."""
    for what, said in variants:
        after = answer(said)
        if after != before:
            came = [f"+ {part[:_SHOWN]}" for part in after if part not in before]
            went = [f"- {part[:60]}" for part in before if part not in after] if len(after) > 1 else []
            yield f"  {what}: {'; '.join((*came, *went)) or 'another order'}"


def answer(said: dict[str, Any]) -> list[str]:
    """The answer in parts."""
    found = ask(loaded(said["rule"]), Case(snapshot(said)))
    if not isinstance(found, Finding):
        of = ", ".join(sorted(found.signals)) if isinstance(found, Unseen) else ""
        return [f"{type(found).__name__.lower()}: {found.because or of}"]
    sums = [f"{a.name} {number(a.value)} {a.unit}" for a in found.arithmetic]
    seen = [f"line {e.locator.removeprefix('line ')}" for e in found.evidence]
    told = filter(None, (f"{found.severity}, {found.confidence}, {found.phase}", found.title, found.detail, found.next))
    return [*told, *map(_change, found.changes), *sums, ", ".join(seen)]


def _change(one: Change) -> str:
    to = f"by {number(one.by)}" if one.by is not None else number(one.after)
    return f"{one.direction} {one.name} {number(one.before)} -> {to}{' $ ' if one.command else ''}{one.command or ''}"


def snapshot(said: dict[str, Any]) -> Any:
    found = gathered(said, None)
    if "log" not in said:
        return found
    return msgspec.structs.replace(found, log=Known(log_of_lines(said["log"].splitlines(), "log"), "log"))


def _without_a_line(said: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    lines = said.get("log", "").splitlines()
    for at in range(max(0, len(lines) - _LINES), len(lines)):
        yield f"without line {at + 1}", {**said, "log": "\n".join((*lines[:at], "", *lines[at + 1 :]))}


def _without_a_thing(said: dict[str, Any], path: tuple[str | int, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    inner: Any = said
    for key in path:
        inner = inner[key] if isinstance(inner, list) or key in inner else {}
    keys = inner if isinstance(inner, Mapping) else range(len(inner)) if isinstance(inner, list) else ()
    for key in keys:
        changed = deepcopy(said)
        at: Any = changed
        for one in path:
            at = at[one]
        del at[key]
        if _can_be(changed):
            yield f"without {'.'.join(map(str, (*path[1:], key)))}", changed
        yield from _without_a_thing(said, (*path, key))


def _can_be(said: dict[str, Any]) -> bool:
    """Is it a snapshot still? A record without one of its fields is none."""
    try:
        gathered(said, None)
    except (msgspec.ValidationError, KeyError, AssertionError):
        return False
    return True


def _of_releases(said: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    told = Case(snapshot(said)).version_text
    if told is None:
        yield from ((release, given(said, version=release)) for release in _RELEASES)
        return
    for release in _RELEASES:
        if release != told:
            text = {"log": said["log"].replace(told, release)} if "log" in said else {}
            yield release, given({**said, **text}, version=release)


def _of_cards(said: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in _CARDS:
        card = gpus.find(name)
        assert card is not None
        yield f"on {name}", given(said, gpu={"name": name, "total_gib": card.total_gib})


def _with_options(said: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in _asked(said):
        text = f"--{name}" if takes(name, newest_known()) == 0 else f"--{name} {_value(name)}"
        yield f"with {text}", given(said, launch=f"{said['given']['launch']} {text}")


def _value(name: str) -> str:
    option = (parser.options(str(newest_known())) or {}).get(name)
    choices = [str(one) for one in option.choices or () if str(one) not in {"auto", "None"}] if option else []
    return choices[-1] if choices else "0.5" if option is not None and option.type == "float" else "2"


def _asked(said: dict[str, Any]) -> list[str]:
    """The options that the rule asks for and that are not set."""
    found: dict[str, None] = {}
    flag: Callable[..., Any] = Case.flag

    def noted(self: Case, name: str) -> Any:
        value = flag(self, name)
        if value is None:
            found.setdefault(name)
        return value

    with patch.object(Case, "flag", noted):
        ask(loaded(said["rule"]), Case(snapshot(said)))
    return list(found)


def given(said: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**said, "given": {**said.get("given", {}), **more}}

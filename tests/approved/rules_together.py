"""What each rule answers where several things of its scenario are others at once: the release, the cards, two words of
the launch, a figure, a line of the log, what another scenario gives of its surroundings (a container, a unit, a host).

`sweeps` and `rests_on` move one thing of the longest scenarios that fire: where two things must hold together, both
sides of an "and" look alike there, and what follows only after a second one is never met. Here every scenario is met,
those that stay silent too. A draw is by the name of what is drawn, so a new word or scenario changes those alone that
draw it. The last draw is the whole diagnosis in such surroundings: its order, picture of the memory and first commands.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from typing import Any

import yaml

from tests.approved.drawn import drawn
from tests.approved.plans import FOLDER
from tests.approved.readings import differs, flat
from tests.approved.rests_on import answer, given, snapshot
from tests.approved.sweeps import figures, with_figure
from tests.approved.text import number
from tests.scenarios.loading import names, scenario
from vllm_doctor.knowledge import gpus
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.engine import diagnose

_DRAWS = 2
_KINDS = 3
_SHOWN, _LOST = 200, 60
_COUNTS = ("1", "2", "8")
_TIMES = ("0.5", "0.99", "1.01", "3")
_WORDS, _LINES = 2, 24
# What a scenario gives beside its log and the fields of a snapshot.
_BESIDE = ("kernel", "metrics", "model_config")
# Of a whole diagnosis so many values: what a rule's own answer does not say.
_WHOLE = 12
_WHOLES = 1
_LEFT_OUT = ("schema_version", "path.", "findings.", "unknown.")
_OF_FINDINGS = (".code", ".command", ".explained_by")

_Said = dict[str, Any]


@cache
def codes() -> tuple[str, ...]:
    """The rules that have scenarios."""
    return tuple(sorted({scenario(name)["rule"] for name in names()}))


def answers(code: str) -> str:
    """A block a scenario, a line for each draw that is answered otherwise."""
    return "\n".join("\n".join((name, *_block(name))) + "\n" for name in names() if scenario(name)["rule"] == code)


def _block(name: str) -> Iterator[str]:
    said = scenario(name)
    before = answer(said)
    for at in range(_DRAWS):
        what, changed = _changed(name, at)
        after = answer(changed)
        if after != before:
            came = [f"+ {part[:_SHOWN]}" for part in after if part not in before]
            went = [f"- {part[:_LOST]}" for part in before if part not in after] if len(after) > 1 else []
            yield f"  {what}: {'; '.join((*came, *went)) or 'another order'}"
    if name not in _whole_of(said["rule"]):
        return
    what, changed = _changed(name, _DRAWS)
    whole = differs(_whole(said), _whole(changed), shown=_WHOLE)
    if whole:
        yield f"  all of it, {what}: {whole}"


@cache
def _whole_of(code: str) -> tuple[str, ...]:
    return tuple(drawn(code, [name for name in names() if scenario(name)["rule"] == code], _WHOLES))


def _whole(said: _Said) -> dict[str, str]:
    told = flat(diagnose(snapshot(said), preview=True, memory=True))
    return {
        where: value[:_SHOWN]
        for where, value in told.items()
        if where.endswith(_OF_FINDINGS) or not where.startswith(_LEFT_OUT)
    }


def _changed(name: str, at: int) -> tuple[str, _Said]:
    """What was drawn in words, and the scenario with it."""
    said, words = deepcopy(scenario(name)), []
    for kind in drawn(f"{name} {at}", tuple(_DRAWN_BY), _KINDS):
        told, changed = _DRAWN_BY[kind](said, f"{name} {at} {kind}")
        if told:
            said = changed
            words.append(told)
    return " | ".join(words), said


@cache
def _words() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((FOLDER / "together.yaml").read_text(encoding="utf-8"))
    return read


def _release(said: _Said, seed: str) -> tuple[str, _Said]:
    (release,) = drawn(seed, _words()["releases"], 1)
    told = Case(snapshot(said)).version_text
    text = {"log": said["log"].replace(told, release)} if told is not None and "log" in said else {}
    return release, given({**said, **text}, version=release)


def _cards(said: _Said, seed: str) -> tuple[str, _Said]:
    (name,) = drawn(seed, _words()["cards"], 1)
    (count,) = drawn(seed, _COUNTS, 1)
    card = gpus.find(name)
    assert card is not None
    return f"{count} x {name}", given(said, gpu={"name": name, "total_gib": card.total_gib, "count": int(count)})


def _launch(said: _Said, seed: str) -> tuple[str, _Said]:
    of = _words()["words"]
    told = [drawn(seed, of[kind], 1)[0] for kind in drawn(seed, tuple(of), _WORDS)]
    words = " ".join(told).split()
    variables = [word for word in words if "=" in word and word.partition("=")[0].isupper()]
    before = said.get("given", {}).get("launch", "vllm serve org/m")
    line = " ".join((*variables, before, *(word for word in words if word not in variables)))
    return " ".join(told), given(said, launch=line)


def _line(said: _Said, seed: str) -> tuple[str, _Said]:
    lines = said.get("log", "").splitlines()
    if not lines:
        return "", said
    (at,) = (int(one) for one in drawn(seed, [str(at) for at in range(len(lines))[-_LINES:]], 1))
    return f"without line {at + 1}", {**said, "log": "\n".join((*lines[:at], "", *lines[at + 1 :]))}


def _figure(said: _Said, seed: str) -> tuple[str, _Said]:
    found = {where: (path, old) for where, path, old in figures(said) if old}
    if not found:
        return "", said
    (where,) = drawn(seed, tuple(found), 1)
    path, old = found[where]
    new = old * float(drawn(seed, _TIMES, 1)[0])
    changed = round(new) if isinstance(old, int) else round(new, 2)
    return f"{where}: {number(old)} -> {number(changed)}", with_figure(said, path, old, changed)


def _surroundings(said: _Said, seed: str) -> tuple[str, _Said]:
    """What another scenario gives of one thing, in place of what this one gives or says nothing of."""
    (field,) = drawn(seed, tuple(_given_by()), 1)
    (donor,) = drawn(seed, tuple(_given_by()[field]), 1)
    of = _given_by()[field][donor]
    name = field.removeprefix("snapshot.")
    if field in _BESIDE:
        return f"{name} of {donor}", given(said, **{name: of})
    return f"{name} of {donor}", given(said, snapshot={**said.get("given", {}).get("snapshot", {}), name: of})


@cache
def _given_by() -> dict[str, dict[str, Any]]:
    """By field and by the scenario that gives it, what is given."""
    found: dict[str, dict[str, Any]] = {}
    for name in names():
        of = scenario(name).get("given", {})
        for field, value in of.get("snapshot", {}).items():
            found.setdefault(f"snapshot.{field}", {})[name] = value
        for field in _BESIDE:
            if field in of:
                found.setdefault(field, {})[name] = of[field]
    return found


_DRAWN_BY: dict[str, Callable[[_Said, str], tuple[str, _Said]]] = {
    "release": _release,
    "cards": _cards,
    "launch": _launch,
    "line": _line,
    "figure": _figure,
    "surroundings": _surroundings,
    "more surroundings": _surroundings,
}

"""What a plan says where several things of the question are others at once: a card, a release, three options and two
fields of the model's config.json, drawn for each of many launches.

`plan_sweeps` and `plan_options` move one thing: where two things must hold together (a cache in 8 bits on a card that
has no kernel for it, a second stage beside drafts), both sides of an "and" look alike there. A draw is by the name of
what is drawn, so a new option or value changes those launches alone that have it.
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

import yaml

from tests.approved.drawn import drawn
from tests.approved.plan_options import of_terms
from tests.approved.plan_sweeps import figures
from tests.approved.plans import FOLDER, launches
from vllm_doctor.knowledge.versions import parse_version
from vllm_doctor.launch.table import names

_LAUNCHES, _OPTIONS = 30, 3
_COUNTS = ("4", "8")
_APART = {"refused", "refused for", "unknown"}
# Of a field that has no list of its own: its figure so many times.
_TIMES = (0.5, 2, 3)


@cache
def _drawn_from() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((FOLDER / "together.yaml").read_text(encoding="utf-8"))
    return read


def answers(model: str) -> str:
    """Each launch of a model: what is asked, then its figures."""
    return "\n".join("\n".join(_block(model, number)) for number in range(_LAUNCHES)) + "\n"


@cache
def models() -> tuple[str, ...]:
    """The models that are asked about."""
    return tuple(launches())


def _block(model: str, number: int) -> Iterator[str]:
    config = json.loads((FOLDER / "models" / f"{model}.json").read_text(encoding="utf-8"))
    seed = f"{model} {number}"
    of = _drawn_from()
    (release,), (card,), (count,) = (drawn(seed, all_of, 1) for all_of in (of["releases"], of["cards"], _COUNTS))
    words = [drawn(seed, _fit(of["words"][kind], release), 1) for kind in _kinds(config, seed)]
    said = [one for found in words for one in found]
    changed = config if number % 2 else _edited(config, seed)
    before = _text(config)
    what = [f"{name} {json.dumps(value)}" for name, value in _text(changed).items() if value != before.get(name)]
    yield " | ".join((f"{count} x {card}", release, *said, *what))
    asked = {"gpu": card, "gpus": int(count), "version": release, "launch": _launch(said)}
    told = figures(changed, asked, of_terms)
    parts: dict[str, list[str]] = {}
    for name, value in told.items():
        if value not in {"None", "0", "0.00"}:
            part = name if name in _APART else name[:3] if name.startswith("of ") else name.partition(", ")[2]
            parts.setdefault(part, []).append(f"{name} {value}")
    yield from (f"  {'; '.join(part)}" for part in parts.values())


def _kinds(config: dict[str, Any], seed: str) -> list[str]:
    """Three kinds of words: what a model of another kind needs is left out, what only this one needs is drawn first."""
    of, text = _drawn_from(), {**config, **_text(config)}
    own = [kind for kind, keys in of["needs"].items() if not text.keys().isdisjoint(keys)]
    others = [kind for kind in of["words"] if kind not in of["needs"]]
    return [*drawn(seed, own, 1), *drawn(seed, others, _OPTIONS)][:_OPTIONS]


def _launch(said: Sequence[str]) -> tuple[str, ...]:
    words = [word for one in said for word in shlex.split(one)]
    variables = [word for word in words if "=" in word and word.partition("=")[0].isupper()]
    return (*variables, "vllm", "serve", "m", *(word for word in words if word not in variables))


def _fit(words: Sequence[str], release: str) -> tuple[str, ...]:
    """Those of options that the release has."""
    version = parse_version(release)
    assert version is not None
    has = names(version)
    return tuple(text for text in words if has.issuperset(w[2:] for w in text.split() if w.startswith("--")))


def _text(config: dict[str, Any]) -> dict[str, Any]:
    """The part for text, where a config has one."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def _edited(config: dict[str, Any], seed: str) -> dict[str, Any]:
    """A field of the config with another figure, and a field that it may have; of one with a part for text there."""
    changed, known = deepcopy(config), _drawn_from()["fields"]
    inner = _text(changed)
    (own,) = drawn(seed, [name for name, old in inner.items() if isinstance(old, int)], 1)
    (more,) = drawn(seed, [name for name in known if name != own], 1)
    for name in (own, more):
        old = inner.get(name) or 1
        values = known.get(name) or ((not old,) if isinstance(old, bool) else tuple(round(old * by) for by in _TIMES))
        texts = {json.dumps(value): value for value in values}
        inner[name] = texts[drawn(seed, tuple(texts), 1)[0]]
    return changed

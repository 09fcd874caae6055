"""What each number of a config.json and of a launch may be: the refusal of one that none is, which names the bounds;
and which of several names of a config.json is read before which.

The names are those that the planner asks for, whether a model has them or not: one that no example has is read all the
same.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any
from unittest.mock import patch

from tests.approved.plan_sweeps import THROUGH, question
from tests.approved.plans import FOLDER, launches
from vllm_doctor.plan.launch.flags import Flags, SettingError
from vllm_doctor.plan.model.config_json import ConfigError, Section
from vllm_doctor.plan.model.describe import describe
from vllm_doctor.plan.question.planner import PlanProblem, Question, planner

# Of an option -1 is read as a number of tokens, such as 8k, and refused before its bounds are asked.
_HUGE = 10**13


@cache
def kinds() -> tuple[str, ...]:
    """Where numbers stand."""
    return ("config", "launch")


def answers(kind: str) -> str:
    """Each refusal once, in the order of the names."""
    told = _of_configs() if kind == "config" else _of_launches()
    return "\n".join(sorted(dict.fromkeys(told))) + "\n"


def _of_configs() -> Iterator[str]:
    models = [FOLDER / "models" / f"{model}.json" for model in launches()]
    for path_of in (*models, *sorted((FOLDER / "documents" / "config").glob("*.json"))):
        config = json.loads(path_of.read_text(encoding="utf-8"))
        asked, several = _asked_of(config)
        yield from several
        for path in asked:
            try:
                describe(Section(_with(config, path)))
            except ConfigError as why:
                yield str(why)


def _asked_of(config: dict[str, Any]) -> tuple[list[tuple[str, ...]], list[str]]:
    """The path of each name that is asked for, and the names that stand for one thing, the first one first."""
    found: dict[tuple[str, ...], None] = {}
    several: dict[str, None] = {}
    asks = {name: getattr(Section, name) for name in ("find", "number")}

    def noted(name: str) -> Callable[..., Any]:
        def ask(self: Section, *keys: Any, **more: Any) -> Any:
            above = tuple(self.path.split(": ")[1:])
            names = keys[:1] if name == "number" else tuple(keys[0])
            if len(names) > 1:
                several.setdefault(f"{self.path}: {', else '.join(names)}")
            for key in names:
                found.setdefault((*above, key))
            return asks[name](self, *keys, **more)

        return ask

    with patch.multiple(Section, **{name: noted(name) for name in asks}), suppress(ConfigError):
        describe(Section(config))
    return list(found), list(several)


def _with(config: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """The config with -1 there; what stands above it is made where it is missing."""
    if len(path) == 1:
        return {**config, path[0]: -1}
    inner = config.get(path[0])
    return {**config, path[0]: _with(inner if isinstance(inner, dict) else {}, path[1:])}


def _of_launches() -> Iterator[str]:
    for model in THROUGH["version"]:
        config = str(FOLDER / "models" / f"{model}.json")
        for words in launches()[model]:
            asked = question(words)
            for name in _options(config, asked):
                launch = (*_without(asked["launch"], name), f"--{name}={_HUGE}")
                try:
                    planner(Question(config=config, **{**asked, "launch": launch})).predict()
                except (SettingError, PlanProblem) as why:
                    yield str(why)


def _options(config: str, asked: dict[str, Any]) -> list[str]:
    """The options that are read as numbers."""
    found: dict[str, None] = {}
    own = {"int": Flags.int, "number": Flags.number}

    def noted(kind: str) -> Callable[..., Any]:
        def ask(self: Flags, name: str, *more: Any, **named: Any) -> Any:
            found.setdefault(name)
            return own[kind](self, name, *more, **named)

        return ask

    with patch.multiple(Flags, **{kind: noted(kind) for kind in own}):
        planner(Question(config=config, **asked)).predict()
    return list(found)


def _without(launch: tuple[str, ...], name: str) -> tuple[str, ...]:
    at = launch.index(f"--{name}") if f"--{name}" in launch else None
    return launch if at is None else (*launch[:at], *launch[at + 2 :])

"""A goal as text, `context=128k,concurrency=32`, and a file of prices: checked and turned into numbers."""

from __future__ import annotations

import re
from math import isfinite

import msgspec

from vllm_doctor.gather.bounded import all_of, json_value
from vllm_doctor.knowledge.gpus import find, nearest
from vllm_doctor.plan.question.planner import PlanProblem
from vllm_doctor.records import excerpt
from vllm_doctor.records.reading import Known, Unknown

_EXAMPLE = "context=128k,concurrency=32"
_TIMES = {"": 1, "k": 1 << 10, "m": 1 << 20}
LONGEST = 1 << 30
_MOST = {"context": LONGEST, "concurrency": 1 << 20}
_SAMPLE = "needed: cards and prices of an hour, such as {L4: 0.8, H100: 2.5}"
# A line for each card that there is.
_BYTES = 64 << 10


class Goal(msgspec.Struct, frozen=True):
    """Requests of `context` tokens each, of which the pool must hold `concurrency` at once."""

    context: int
    concurrency: int


def goal(text: str) -> Goal:
    """The goal of a text. Raises PlanProblem for a key or a number that is none."""
    found: dict[str, int] = {}
    for part in text.split(","):
        key, _, value = (word.strip() for word in part.partition("="))
        if key not in _MOST:
            raise PlanProblem(
                f"--goal: found {excerpt.value(part.strip())}; needed: context and concurrency, as in {_EXAMPLE}"
            )
        if key in found:
            raise PlanProblem(f"--goal: found {key} twice; needed: once, as in {_EXAMPLE}")
        found[key] = _number(key, value)
    if "context" not in found:
        raise PlanProblem(f"--goal: found no context; needed: tokens of the longest request, as in {_EXAMPLE}")
    return Goal(found["context"], found.get("concurrency", 1))


def whole(text: str) -> int:
    """A number of tokens or requests as a person writes it, 128k for 128 × 1024; 0 for what is none."""
    match = re.fullmatch(r"([0-9]{1,10})([km]?)", text.strip().lower())
    return int(match[1]) * _TIMES[match[2]] if match is not None else 0


def _number(key: str, text: str) -> int:
    value = whole(text)
    if not 1 <= value <= _MOST[key]:
        raise PlanProblem(
            f"--goal: {key} is {excerpt.value(text)}; needed: a whole number from 1 to {_MOST[key]:,}, as in "
            f"{_EXAMPLE} (128k is 128 × 1024)"
        )
    return value


def prices(file: str) -> dict[str, float]:
    """The price an hour of one card, by the card's own name, from a JSON or YAML file. Raises PlanProblem."""
    data = all_of(file, "--prices", _BYTES)
    if isinstance(data, Unknown):
        raise PlanProblem(f"--prices {data.reason}; {_SAMPLE}")
    value = _value(data, file)
    if not isinstance(value, dict) or not value:
        raise PlanProblem(f"--prices {file}: holds no cards with prices; {_SAMPLE}")
    found: dict[str, float] = {}
    for name, price in value.items():
        card = find(name) if isinstance(name, str) else None
        if card is None:
            close = nearest(excerpt.word(str(name)))
            offered = f", such as {', '.join(close)}" if close else ""
            raise PlanProblem(
                f"--prices {file}: found {excerpt.value(str(name))}; needed: the name of an NVIDIA card{offered}"
            )
        if (
            isinstance(price, bool)
            or not isinstance(price, int | float)
            or not 0 <= price <= 1e9
            or not isfinite(price)
        ):
            raise PlanProblem(
                f"--prices {file}: {excerpt.word(name)} is {excerpt.value(str(price))}; needed: a number from 0 to "
                "1,000,000,000"
            )
        if card.name in found:
            raise PlanProblem(
                f"--prices {file}: found {card.name} twice, at last as {excerpt.value(name)}; needed: once"
            )
        found[card.name] = float(price)
    return found


def _value(data: bytes, file: str) -> object:
    if data.lstrip()[:1] == b"{":
        read = json_value(data, file, "")
        if isinstance(read, Known):
            return read.value
    import yaml

    from vllm_doctor.launch import bounded_yaml

    try:
        return bounded_yaml.value(data)
    except (yaml.YAMLError, RecursionError, ValueError):
        raise PlanProblem(f"--prices {file}: is neither JSON nor YAML; {_SAMPLE}") from None

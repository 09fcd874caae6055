"""grammar.json: the phrases by which vLLM's sentences say right before or right after a name what they want of it."""

import re
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

Where = Literal["before", "after"]
# What a phrase says of the name beside it. `condition`: the name is a circumstance; `only`: the rest is refused without
# it; `bad`: its value is no good; `wrong` and `another`: another value; `needed`: a feature in words must be there.
Wants = Literal[
    "condition",
    "only",
    "off",
    "on",
    "with",
    "by",
    "more",
    "less",
    "bad",
    "wrong",
    "needed",
    "at least",
    "at most",
    "another",
]


class Phrase(msgspec.Struct, frozen=True):
    """One phrase, a pattern, and a `sample` of it as sentences have it."""

    where: Where
    wants: Wants
    said: str
    sample: str


class Grammar(msgspec.Struct, frozen=True):
    """The whole of grammar.json. `between`: words that may stand between such a phrase and the name."""

    between: tuple[str, ...]
    phrases: tuple[Phrase, ...]


# What may stand between a name and the phrase after it: quotes, its value or what it is called; for a bound a figure.
_CALLED = (
    r"[\s`'\")\],]{0,200}(?:[<>=!]{1,200} ?-?\d{1,24} )?(?:argument|flag|option|value|environment variable|backend"
    r"|of \S{1,1000} |\S{1,1000} )?[\s`'\"]{0,200}(?:is |are |was )?"
)
_FIGURE = r"[\s`'\")\]]{0,9}(?:\([^()]{0,40}\)|=?\s?-?\d{1,24}(?:\.\d{1,24})?[,;]?)?[\s`'\")\]]{0,9}"
_GAPS: dict[str, str] = {"off": _CALLED, "on": r"[\s`'\")\]]*(?:flag |option |argument |package )?"}


@cache
def grammar() -> Grammar:
    """The phrases, as data."""
    return msgspec.json.decode(Path(__file__).with_name("grammar.json").read_bytes(), type=Grammar)


@cache
def _pattern(where: Where, wants: Wants) -> re.Pattern[str]:
    said = "|".join(p.said for p in grammar().phrases if (p.where, p.wants) == (where, wants))
    if where == "after":
        return re.compile(rf"{_GAPS.get(wants, _FIGURE)}(?:{said})", re.IGNORECASE)
    between = rf"(?:[\s`'\"(,:]|\b(?:{'|'.join(grammar().between)})\b){{0,20}}$"
    return re.compile(rf"(?:{said}){between}", re.IGNORECASE)


def before(text: str, wants: Wants) -> bool:
    """Does the text before a name end with a phrase that wants this?"""
    return _pattern("before", wants).search(text) is not None


def after(text: str, wants: Wants) -> int | None:
    """Where such a phrase ends in the text after a name; None where it does not begin with one."""
    found = _pattern("after", wants).match(text)
    return found.end() if found is not None else None

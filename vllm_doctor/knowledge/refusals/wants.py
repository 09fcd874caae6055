"""What the words right before and right after a name want of it."""

import re
from typing import Literal

import msgspec

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.knowledge.refusals import grammar
from vllm_doctor.knowledge.refusals.grammar import Wants
from vllm_doctor.knowledge.refusals.mentions import Mention
from vllm_doctor.records.verdict import Direction

CLAUSES = Pattern(
    r"(?<=[a-zA-Z0-9`'\")\]])[.;!](?:\s{1,20}|$)|\n{1,80}|(?<=\w),?\s{1,20}but\s{1,20}(?!no\b)|\s{1,20}while\s{1,20}"
)
LISTED = Pattern(r"[\s`'\",]*(?:or|and|/|,)[\s`'\"]*(?:the )?")

_TO_RAISE = Pattern(r"[\s`'\"]*to (?:increase|raise) ")
_EQUAL_WILL_DO = Pattern(r"equal|[<>]=|at least|at most|cannot|can't|exceed|is (?:too|less|smaller|larger|greater)")
_EXACTLY = Pattern(
    r"[\s`'\")\]]*(?:must|should|to) (?:be|stay|equal) (?:set to |equal to )?[`'\"]?"
    r"(?P<value>\d+|[a-z0-9]+_[a-z0-9_]+|True|False|spawn|align|float16|bfloat16)\b"
)
# How far: `increase max_model_len to be at least 4096`.
_HOW_FAR = Pattern(r"[^\d.;,]{0,32}?\b(?P<word>least|most|than|above|below|to)[ `'\"]{1,3}(?P<bound>\d{1,12})\b")
_NUMBER = Pattern(r"(?<!\d)-?\d{1,18}(?!\d)")  # no option takes more digits


class Wish(msgspec.Struct, frozen=True):
    """One thing that is asked: `to` is the value where the sentence has it, `field` the part of an option that takes
    JSON. `exact`: the sentence says what to do; otherwise it only says that two things do not go together."""

    kind: Literal["flag", "env"]
    name: str
    direction: Direction
    to: str | None = None
    exact: bool = True
    field: str = ""


def compared(mention: Mention, after: str, other: Mention | None) -> tuple[Wish, ...]:
    """A bound with its figure, of the sentence or of another option beside it, which may give way instead."""
    bounds: tuple[tuple[Wants, Direction], ...] = (("at least", Direction.RAISE), ("at most", Direction.LOWER))
    for wants, direction in bounds:
        end = grammar.after(after, wants)
        if end is None:
            continue
        number = _NUMBER.search(after, end)
        step = 1 if direction is Direction.RAISE else -1
        if number is not None:
            strict = not _EQUAL_WILL_DO.search(after[: number.start()])
            return (_wish(mention, direction, str(int(number[0]) + step * strict)),)
        to = other.value if other is not None and other.value and _NUMBER.fullmatch(other.value) else None
        first = _wish(mention, direction, to)
        if other is None or other.kind != "flag":
            return (first,)
        back = Direction.LOWER if direction is Direction.RAISE else Direction.RAISE
        return (first, _wish(other, back, mention.value if to is not None else None, exact=to is not None))
    return ()


def wanted(mention: Mention, before: str, after: str) -> Wish | None:
    """What is wanted of this name; None where it stands there only as a circumstance."""
    if grammar.before(before, "only") and mention.spelled:
        return _wish(mention, Direction.ADD, mention.value)
    if grammar.before(before, "condition"):
        return None
    if not mention.spelled:
        return _of_feature(mention, before, after)
    return _of_amount(mention, before, after) or _of_spelled(mention, before, after)


def _of_amount(mention: Mention, before: str, after: str) -> Wish | None:
    up = bool(grammar.before(before, "more") or _TO_RAISE.match(after))
    if not up and not grammar.before(before, "less"):
        return None
    far = _HOW_FAR.match(after)
    beyond = far is not None and far["word"] in {"than", "above", "below"}
    to = str(int(far["bound"]) + beyond * (1 if up else -1)) if far is not None else None
    return _wish(mention, Direction.RAISE if up else Direction.LOWER, to)


def _of_spelled(mention: Mention, before: str, after: str) -> Wish | None:
    """The first that holds, from the most definite wording to the least."""
    exactly = _EXACTLY.match(after)
    set_to = exactly["value"] if exactly is not None else None
    off = grammar.before(before, "off") and (mention.value or "").lower() not in {"false", "0"}
    add, change = _wish(mention, Direction.ADD, mention.value), _wish(mention, Direction.CHANGE)
    named = mention.value is not None or mention.kind == "env" or after.startswith((" '", ' "'))
    cases: tuple[tuple[object, Wish], ...] = (
        (grammar.before(before, "bad") and mention.value is not None, change),
        (off, _wish(mention, Direction.REMOVE)),
        (exactly, _wish(mention, Direction.SET, set_to)),
        (grammar.after(after, "on") is not None, add),
        (grammar.after(after, "off") is not None, _wish(mention, Direction.REMOVE, exact=False)),
        (grammar.before(before, "wrong"), change),
        (grammar.before(before, "on") or (mention.typed and grammar.before(before, "with")), add),
        (grammar.after(after, "another") is not None, change),
        (mention.typed and grammar.before(before, "by"), change),
        (named, _wish(mention, Direction.CHANGE, exact=False)),
    )
    return next((wish for holds, wish in cases if holds), None)


def _of_feature(mention: Mention, before: str, after: str) -> Wish | None:
    """A feature in words: too much of it, refused beside something else, or needed."""
    if mention.off == "one" and (grammar.before(before, "less") or re.match(r"[^.]{0,14}must divide", after)):
        return _wish(mention, Direction.LOWER)
    if grammar.before(before, "off") or grammar.after(after, "off") is not None:
        match mention.off:
            case "add":
                return _wish(mention, Direction.ADD, exact=False)
            case "one":
                return _wish(mention, Direction.LOWER, "1", exact=False)
            case "false":
                return _wish(mention, Direction.REMOVE, "False", exact=False)
            case "swap":
                return _wish(mention, Direction.CHANGE, exact=True)
            case _:
                return _wish(mention, Direction.REMOVE, exact=False)
    needed = grammar.after(after, "on") is not None or grammar.before(before, "needed")
    if mention.off == "add" and needed:
        return _wish(mention, Direction.REMOVE, exact=False)
    if needed and mention.name.startswith(("enable-", "async-", "enforce-")):
        return _wish(mention, Direction.ADD)
    if mention.off != "swap" and (grammar.before(before, "wrong") or grammar.after(after, "another") is not None):
        return _wish(mention, Direction.CHANGE, exact=False)
    return None


def _wish(mention: Mention, direction: Direction, to: str | None = None, *, exact: bool = True) -> Wish:
    return Wish(mention.kind, mention.name, direction, to, exact, mention.field)

"""What the words right before and right after a name want of it."""

import re
from typing import Literal

import msgspec

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.knowledge.refusals.names import Mention
from vllm_doctor.records.verdict import Direction

CLAUSES = Pattern(
    r"(?<=[a-zA-Z0-9`'\")\]])[.;!](?:\s{1,20}|$)|\n{1,80}|(?<=\w),?\s{1,20}but\s{1,20}|\s{1,20}while\s{1,20}"
)
LISTED = Pattern(r"[\s`'\",]*(?:or|and|/|,)[\s`'\"]*(?:the )?")

# Words that may stand between what is wanted and the name.
_FILL = (
    r"(?:[\s`'\"(,:]|\b(?:the|your|a|an|argument|flag|option|parameter|environment|env|variable|either|or|and|to|by|of"
    r"|value|smaller|larger|different|supported|explicitly|set|you|can)\b){0,20}$"
)


def _before(pattern: str) -> Pattern:
    return Pattern(rf"(?:{pattern}){_FILL}", re.IGNORECASE)


# "To use it, …" is a circumstance, "make sure to use it" is none.
_CONDITION = _before(r"\b(?:when|if(?! you set)|unless|(?<!sure )(?<!is )(?<!try )to (?:set|use|enable|input)|in)\b")
_ONLY = _before(r"\bonly (?:be )?(?:enabled|supported|available|valid|set|used)(?: for| with| when| if)?\b")
_OFF = _before(
    r"\b(?:remov(?:e|ing)|unset(?:ting)?|omit(?:ting)?|disabl(?:e|ing)|drop|avoid|turn(?:ing)? off|leave"
    r"|exclud(?:e|ing)|not specify(?:ing)?|enabled via)\b"
    r"|\b(?:run|launch|start|try|again|instances?|model|working|it) without\b"
    r"|(?:do(?:es)?|must|should) not (?:yet |currently )?(?:set|use|specify|support)"
    r"|do(?:es)?n't (?:set|use|specify|support)"
    r"|not (?:yet )?support(?:ed)?(?: for| with| by)?|hasn't supported|unsupported(?: for| with)?"
    r"|incompatible with|not (?:yet )?(?:currently )?compatible with|conflicts? with"
    r"|(?:cannot|can't|not) be (?:used|combined|enabled|set) (?:together )?with"
)
_ON = _before(
    r"\b(?:set(?:ting)?|us(?:e|ing)|pass(?:ing)?|add(?:ing)?|specify(?:ing)?|enabl(?:e|ing)|requir(?:e|es|ed"
    r"|ing)|needs?"
    r"|without|(?:run(?:ning)?|launch|start|vllm|llm) with|forced by|choos(?:e|ing)"
    r"|provid(?:e|ing)|give|via|try|select)\b"
)
_WITH = _before(r"\bwith\b")
_MORE = _before(r"\b(?:increas(?:e|ing)|rais(?:e|ing)|larger|higher|greater)\b")
_LESS = _before(r"\b(?:reduc(?:e|ing)|lower(?:ing)?|decreas(?:e|ing)|smaller|too large|fewer)\b")
_WRONG = _before(
    r"\b(?:unknown|invalid|unsupported|unrecognized|incorrect|unable to \w+|different|another|adjust|chang(?:e|ing)"
    r"|expected|check|not support)\b(?: \w+)?"
)
_BAD = _before(r"\b(?:unknown|invalid|unsupported|unrecognized|incorrect)\b")
_TO_RAISE = Pattern(r"[\s`'\"]*to (?:increase|raise) ")
_NEEDED = _before(r"\b(?:requires?|enable|needs?|please use)\b")
_AFTER_OFF = Pattern(
    r"[\s`'\")\],]{0,200}(?:[<>=!]{1,200} ?-?\d{1,24} )?(?:argument|flag|option|value|environment variable|backend"
    r"|of \S{1,1000} |\S{1,1000} )?[\s`'\"]{0,200}"
    r"(?:is |are |was )?"
    r"(?:unset\b|(?:currently |yet |also )?(?:not|un)[ -]?(?:yet |currently )?(?:support|compatib|applicab"
    r"|allow)\w{0,200}"
    r"|incompatib\w{0,200}|not be\b|must be (?:disabled|unset|False)|can(?:not|'t) be (?:used|set|combined"
    r"|paired|enabled)"
    r"|should not be|has been removed|does(?:n't| not) (?:yet )?support|mutually exclusive"
    r"|only (?:supported|available)|can only be (?:set|used)|cannot both|has no effect|hasn't supported|conflicts)",
    re.IGNORECASE,
)
_AFTER_ON = Pattern(
    r"[\s`'\")\]]*(?:flag |option |argument |package )?(?:must be (?:set|enabled|provided|specified"
    r"|given|True|positive)"
    r"|(?:is|are) (?:required|needed|not set\b|not enabled|missing)|needs? to be (?:set|enabled)"
    r"|should be (?:set|enabled))",
    re.IGNORECASE,
)
_GAP = r"[\s`'\")\]]{0,9}(?:\([^()]{0,40}\)|=?\s?-?\d{1,24}(?:\.\d{1,24})?[,;]?)?[\s`'\")\]]{0,9}"
_AT_LEAST = Pattern(
    _GAP + r"(?:must be (?:>=?|at least|greater|larger|non-negative)|should be (?:>=?|greater|at least|larger)"
    r"|to be (?:>|greater|at least)|needs to be at least|is (?:too small|less than|smaller))",
    re.IGNORECASE,
)
_AT_MOST = Pattern(
    _GAP
    + r"(?:must (?:be )?(?:<=?|at most|less|smaller|strictly less)|(?:cannot|can't|must not|should not) (?:be (?:larger"
    r"|greater|more)|exceed)|exceeds?\b|is (?:larger|greater|too large|too high)|should be (?:<|less|smaller)"
    r"|to be (?:<|less|smaller))",
    re.IGNORECASE,
)
_EQUAL_WILL_DO = Pattern(r"equal|[<>]=|at least|at most|cannot|can't|exceed|is (?:too|less|smaller|larger|greater)")
_MUST_BE = Pattern(
    _GAP + r"(?:must be|should be|to be|expected|is not (?:a )?valid|needs to|cannot be|can only be|is only"
    r"|was (?:already|not)|is set\b|not found|has been)",
    re.IGNORECASE,
)
_EXACTLY = Pattern(
    r"[\s`'\")\]]*(?:must|should|to) (?:be|stay|equal) (?:set to |equal to )?[`'\"]?"
    r"(?P<value>\d+|[a-z0-9]+_[a-z0-9_]+|True|False|spawn|align|float16|bfloat16)\b"
)
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
    for pattern, direction in ((_AT_LEAST, Direction.RAISE), (_AT_MOST, Direction.LOWER)):
        found = pattern.match(after)
        if found is None:
            continue
        number = _NUMBER.search(after, found.end())
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
    if _ONLY.search(before) and mention.spelled:
        return _wish(mention, Direction.ADD, mention.value)
    if _CONDITION.search(before):
        return None
    if not mention.spelled:
        return _of_feature(mention, before, after)
    return _of_amount(mention, before, after) or _of_spelled(mention, before, after)


def _of_amount(mention: Mention, before: str, after: str) -> Wish | None:
    if _MORE.search(before) or _TO_RAISE.match(after):
        return _wish(mention, Direction.RAISE)
    return _wish(mention, Direction.LOWER) if _LESS.search(before) else None


def _of_spelled(mention: Mention, before: str, after: str) -> Wish | None:
    """The first that holds, from the most definite wording to the least."""
    exactly = _EXACTLY.match(after)
    set_to = exactly["value"] if exactly is not None else None
    off = _OFF.search(before) and (mention.value or "").lower() not in {"false", "0"}
    add, change = _wish(mention, Direction.ADD, mention.value), _wish(mention, Direction.CHANGE)
    named = mention.value is not None or mention.kind == "env" or after.startswith((" '", ' "'))
    cases: tuple[tuple[object, Wish], ...] = (
        (_BAD.search(before) and mention.value is not None, change),
        (off, _wish(mention, Direction.REMOVE)),
        (exactly, _wish(mention, Direction.SET, set_to)),
        (_AFTER_ON.match(after), add),
        (_AFTER_OFF.match(after), _wish(mention, Direction.REMOVE, exact=False)),
        (_WRONG.search(before), change),
        (_ON.search(before) or (mention.typed and _WITH.search(before)), add),
        (_MUST_BE.match(after), change),
        (named, _wish(mention, Direction.CHANGE, exact=False)),
    )
    return next((wish for holds, wish in cases if holds), None)


def _of_feature(mention: Mention, before: str, after: str) -> Wish | None:
    """A feature in words: too much of it, refused beside something else, or needed."""
    if mention.off == "one" and (_LESS.search(before) or re.match(r"[^.]{0,14}must divide", after)):
        return _wish(mention, Direction.LOWER)
    if _OFF.search(before) or _AFTER_OFF.match(after):
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
    needed = _AFTER_ON.match(after) or _NEEDED.search(before)
    if mention.off == "add" and needed:
        return _wish(mention, Direction.REMOVE, exact=False)
    if needed and mention.name.startswith(("enable-", "async-", "enforce-")):
        return _wish(mention, Direction.ADD)
    if mention.off != "swap" and (_WRONG.search(before) or _MUST_BE.match(after)):
        return _wish(mention, Direction.CHANGE, exact=False)
    return None


def _wish(mention: Mention, direction: Direction, to: str | None = None, *, exact: bool = True) -> Wish:
    return Wish(mention.kind, mention.name, direction, to, exact, mention.field)

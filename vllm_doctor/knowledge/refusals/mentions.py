"""Where a sentence names an option, a field of one, a feature or an environment variable."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Literal

import msgspec

from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.pattern import Pattern, compiled
from vllm_doctor.knowledge.refusals.words import Off, words
from vllm_doctor.knowledge.versions import newest_known

_DASHED = Pattern(
    r"(?P<quote>[`'\"])?(?<![\w-])--(?P<name>[a-zA-Z][\w-]{2,60})(?:\.[\w.]+)?(?:[= ](?P<word>[\w./+-]{1,60}))?"
    r"(?P<end>[`'\"])?"
)
_FIELD = Pattern(
    r"(?<![\w./-])(?P<name>[a-z]+(?:_[a-z0-9]+)+)\b(?![(/]|\.py)[`'\"]?"
    r"(?:\s?[=:]\s?(?P<value>[\w./'\"+-]{1,60})|\s?\(\s?=?(?P<paren>-?\d+(?:\.\d+)?)\s?\))?"
)
_VARIABLE = Pattern(
    r"(?<![\w$.])(?P<name>(?:VLLM|NCCL|CUDA|HF|RAY|PYTORCH)_[A-Z][A-Z0-9_]+)"
    r"(?:[`'\"]?\s?(?:=\s?|(?:set )?to (?=[`'\"]|\d|[a-z]+$))(?P<value>[\w./:`'\"-]{1,60}))?"
)
# One of another program, which a sentence calls what it is.
_CALLED = Pattern(r"[Ee]nvironment variable [`'\"]?(?P<name>[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)[`'\"]?")
_BESIDE = Pattern(r"\s?(?:\(\s?=?|=\s?)(-?\d+)\)?")
# What follows an option after a blank is its value only if it looks like one, not the sentence's next word.
_LIKE_VALUE = Pattern(
    r"[A-Z0-9_]{2,40}$|\d[\w.]*$|(?:fp8|int8|bf16|nvfp4)\w*$|[a-z0-9]+_[a-z0-9_]+$"
    r"|(?:half|float16|bfloat16|auto|ray|mp|mistral|triton|flashinfer|gptq|awq|align|spawn)$"
)


_BETWEEN = Pattern(r"[^a-z0-9]+")
_TYPED = Pattern(r"(?<![\w-])--(?P<name>[a-z][\w-]{1,60})")
_WORD = Pattern(r"(?:torch\.)?(?P<word>[a-z0-9_][a-z0-9_.-]{2,38}[a-z0-9])")
# Values that many options have.
_COMMON = frozenset({"true", "false", "none", "auto", "default", "model", "null"})


class Mention(msgspec.Struct, frozen=True):
    """One name in a clause. `spelled`: as the option or field is written, not in words; `typed`: as one types it."""

    start: int
    end: int
    kind: Literal["flag", "env"]
    name: str
    value: str | None = None
    off: Off = ""
    field: str = ""
    spelled: bool = True
    typed: bool = False


def mentions(clause: str, known: Callable[[str], bool]) -> Iterator[Mention]:
    """Every name, each stretch of the text once: what is spelled out before what is said in words."""
    taken: list[tuple[int, int]] = []
    for mention in (*_dashed(clause), *_variables(clause), *_fields(clause, known), *_features(clause, known)):
        if not any(mention.start < end and start < mention.end for start, end in taken):
            taken.append((mention.start, mention.end))
            yield mention


def options_named(text: str, options: Iterable[str]) -> tuple[str, ...]:
    """Options that a text names, in its order: as typed, as a field, or in plain words of the same order.

    Of those that share a stretch the longest. A name of one word counts only as it is typed.
    """
    told = text.lower()
    plain = f"-{_BETWEEN.sub('-', told)}-"
    typed = {found["name"] for found in _TYPED.finditer(told)}
    places = {name: plain.find(f"-{name}-") for name in options if "-" in name or name in typed}
    found = [(at, at + len(name), name) for name, at in places.items() if at >= 0]
    inner = {a for a in found for b in found if a != b and b[0] <= a[0] and a[1] <= b[1]}
    return tuple(name for _, _, name in sorted(set(found) - inner))


def values_quoted(text: str, given: Mapping[str, object]) -> tuple[str, ...]:
    """Options whose given value stands in the text as a word of its own, and is no number or common word."""
    told = {found["word"] for found in _WORD.finditer(text.lower())}
    words_of = {name: value.lower() for name, value in given.items() if isinstance(value, str)}
    return tuple(
        name for name, value in words_of.items() if value in told - _COMMON and not value.replace(".", "").isdecimal()
    )


def _dashed(clause: str) -> Iterator[Mention]:
    for found in _DASHED.finditer(clause):
        word = found["word"]
        quoted = found["quote"] is not None and found["quote"] == found["end"]
        follows = word is not None and (quoted or clause[found.end("name")] == "=" or _LIKE_VALUE.match(word))
        end = found.end() if follows else found.end("name")
        value = _bare(word) if follows else None
        yield Mention(found.start(), end, "flag", found["name"].replace("_", "-"), value, typed=True)


def _variables(clause: str) -> Iterator[Mention]:
    for found in _VARIABLE.finditer(clause):
        if found["name"] not in words().not_variables:
            yield Mention(found.start(), found.end(), "env", found["name"], _bare(found["value"]), typed=True)
    for found in _CALLED.finditer(clause):
        if found["name"] not in words().not_variables:
            yield Mention(found.start("name"), found.end(), "env", found["name"], None, typed=True)


def _fields(clause: str, known: Callable[[str], bool]) -> Iterator[Mention]:
    inside = words().fields
    for found in _FIELD.finditer(clause):
        field = found["name"]
        name = next((o for o in inside.get(field, (field.replace("_", "-"),)) if known(o)), None)
        held = field in inside
        if name is None:
            name, held = next((o for o in _holders().get(field, ()) if known(o)), None), True
        if name is not None:
            value = _bare(found["value"] or found["paren"])
            yield Mention(found.start(), found.end(), "flag", name, value, "", field if held else "")


@cache
def _holders() -> dict[str, tuple[str, ...]]:
    """Keys of the options that take JSON, as the newest release's own classes have them: key → options."""
    options, fields = history("options", "options"), history("fields", "fields")
    at = newest_known()
    held: dict[str, list[str]] = {}
    for option in options.names():
        owner = str(options.value(option, at).get("config", "")) if options.exists(option, at) else ""
        for name in fields.names() if owner else ():
            if name.startswith(f"{owner}.") and fields.exists(name, at):
                held.setdefault(name.partition(".")[2], []).append(option)
    return {key: tuple(names) for key, names in held.items()}


def _features(clause: str, known: Callable[[str], bool]) -> Iterator[Mention]:
    for feature in words().features:
        name = next((o for o in feature.options if known(o)), None)
        for found in compiled(feature.said).finditer(clause) if name is not None else ():
            beside = _BESIDE.match(clause[found.end() : found.end() + 30])
            yield Mention(
                found.start(), found.end(), "flag", name or "", beside[1] if beside else None, feature.off, "", False
            )


def _bare(value: str | None) -> str | None:
    return (value.strip("'\"`.,") or None) if value is not None else None

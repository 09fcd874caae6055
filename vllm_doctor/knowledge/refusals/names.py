"""Where a sentence names an option, a field of one, a feature or an environment variable."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Literal

import msgspec

from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.pattern import Pattern
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
_BESIDE = Pattern(r"\s?(?:\(\s?=?|=\s?)(-?\d+)\)?")
# What follows an option after a blank is its value only if it looks like one, not the sentence's next word.
_LIKE_VALUE = Pattern(
    r"[A-Z0-9_]{2,40}$|\d[\w.]*$|(?:fp8|int8|bf16|nvfp4)\w*$|[a-z0-9]+_[a-z0-9_]+$"
    r"|(?:half|float16|bfloat16|auto|ray|mp|mistral|triton|flashinfer|gptq|awq|align|spawn)$"
)


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
        for found in _compiled(feature.said).finditer(clause) if name is not None else ():
            beside = _BESIDE.match(clause[found.end() : found.end() + 30])
            yield Mention(
                found.start(), found.end(), "flag", name or "", beside[1] if beside else None, feature.off, "", False
            )


@cache
def _compiled(said: str) -> re.Pattern[str]:
    return re.compile(said)


def _bare(value: str | None) -> str | None:
    return (value.strip("'\"`.,") or None) if value is not None else None

"""What the next line may hold of what this one names: `- name: HF_TOKEN` above `value: V`, `password: |` of YAML."""

import re
from collections.abc import Iterator

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.redact import scan
from vllm_doctor.redact.fields import FIELD, GAP, NAMES, QUOTE, REFERENCE, VALUES
from vllm_doctor.redact.names import ValueKind, value_kind
from vllm_doctor.redact.shapes import Place
from vllm_doctor.redact.values import tells

_NAME_AT_THE_END = Pattern(
    rf"(?<![\w.-])(?:{NAMES}){QUOTE}?{GAP}{QUOTE}?(?P<name>[A-Za-z_][\w.-]{{1,120}}+){QUOTE}?,?[ \t]{{0,4}}\Z",
    re.IGNORECASE,
)
_VALUE_AT_THE_BEGINNING = Pattern(rf"(?<![\w.-])(?:{VALUES}){QUOTE}?{GAP}(?=\S)", re.IGNORECASE)


def name_at_the_end(text: str) -> str:
    """The name whose value is told on the next line, as `- name: HF_TOKEN`; nothing where there is none."""
    if ":" not in text[-130:] and "=" not in text[-130:]:
        return ""
    found = _NAME_AT_THE_END.search(text, max(0, len(text) - 160))
    return found["name"] if found is not None and value_kind(found["name"]) is not ValueKind.OPEN else ""


def value_of(name: str, text: str) -> Iterator[Place]:
    """The value on the line behind its name's."""
    found = _VALUE_AT_THE_BEGINNING.search(text[:300])
    if found is not None:
        begin, end, _ = scan.value(text, found.end())
        if not REFERENCE.match(text, begin) and tells(name, text[begin:end]):
            yield begin, end, FIELD


# `password: |` of YAML, whose text is what stands further in on the next lines.
_BLOCK = Pattern(r"(?<![\w.-])(?P<name>[A-Za-z_][\w.-]{1,120}+)[\"']?:[ \t]{1,4}[|>][-+]?\Z")
# A line of pydantic's that names the field; what it found there is on the next one.
_ALONE = Pattern(r"(?:\([^()]{1,120}\)[ \t])?[ \t]{0,8}(?P<name>[A-Za-z_][\w.]{1,120})")


def block_begins(text: str) -> int | None:
    """How far a line is indented that begins a secret of several lines; None for any other line."""
    begun = text.rstrip()
    if not begun.endswith(("|", ">", "|-", ">-", "|+", ">+")):
        return None
    found = _BLOCK.search(begun, max(0, len(begun) - 140))
    told = found is not None and value_kind(found["name"]) is ValueKind.SECRET
    return len(begun) - len(begun.lstrip()) if told else None


def is_secret_alone(text: str) -> bool:
    """Is the name of a secret all that stands on a line?"""
    if len(text) > 300:
        return False
    found = _ALONE.fullmatch(text.rstrip())
    return found is not None and value_kind(found["name"]) is ValueKind.SECRET


def goes_on(text: str) -> bool:
    """May the next line hold the value of what this one names?"""
    return bool(name_at_the_end(text)) or block_begins(text) is not None or is_secret_alone(text)

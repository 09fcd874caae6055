"""A short sentence is told by all of it: what stands between its holes, where it begins and where it ends."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from vllm_doctor.knowledge.pattern import Pattern

HOLE = "{}"
# Less tells nothing: so many words of letters, of so many letters together. More than that is told by its fingerprints.
_WORD = Pattern(r"[^\W\d_]{2,}")
_WORDS, _LETTERS, _LONGEST = 2, 10, 300
# From so many fixed words on anything may stand in a hole; before that only what is written as one value.
_TELLING = 4
_VALUE = Pattern(r"\S+|[\w.]*[<\[({'\"`].*[>\])}'\"`]", re.DOTALL)
# What pydantic quotes of the exception that a check raised, and what a KeyError prints.
_REASON = Pattern(r"(?:Value error|Assertion failed), (.*?)(?: \[type=|$)", re.DOTALL | re.MULTILINE)
_REASONS = 8


def whole_of(text: str, hole: str) -> str:
    """A sentence as a table has it; empty where too little of it is fixed."""
    plain = " ".join(text.split()).replace(hole, HOLE).rstrip(".")
    words = _WORD.compiled.findall(plain)
    telling = len(words) >= _WORDS and sum(map(len, words)) >= _LETTERS
    return plain if telling and len(plain) <= _LONGEST else ""


def short_rows(rows: Sequence[str], kind: str, message: str) -> Iterator[str]:
    """The rows, sorted by the sentence that each begins with, whose sentence is the whole of a message."""
    for text in _messages(kind, message):
        for begins in _beginnings(text):
            for row in rows[bisect_left(rows, begins) : bisect_left(rows, f"{begins}\uffff")]:
                if is_whole(row.rpartition("\t")[0], text):
                    yield row


def _messages(kind: str, message: str) -> list[str]:
    quoted = _REASON.compiled.findall(message)[:_REASONS] if kind == "ValidationError" else []
    plain = message.strip().strip("'\"") if kind == "KeyError" else message
    return [" ".join(one.split()).rstrip(".") for one in (quoted or [plain])]


def _beginnings(text: str) -> Iterator[str]:
    """What a row's sentence may begin with: the first word, or a part of it and a hole."""
    first, _, rest = text.partition(" ")
    yield f"{first} " if rest else f"{first}\t"
    yield from (f"{first[:end]}{HOLE}" for end in range(len(first) + 1))


def is_whole(sentence: str, text: str) -> bool:
    """Is a text this sentence, with a value in each of its holes?"""
    first, *between = sentence.split(HOLE)
    if not between:
        return sentence == text
    *between, last = between
    end = len(text) - len(last)
    if not text.startswith(first) or not text.endswith(last) or end <= len(first):
        return False
    values: list[str] = []
    at = len(first)
    for piece in between:
        found = text.find(piece, at + 1, end) if piece else at
        if found < 0:
            return False
        values.append(text[at:found])
        at = found + len(piece)
    values.append(text[at:end])
    plainly = len(_WORD.compiled.findall(sentence)) >= _TELLING
    return all(plainly or not one or _VALUE.fullmatch(one.strip()) for one in values) and any(values)

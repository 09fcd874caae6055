"""The words of CUDA's and HIP's errors by their names: torch prints the words, the driver's callers the name alone."""

import re
from functools import cache
from pathlib import Path

import msgspec

from vllm_doctor.knowledge.pattern import Pattern

# torch itself names what to search for, below the words of the same error.
_NAME = Pattern(
    r"(?<!Search for .)\b(?:CUDA_ERROR_(?P<driver>[A-Z_]{3,60})|(?:cuda|hip)Error(?P<runtime>[A-Z]\w{2,60}))\b"
)
_MARKS = ("CUDA_ERROR_", "cudaError", "hipError")


class _Statuses(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    words: dict[str, str]


@cache
def _words() -> dict[str, str]:
    path = Path(__file__).with_name("cuda_statuses.json")
    return msgspec.json.decode(path.read_bytes(), type=_Statuses).words


def worded(text: str) -> str:
    """The text with `CUDA error: WORDS` behind each name of an error; names that nobody has the words of stay."""
    if not any(mark in text for mark in _MARKS):
        return text
    return _NAME.compiled.sub(_with_words, text)


def _with_words(named: "re.Match[str]") -> str:
    words = _words().get((named["driver"] or named["runtime"]).replace("_", "").lower())
    return f"{named[0]} (CUDA error: {words})" if words is not None else named[0]

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
# The words behind the head that Triton, torch's count of devices (c10/cuda/CUDAFunctions.cpp) and other callers of the
# runtime put before them; what Triton calls out of something is of the kernel's own needs.
_SPOKEN = Pattern(
    r"(?:Triton Error \[(?:CUDA|HIP)\]: (?: Code: \d{1,4}, Messs?age: )?|\bCUDA Runtime Error: |"
    r"\bCUDA error at [^\s:]{1,200}:\d{1,6}: |\bCUDA (?=unknown error - )|"
    r"\bUnexpected error from cudaGetDeviceCount\(\)\.[^\n]{1,200} Error \d{1,4}: )"
    r"(?P<words>(?!out of )[A-Za-z][^\n]{3,160})"
)
_HEADS = (
    "Triton Error [",
    "CUDA Runtime Error: ",
    "CUDA error at ",
    "CUDA unknown error - ",
    "Unexpected error from cudaGetDeviceCount()",
)


class _Statuses(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    words: dict[str, str]


@cache
def _words() -> dict[str, str]:
    path = Path(__file__).with_name("cuda_statuses.json")
    return msgspec.json.decode(path.read_bytes(), type=_Statuses).words


def worded(text: str) -> str:
    """The text with `CUDA error: WORDS` behind each name of an error, and behind the words of one under another head;
    names that nobody has the words of stay."""
    if any(head in text for head in _HEADS):
        text = _SPOKEN.compiled.sub(lambda found: f"{found[0]} (CUDA error: {found['words']})", text)
    if not any(mark in text for mark in _MARKS):
        return text
    return _NAME.compiled.sub(_with_words, text)


def _with_words(named: "re.Match[str]") -> str:
    words = _words().get((named["driver"] or named["runtime"]).replace("_", "").lower())
    return f"{named[0]} (CUDA error: {words})" if words is not None else named[0]

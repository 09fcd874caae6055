"""The environment variables whose text a release cannot read, which ends its start.

vLLM reads all of its variables once as the engine starts (vllm/envs.py, enable_envs_cache), so that one that must be a
number and is none is refused whether it is used or not. Of a release that does not, nothing is said here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

from vllm_doctor.knowledge.history import Record, history
from vllm_doctor.knowledge.version import Version
from vllm_doctor.records import excerpt

# Python's own names of levels (logging.getLevelNamesMapping); vLLM writes the text in capitals first.
_LEVELS = ("CRITICAL", "FATAL", "ERROR", "WARN", "WARNING", "INFO", "DEBUG", "NOTSET")
_DIGITS = 4300  # Python's own limit for a text that is to be a whole number


def unreadable(given: Mapping[str, str], at: Version) -> Iterator[tuple[str, str, str]]:
    """(name, found, needed) of each variable that the release would refuse."""
    table = history("environment", "environment")
    if at not in history("checks", "checks").releases:  # earlier tables do not say how texts are compared
        return
    for name, text in given.items():
        if table.exists(name, at) and "$" not in text and "[hidden]" not in text:
            record = table.value(name, at)
            if needed := _choice(record, text) or _read(str(record.get("reads", "")), text):
                yield name, excerpt.value(text), needed


def _choice(record: Record, text: str) -> str:
    listed = record.get("choices")
    if not isinstance(listed, list):
        return ""
    any_case, many = record.get("any_case") is True, record.get("many") is True
    allowed = {str(one).lower() if any_case else str(one) for one in listed}
    words = [word.strip() for word in text.split(",") if word.strip()] if many else [text]
    if all((word.lower() if any_case else word) in allowed for word in words):
        return ""
    return f"{'some' if many else 'one'} of {', '.join(map(str, listed))}"


def _read(kind: str, text: str) -> str:
    if kind == "int":
        address = ", not an address: Kubernetes sets NAME_PORT for each service" if "://" in text else ""
        return "" if _is(int, text) else f"a whole number{address}"
    if kind == "float":
        return "" if _is(float, text) else "a number"
    if kind == "json":
        return "" if _is(json.loads, text) else "JSON"
    if kind == "json-or-file":
        return "" if _is(json.loads, text) or not text.lstrip().startswith(("{", "[")) else "JSON, or a file with it"
    if kind == "level":
        return "" if text.upper() in _LEVELS else f"one of {', '.join(_LEVELS)}"
    return ""


def _is(read: Callable[[str], object], text: str) -> bool:
    if len(text) > _DIGITS:
        return False
    try:
        read(text)
    except (ValueError, RecursionError):
        return False
    return True

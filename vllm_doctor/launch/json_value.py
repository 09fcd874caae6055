"""JSON that a shell, a template or an environment file changed before vLLM read it, as it was meant."""

import json
import re

from vllm_doctor.knowledge.pattern import Pattern

# A word of JSON without its quotes, between what JSON puts around a word.
_BARE = Pattern(r"(?<=[{\[,:])\s{0,8}([A-Za-z_][\w./-]{0,200})\s{0,8}(?=[:,}\]])")
_OF_JSON = frozenset({"true", "false", "null"})
_UNFILLED = Pattern(r"^(?:\$\{?\w|\{\{ ?[.$\w]|%\w{1,60}%$)")


def json_meant(value: str) -> tuple[dict[str, object] | None, str]:
    """The object, where one change to the text makes it one; and what the text shows to have happened to it."""
    for text, changed in _readings(value):
        try:
            meant = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(meant, dict):
            return meant, changed
    if _UNFILLED.match(value):
        return None, "a variable or a placeholder of a template was not filled in"
    if value.lstrip("'\"").startswith("{"):
        return None, "the shell, or what wrote the command, changed its quotes"
    return None, "the shell removed braces and quotes"


def _readings(value: str) -> tuple[tuple[str, str], ...]:
    inner = value.strip("'\"")
    return (
        (inner, "the outer quotes came along; they belong to the shell, and a list of arguments needs none"),
        (inner.replace('\\"', '"'), "its quotes were escaped once too often"),
        (inner.replace("{{", "{").replace("}}", "}"), "a template doubled its braces"),
        (inner.replace("'", '"'), "single quotes stand around its words, and JSON knows double ones alone"),
        (_BARE.sub(_quoted, inner), "the shell removed its double quotes (PowerShell before 7.3 does so, too)"),
    )


def _quoted(found: re.Match[str]) -> str:
    return found[0] if found[1] in _OF_JSON else f'"{found[1]}"'

"""What the text of an option must be that is no number and no name of a list: JSON, pairs, a name that is imported.

The kinds are read from a release's wheel (tools/releases/options.py, tools/releases/loaded.py); a release that was not
read says nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from vllm_doctor.knowledge.history import Record
from vllm_doctor.knowledge.human_int import scaled


def wrong(record: Record, words: Sequence[str]) -> tuple[str, str] | None:
    """(found, needed) of the first word that the release would refuse; None where it takes them all."""
    kind = str(record.get("kind", ""))
    for word in words:
        if record.get("optional") is True and word in {"", "None"}:
            continue
        needed = _number(record, word) or _json(kind, word) or _pair(record, word) or _name(record, word)
        if needed:
            return word, needed
    return None


def _number(record: Record, text: str) -> str:
    """A number of an option that may be None; of any other the parser's own table of types tells.

    One whose suffixes the release reads (`8k`) has no type in the table.
    """
    kind = record.get("type") if record.get("optional") is True else None
    try:
        if kind == "int":
            int(text)
        elif kind == "float":
            float(text)
    except ValueError:
        return "a whole number" if kind == "int" else "a number"
    return ""


def _json(kind: str, text: str) -> str:
    # What begins with a brace and does not end with one is passed on as a text, which the configuration then refuses.
    if kind not in {"json", "object", "braces"} or (kind == "braces" and not text.lstrip().startswith("{")):
        return ""
    try:
        read = json.loads(_plain_numbers(text) if kind == "object" else text)
    except (ValueError, RecursionError):
        return "JSON" if kind == "json" else "a JSON object"
    return "" if kind == "json" or isinstance(read, dict) else "a JSON object"


def _plain_numbers(text: str) -> str:
    """JSON whose numbers may have suffixes (`80m`), as vLLM's own reader writes it out before it reads it."""
    # A text that nobody closes goes to the end, so that no quotation mark of it is looked at again.
    parts = re.split(r'("(?:[^"\\]++|\\.?)*+(?:"|\Z))', text, flags=re.DOTALL)
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(r"\b\d{1,18}(?:\.\d{1,18})?[kKmMgGtT]\b", lambda m: str(scaled(m[0]) or m[0]), parts[at])
    return "".join(parts)


def _pair(record: Record, text: str) -> str:
    """`name=path`, or an object with the keys of the class that it becomes."""
    keys = record.get("keys")
    if record.get("kind") != "pairs" or not isinstance(keys, Mapping) or not text or ("=" in text and "," not in text):
        return ""
    musts = [str(key) for key, must in keys.items() if must]
    needed = f"{'='.join(musts)}, or a JSON object with the keys {' and '.join(musts)}"
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return needed
    if not isinstance(given, dict) or not set(musts) <= set(given):
        return needed
    unknown = sorted(set(given) - set(keys))
    return f"no key but {', '.join(map(str, keys))}" if unknown else ""


def _name(record: Record, text: str) -> str:
    """The name of what a module has: vLLM parts it at its last dot and imports what stands before."""
    if not record.get("loaded") or record.get("default") in {repr(text), text}:
        return ""
    module, dot, attribute = text.rpartition(".")
    return "" if dot and module and attribute else "the name of what a module has, MODULE.NAME"

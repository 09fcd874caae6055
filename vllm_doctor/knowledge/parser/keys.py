"""The keys of a release's JSON options: which there are, and what each may be (history/fields.json).

`--attention-config.backend FLASH` and `--attention-config '{"backend": "FLASH"}'` give one key. Nothing is said of a
release that was not read, nor of a key whose value the release may change before it judges it.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence

from vllm_doctor.knowledge.history import History, Record, history
from vllm_doctor.knowledge.parser.ranges import scaled
from vllm_doctor.knowledge.version import Version

_DEPTH = 8
_SIGNS = {"ge": "of {:.12g} or more", "gt": "above {:.12g}", "le": "up to {:.12g}", "lt": "below {:.12g}"}


def wrong_keys(option: str, given: Mapping[str, object], at: Version) -> Iterator[tuple[str, str, str]]:
    """(key, found, needed) of each key of an option's object that the release would refuse. Texts of `given` may be
    those of a command line (`--option.key 5`)."""
    options, fields = history("options", "options"), history("fields", "fields")
    if at in fields.releases and options.exists(option, at):
        yield from _of_class(str(options.value(option, at).get("config", "")), given, fields, at, _DEPTH)


def typed(text: str) -> object:
    """The value of `--option.key TEXT`: JSON, a number with a suffix (8k), or the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        number = scaled(text)
        return text if number is None else number


def nested(keys: Sequence[str], value: object) -> dict[str, object]:
    """`a.b` with a value as {"a": {"b": value}}."""
    for key in reversed(keys[1:]):
        value = {key: value}
    return {keys[0]: value}


def beyond(record: Record, value: object) -> str:
    """What a number needs, in words, where it is out of the record's range; "" where it is not, or is no number."""
    limits = record.get("range")
    human = scaled(value) if isinstance(value, str) else None
    try:
        number = float(str(value) if human is None else human)
    except (ValueError, OverflowError):
        return ""
    if not isinstance(limits, dict) or isinstance(value, bool):
        return ""
    holds = {
        "ge": lambda limit: number >= limit,
        "gt": lambda limit: number > limit,
        "le": lambda limit: number <= limit,
        "lt": lambda limit: number < limit,
    }
    if all(holds[sign](limit) for sign, limit in limits.items()):
        return ""
    return "a number " + " and ".join(_SIGNS[sign].format(limit) for sign, limit in limits.items())


def _of_class(
    name: str, given: Mapping[str, object], fields: History, at: Version, depth: int
) -> Iterator[tuple[str, str, str]]:
    if depth == 0 or not fields.exists(name, at):
        return
    for written, value in given.items():
        key = written.replace("-", "_")
        record = fields.value(f"{name}.{key}", at) if fields.exists(f"{name}.{key}", at) else None
        if record is None and fields.value(name, at).get("closed") is True and not written.endswith("+"):
            has = [n.partition(".")[2] for n in fields.names() if n.startswith(f"{name}.") and fields.exists(n, at)]
            near = difflib.get_close_matches(key, has, 2, 0.5) if len(key) <= 100 else []
            yield written, "a key", f"a key that vLLM {at} has" + (f": {' or '.join(near)}" if near else "")
        elif record is not None and isinstance(value, dict):
            for inner, found, needed in _of_class(str(record.get("config", "")), value, fields, at, depth - 1):
                yield f"{written}.{inner}", found, needed
        elif record is not None and (needed := _needed(record, value)):
            yield written, repr(value)[:60], needed


def _needed(record: Record, value: object) -> str:
    """What a key needs, where this value is refused."""
    choices, kind = record.get("choices"), record.get("type")
    if value is None or isinstance(value, bool | list) or (isinstance(value, str) and ("$" in value or not value)):
        return ""
    if isinstance(choices, list):
        return unnamed(choices, record, value)
    if kind in {"int", "float"}:
        try:
            number = float(str(value))
        except ValueError:
            return "a whole number" if kind == "int" else "a number"
        if kind == "int" and number == number and abs(number) < 2**53 and number != int(number):  # noqa: PLR0124
            return "a whole number"
        return beyond(record, value)
    return ""


def unnamed(choices: object, record: Record, value: object) -> str:
    """What a value needs that is none of these; "" where it is one, or where nothing is listed."""
    any_case = record.get("any_case") is True
    if not isinstance(choices, list) or (any_case and not isinstance(value, str)):  # a member's own value
        return ""
    texts = [str(choice) for choice in choices]
    same = str(value).lower() in {t.lower() for t in texts} if any_case else str(value) in texts
    if same:
        return ""
    if len(texts) <= 20:
        return f"one of {', '.join(texts)}"
    near = difflib.get_close_matches(str(value)[:100].upper() if any_case else str(value)[:100], texts, 3, 0.5)
    return f"one of {', '.join(near or texts[:20])} or another of its {len(texts)} names"

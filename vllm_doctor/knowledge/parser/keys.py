"""The keys of a release's JSON options: which there are, and what each may be (history/fields.json).

`--attention-config.backend FLASH` and `--attention-config '{"backend": "FLASH"}'` give one key. Nothing is said of a
release that was not read, nor of a key whose value the release may change before it judges it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vllm_doctor.knowledge.history import Record, ReleaseHistory, history
from vllm_doctor.knowledge.human_int import scaled
from vllm_doctor.knowledge.near import near
from vllm_doctor.knowledge.version import Version
from vllm_doctor.records import excerpt

_DEPTH = 8
_PLAIN = {"bool": "true or false", "str": "a text", "list": "a list", "dict": "an object"}
_BOOLEANS = frozenset({"0", "off", "f", "false", "n", "no", "1", "on", "t", "true", "y", "yes"})
_SIGNS = {"ge": "of {:.12g} or more", "gt": "above {:.12g}", "le": "up to {:.12g}", "lt": "below {:.12g}"}


def wrong_keys(
    option: str, given: Mapping[str, object], at: Version, *, whole: bool = True
) -> Iterator[tuple[str, str, str]]:
    """(key, found, needed) of each key of an option's object that the release would refuse. Texts of `given` may be
    those of a command line (`--option.key 5`); `whole` where all keys of the object are given, not one of them."""
    options, fields = history("options", "options"), history("fields", "fields")
    if at in fields.releases and options.exists(option, at):
        asked = _Asked(fields, at, whole)
        yield from _of_class(str(options.value(option, at).get("config", "")), given, asked, _DEPTH)


def choices_of_key(option: str, key: str, at: Version) -> tuple[str, ...]:
    """The words that a key of an option's object may be; none where they are not listed."""
    options, fields = history("options", "options"), history("fields", "fields")
    name = f"{options.value(option, at).get('config', '')}.{key}"
    listed = fields.value(name, at).get("choices") if fields.exists(name, at) else None
    return tuple(one for one in listed if isinstance(one, str)) if isinstance(listed, list) else ()


@dataclass(frozen=True)
class _Asked:
    """The table that is asked, the release, and whether a class's own tests of its keys are asked, too."""

    fields: ReleaseHistory
    at: Version
    whole: bool


def of_option(path: str, text: str) -> dict[str, object]:
    """The object that `--option.PATH TEXT` stands for: `a.b` is {"a": {"b": …}}, and `a+` a list to be added to."""
    listed = path.endswith("+")
    keys = path.removesuffix("+").split(".", _DEPTH)
    value: object = text.split(",") if listed else value_of_key(text)
    for key in reversed(keys[1:]):
        value = {key: value}
    return {keys[0]: value}


def merge(into: dict[str, object], more: Mapping[str, object]) -> None:
    """Put the keys of one object into another, as vLLM's parser puts `--option.a` and `--option.b` together."""
    for key, value in more.items():
        there = into.get(key)
        if isinstance(there, dict) and isinstance(value, dict):
            merge(there, value)
        elif isinstance(there, list) and isinstance(value, list):
            into[key] = [*there, *value]
        else:
            into[key] = value


def as_json(given: Mapping[str, object]) -> str:
    """The object as an option's text; "" for one that is too deep, or holds a number that is too long."""
    try:
        return json.dumps(given, ensure_ascii=False)
    except (ValueError, RecursionError):
        return ""


def value_of_key(text: str) -> object:
    """The value of `--option.key TEXT`: JSON, a number with a suffix (8k), or the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        number = scaled(text)
        return text if number is None else number


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


def _of_class(name: str, given: Mapping[str, object], ask: _Asked, depth: int) -> Iterator[tuple[str, str, str]]:
    fields, at = ask.fields, ask.at
    if depth == 0 or not fields.exists(name, at):
        return
    refused = False
    for each in _of_keys(name, given, ask, depth):
        refused = True
        yield each
    if ask.whole and not refused:
        from vllm_doctor.knowledge.parser.combinations import broken  # its reader of expressions takes milliseconds

        for check in broken({key.replace("-", "_"): value for key, value in given.items()}, at, of=name):
            yield check.names[0], excerpt.value(given[check.names[0]]), check.needed


def _of_keys(name: str, given: Mapping[str, object], ask: _Asked, depth: int) -> Iterator[tuple[str, str, str]]:
    fields, at = ask.fields, ask.at
    for written, value in given.items():
        key = written.replace("-", "_")
        record = fields.value(f"{name}.{key}", at) if fields.exists(f"{name}.{key}", at) else None
        if record is None and fields.value(name, at).get("closed") is True:
            has = [n.partition(".")[2] for n in fields.names() if n.startswith(f"{name}.") and fields.exists(n, at)]
            alike = near(key, has, 2, 0.5)
            yield written, "a key", f"a key that vLLM {at} has" + (f": {' or '.join(alike)}" if alike else "")
        elif record is not None and isinstance(value, dict) and "type" not in record:
            for inner, found, needed in _of_class(str(record.get("config", "")), value, ask, depth - 1):
                yield f"{written}.{inner}", found, needed
        elif record is not None and (needed := _needed(record, value)):
            yield written, excerpt.value(value), needed


def _needed(record: Record, value: object) -> str:
    """What a key needs, where this value is refused."""
    choices, kind = record.get("choices"), record.get("type")
    if isinstance(kind, str) and kind in _PLAIN and value is not None and not (isinstance(value, str) and "$" in value):
        return "" if _is_plain(kind, value) else _PLAIN[kind]
    if value is None or isinstance(value, bool | list) or (isinstance(value, str) and ("$" in value or not value)):
        return ""
    if isinstance(choices, list):
        return unnamed(choices, record, value)
    if kind in {"int", "float"} and not isinstance(value, dict):
        try:
            number = float(str(value))
        except ValueError:
            return "a whole number" if kind == "int" else "a number"
        if kind == "int" and number == number and abs(number) < 2**53 and number != int(number):  # noqa: PLR0124
            return "a whole number"
        return beyond(record, value)
    return ""


def _is_plain(kind: str, value: object) -> bool:
    """As pydantic takes JSON where it is not strict (its page "Conversion Table")."""
    match kind:
        case "bool":
            text = isinstance(value, str) and value.lower() in _BOOLEANS
            return text or isinstance(value, bool) or (isinstance(value, int | float) and value in {0, 1})
        case "str":
            return isinstance(value, str)
        case "list":
            return isinstance(value, list)
        case _:
            return isinstance(value, dict)


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
    asked = excerpt.word(str(value))
    alike = near(asked.upper() if any_case else asked, texts, 3, 0.5)
    return f"one of {', '.join(alike or texts[:20])} or another of its {len(texts)} names"

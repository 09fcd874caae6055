"""What `vllm serve` of a release accepts, word for word, and what is wrong with an argument.

history/options.json answers for every release that was read. For another one "not known" is no complaint, and "gone"
is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.history import Record, history
from vllm_doctor.knowledge.near import near
from vllm_doctor.knowledge.parser import kinds
from vllm_doctor.knowledge.parser.keys import beyond, unnamed, wrong_keys
from vllm_doctor.knowledge.parser.ranges import JSON, RANGES
from vllm_doctor.knowledge.version import Version, parse_version

ParserValue = object


@dataclass(frozen=True)
class OptionWords:
    """One option: `words` it takes (0, 1, "?" or "+"), its number type if any, and the values it allows (None: any).

    One that is `repeated` is given once for each item of its list (argparse's "append"); of others vLLM takes the last.
    One that is `folded` is read in small letters, with underscores for hyphens.
    """

    words: int | str
    type: str = ""
    choices: tuple[str, ...] | None = None
    repeated: bool = False
    folded: bool = False


@dataclass(frozen=True)
class Complaint:
    """Why the release would refuse an argument: what was found, what it needs, and what to do."""

    found: str
    needed: str
    do: str


@cache
def options(version: str) -> Mapping[str, OptionWords] | None:
    """The release's options by long name without dashes, aliases and `no-` forms among them; None for a release that
    was not read."""
    at = parse_version(version)
    facts = history("options", "options")
    if at is None or at not in facts.releases:
        return None
    made = {"help": OptionWords(0)}
    for name in facts.names():
        if facts.exists(name, at):
            record = facts.value(name, at)
            made |= dict.fromkeys(_spellings(name, record), _option(record))
    return made


@cache
def takes(name: str) -> OptionWords | None:
    """The option as the newest release has it that has it at all: how many words an option takes does not change."""
    facts = history("options", "options")
    known = versions.canonical(name)
    return _option(facts.value(known, facts.releases[-1])) if known in facts else None


def is_repeated(name: str) -> bool:
    """Is the option given once for each item of its list, as the newest release has it that has it at all?"""
    option = takes(name)
    return option is not None and option.repeated


@cache
def option_of(field: str) -> str | None:
    """The option that a field of vLLM's configuration feeds, where that has another name: kv-cache-dtype for
    `CacheConfig.cache_dtype`. None for a field of any other option."""
    facts = history("options", "options")
    return next((name for name in facts.names() for record in facts.values(name) if record.get("field") == field), None)


def _between(name: str, version: Version | None) -> OptionWords | None:
    """The option of a release that was not read, where the read ones before and after it have the same."""
    if version is None:
        return None
    releases = history("options", "options").releases
    below, above = (
        max((r for r in releases if r < version), default=None),
        min((r for r in releases if r > version), default=None),
    )
    if below is None or above is None:
        return None
    before, after = ((options(str(near)) or {}).get(name) for near in (below, above))
    return before if before == after else None


def _spellings(name: str, record: Record) -> list[str]:
    aliases = record.get("aliases")
    long = [str(a)[2:] for a in aliases if str(a).startswith("--")] if isinstance(aliases, list) else []
    own = [name, *(a.replace("_", "-") for a in long)]
    return [*own, *(f"no-{n}" for n in own), *opposites(record)] if record.get("no_form") is True else own


def opposites(record: Record) -> list[str]:
    """`disable-x` of `enable-x` and the other way round, where the release's parser takes both."""
    listed = record.get("inverse")
    return [str(spelling)[2:] for spelling in listed] if isinstance(listed, list) else []


def _option(record: Record) -> OptionWords:
    """vLLM sorts the choices of a type, and None is one of them where the option may be None."""
    words, listed = record.get("words", 1), record.get("choices")
    choices = None
    if isinstance(listed, list):
        none = ["None"] if record.get("optional") is True else []
        whole = all(isinstance(c, int) for c in listed)
        choices = (*map(str, sorted(listed) if whole else sorted(map(str, listed))), *none)
    kind = "" if record.get("optional") is True else str(record.get("type", ""))
    repeated, folded = record.get("repeated") is True, record.get("folded") is True
    return OptionWords(words if isinstance(words, int | str) else 1, kind, choices, repeated, folded)


@cache
def knows(version: str) -> frozenset[str]:
    """All names a template may ask for: flags, their no- forms and environment variables this release reads."""
    asked = options(version)
    names = set(asked) if asked is not None else set(versions.flag_names(version))
    if asked is None:
        names |= {f"no-{n}" for n in names if (fact := versions.flag(n, version)) and fact.negatable}
    return frozenset(names | versions.env_names(version))


def complaint(name: str, value: ParserValue, version: str) -> Complaint | None:
    """Say why vLLM `version` would refuse `--name value`; None if it would not, or if nobody knows.

    `name` is the long option without dashes; `value` is True for a bare switch, False for its no- form.
    """
    asked = options(version)
    shown = f"--{name}" if isinstance(value, bool) else f"--{name} {value}"
    if asked is None:
        fact = versions.flag(name, version)
        if fact is not None and fact.exists is False:
            return _unknown(name, version, ())
        return None if isinstance(value, bool) else _no_value_of_it(name, value)
    option = asked.get(name)
    if option is None:
        return _unknown(name, version, tuple(asked))
    wrong = _mismatch(name, value, option, shown)
    if wrong is None and not isinstance(value, bool | Mapping):
        words = [str(each) for each in value] if isinstance(value, list | tuple) else [str(value)]
        of_kind = kinds.wrong(_record(name, versions.as_version(version)), words)
        if of_kind is not None:
            wrong = Complaint(f"--{name} {of_kind[0]}", of_kind[1], f"write {name} as {of_kind[1]}")
    return wrong or (None if isinstance(value, bool) else _no_value_of_it(name, value))


def value_complaint(
    name: str, value: str, version: Version | None, words: Sequence[str] | None = None
) -> Complaint | None:
    """Say why this release (None: any) would refuse the value of an option that it has; None if it would not, or if
    nobody knows. `name` is the long option without dashes, `words` are the value's where it takes more than one."""
    if "$" in value or "[hidden]" in value:  # a variable that a shell would replace, a secret that was left out
        return None
    fact = versions.flag(name, version) if version is not None else None
    read = options(str(version)) if version is not None else None
    option = read.get(name) if read is not None else _between(name, version) or takes(name)
    if option is not None:
        choices = option.choices if read is not None else fact.choices if fact is not None else None
        texts = tuple(map(str, choices)) if choices is not None else None
        told = OptionWords(option.words, option.type, texts, folded=option.folded)
        listed: ParserValue = value.split(",") if option.words == "+" else value
        wrong = _mismatch(name, listed, told, f"--{name} {value}") if option.words != 0 else None
        if wrong is None and read is not None and version is not None:
            if name not in PLUGGED:
                wrong = unregistered(name, value, version)
            wrong = wrong or _not_taken(name, words or [value], version)
            if wrong is None and value in {"", "None"} and _record(name, version).get("optional") is True:
                return None  # as if it were not given
        if wrong is not None:
            return wrong
    elif fact is not None and fact.choices is not None and value not in {str(c) for c in fact.choices}:
        allowed = ", ".join(str(c) for c in fact.choices)
        return Complaint(f"--{name} {value}", f"one of {allowed}", f"choose one of these for {name}")
    judged = read is not None and version is not None and "kind" in _record(name, version)
    return _no_value_of_it(name, value, judged=judged)


# Options that take any text, of which a table of the release then has the names: (its file, its section).
_REGISTRIES = {
    "quantization": ("models", "quantizations"),
    "attention-backend": ("kernels", "attention"),
    "load-format": ("registered", "load_formats"),
    "tokenizer-mode": ("registered", "tokenizers"),
    "tool-call-parser": ("registered", "tool_parsers"),
    "reasoning-parser": ("registered", "reasoning_parsers"),
}
# Of them, those that another option may bring: (the option that names the file, the switch that it works behind).
PLUGGED = {
    "tool-call-parser": ("tool-parser-plugin", "enable-auto-tool-choice"),
    "reasoning-parser": ("reasoning-parser-plugin", ""),
}


def registered_span(name: str, value: str) -> tuple[str, str | None] | None:
    """The first release whose own table has this value of an option, and the last one (None: the newest has it)."""
    place = _REGISTRIES.get(name)
    table = history(*place) if place is not None else None
    if table is None or value not in table:
        return None
    first, last = table.span(value)
    return first, last if last != table.texts[-1] else None


def unregistered(name: str, value: str, version: Version) -> Complaint | None:
    """A name that the release's own table lacks, in any letters; a plugin may bring more, as `needed` says."""
    place = _REGISTRIES.get(name)
    if place is None or value.lower() in {"auto", "none"} or "." in value:
        return None
    table = history(*place)
    known = {name: table.exists(name, version) for name in table.names()}
    has = [name for name, here in known.items() if here]
    # Of a release that was not read, between one that has the name and one that lacks it, nothing is said.
    if not has or value.lower() in {name.lower() for name, here in known.items() if here is not False}:
        return None
    listed = ", ".join(near(value.lower(), [name.lower() for name in has], 3, 0.5) or has)
    return Complaint(
        f"--{name} {value}", f"a name that vLLM {version} or a plugin has: {listed}", f"choose one of these for {name}"
    )


def _record(name: str, version: Version) -> Record:
    return history("options", "options").value(versions.canonical(name), version)


def _not_taken(name: str, words: Sequence[str], version: Version) -> Complaint | None:
    """A number out of the range, a text of another kind, or an object with a key, that the release refuses."""
    record, value = _record(name, version), ",".join(words)
    if (of_kind := kinds.wrong(record, words)) is not None:
        found, needed = of_kind
        return Complaint(f"--{name} {found}", needed, f"write {name} as {needed}")
    if needed := beyond(record, value) or unnamed(record.get("names"), record, value):
        return Complaint(f"--{name} {value}", needed, f"set {name} to {needed}")
    if "config" not in record or not value.lstrip().startswith("{"):
        return None
    try:
        given = json.loads(value)
    except (ValueError, RecursionError):
        return None
    for key, found, what in wrong_keys(versions.canonical(name), given, version) if isinstance(given, dict) else ():
        return Complaint(f"--{name} {value}", f"for its key {key}, {found}: {what}", f"change {key} in {name}")
    return None


def _no_value_of_it(name: str, value: ParserValue, *, judged: bool = False) -> Complaint | None:
    if name in JSON and not judged and isinstance(value, str) and not _is_object(value):
        return Complaint(f"--{name} {value}", "a JSON object", f"write {name} as JSON, one word in single quotes")
    taken = RANGES.get(name)
    if taken is None or taken.holds(str(value)):
        return None
    needed = taken.needed(str(value))
    return Complaint(f"--{name} {value}", needed, f"set {name} to {needed}")


def _unknown(name: str, version: str, known: tuple[str, ...]) -> Complaint:
    """Without its value, which may be a secret and explains nothing."""
    fact = versions.flag(name, version)
    needed = f"a flag that vLLM {version} knows"
    if fact is not None and fact.last:
        needed += f"; this one was there from {fact.first} to {fact.last}"
        if fact.note:
            needed += f" ({fact.note})"
    alike = near(name, known)
    do = f"take {name} out"
    if alike:
        do += f", or use {' or '.join(alike)}"
    return Complaint(f"--{name}", needed, do)


def _mismatch(name: str, value: ParserValue, option: OptionWords, shown: str) -> Complaint | None:
    if option.words == 0:
        if isinstance(value, bool):
            return None
        return Complaint(shown, "a switch: true or false", f"set {name} to true or false")
    if isinstance(value, bool) and option.words != "?":
        return Complaint(f"--{name} {value}".lower(), f"{name} takes a value", f"give {name} a value, or take it out")
    for one in value if isinstance(value, list | tuple) else [value]:
        spelled = str(one).lower().replace("-", "_") if option.folded else str(one)
        if option.choices is not None and spelled not in option.choices:
            allowed = ", ".join(c for c in option.choices if c != "None")
            return Complaint(shown, f"one of {allowed}", f"choose one of these for {name}")
        if option.type and not _is_number(one, option.type):
            what = "a whole number" if option.type == "int" else "a number"
            return Complaint(shown, f"{what} for {name}", f"write {name} as {what}")
    return None


def _is_object(text: str) -> bool:
    """A JSON object, or the pairs that older releases took (`image=2,video=1`)."""
    if re.fullmatch(r"\w+=\d{1,18}(?:,\w+=\d{1,18})*", text):
        return True
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _is_number(value: ParserValue, kind: str) -> bool:
    try:
        int(str(value)) if kind == "int" else float(str(value))
    except ValueError:
        return False
    return True

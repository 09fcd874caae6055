"""What `vllm serve` of a pinned release accepts, word for word, and what is wrong with an argument.

The JSON files here were written by tools/vllm_flags.py, which runs the release's own parser. For a release that has
no file, versions.json answers: it knows fewer flags, so there "not known" is no complaint, and "gone" is.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vllm_doctor.knowledge import versions

Value = object


@dataclass(frozen=True)
class Option:
    """One option: `words` it takes (0, 1, "?" or "+"), its number type if any, and the values it allows (None: any)."""

    words: int | str
    type: str = ""
    choices: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Complaint:
    """Why the release would refuse an argument: what was found, what it needs, and what to do."""

    found: str
    needed: str
    do: str


@cache
def options(version: str) -> Mapping[str, Option] | None:
    """The release's options by long name without dashes; None for a release whose parser was not asked."""
    path = Path(__file__).with_name(f"{version}.json")
    if not path.is_file():
        return None
    listed = json.loads(path.read_text(encoding="utf-8"))["options"]
    return {
        name: Option(o["words"], o.get("type", ""), tuple(o["choices"]) if "choices" in o else None)
        for name, o in listed.items()
    }


@cache
def knows(version: str) -> frozenset[str]:
    """All names a template may ask for: flags, their no- forms and environment variables this release reads."""
    asked = options(version)
    names = set(asked) if asked is not None else set(versions.flag_names(version))
    if asked is None:
        names |= {f"no-{n}" for n in names if (fact := versions.flag(n, version)) and fact.negatable}
    variables = versions.data()["environment"]
    read = (
        {n for n in variables if (e := versions.env(n, version)) and e.exists} if isinstance(variables, dict) else set()
    )
    return frozenset(names | read)


def complaint(name: str, value: Value, version: str) -> Complaint | None:
    """Say why vLLM `version` would refuse `--name value`; None if it would not, or if nobody knows.

    `name` is the long option without dashes; `value` is True for a bare switch, False for its no- form.
    """
    asked = options(version)
    shown = f"--{name}" if isinstance(value, bool) else f"--{name} {value}"
    if asked is None:
        fact = versions.flag(name, version)
        return _unknown(name, version, ()) if fact is not None and fact.exists is False else None
    option = asked.get(name)
    if option is None:
        return _unknown(name, version, tuple(asked))
    return _mismatch(name, value, option, shown, version)


def _unknown(name: str, version: str, known: tuple[str, ...]) -> Complaint:
    """Without its value, which may be a secret and explains nothing."""
    fact = versions.flag(name, version)
    needed = f"a flag that vLLM {version} knows"
    if fact is not None and fact.last:
        needed += f"; this one was there from {fact.first} to {fact.last}"
        if fact.note:
            needed += f" ({fact.note})"
    near = difflib.get_close_matches(name, known, n=2)
    do = f"take {name} out"
    if near:
        do += f", or use {' or '.join(near)}"
    return Complaint(f"--{name}", needed, do)


def _mismatch(name: str, value: Value, option: Option, shown: str, version: str) -> Complaint | None:
    if option.words == 0:
        if isinstance(value, bool):
            return None
        return Complaint(shown, "a switch: true or false", f"set {name} to true or false")
    if isinstance(value, bool) and option.words != "?":
        return Complaint(f"--{name} {value}".lower(), f"{name} takes a value", f"give {name} a value, or take it out")
    for one in value if isinstance(value, list | tuple) else [value]:
        if option.choices is not None and str(one) not in option.choices:
            allowed = ", ".join(c for c in option.choices if c != "None")
            return Complaint(shown, f"vLLM {version} allows: {allowed}", f"choose one of these for {name}")
        if option.type and not _is_number(one, option.type):
            what = "a whole number" if option.type == "int" else "a number"
            return Complaint(shown, f"{what} for {name}", f"write {name} as {what}")
    return None


def _is_number(value: Value, kind: str) -> bool:
    try:
        int(str(value)) if kind == "int" else float(str(value))
    except ValueError:
        return False
    return True

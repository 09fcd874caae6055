"""The inventory's variables, judged on the controller before any host is asked: names, types, shadows, secrets."""

import difflib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import yaml

from vllm_doctor.knowledge.compat import nearest
from vllm_doctor.preflight.records import Row, Verdict
from vllm_doctor.preflight.sources import Definition, Sources

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:token|password|passwd|passphrase|secret|api_key|apikey|private_key)s?$", re.IGNORECASE
)
_SECRET_VALUE = re.compile(
    r"^(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|ghp_[A-Za-z0-9]{20,}|-----BEGIN .*PRIVATE KEY-----)"
)
_NULL = {"", "null", "~", "Null", "NULL"}
_BOOLEAN_WORDS = {"true", "false", "yes", "no", "on", "off"}


@dataclass(frozen=True)
class Option:
    """One variable of a role's argument_specs."""

    name: str
    role: str
    kind: str
    choices: tuple[object, ...] = ()
    removed: str | None = None


def options(role: str, specs: Mapping[str, object]) -> Iterator[Option]:
    """The variables of one role, from its parsed `meta/argument_specs.yml`, over all its entry points."""
    for entry in _mapping(specs.get("argument_specs")).values():
        for name, raw in _mapping(_mapping(entry).get("options")).items():
            fields = _mapping(raw)
            choices = fields.get("choices")
            yield Option(
                str(name), role, str(fields.get("type", "str")), tuple(choices) if isinstance(choices, list) else ()
            )


class Variables:
    """The variables that a host gets, and the files that they come from."""

    def __init__(self, known: Sequence[Option], sources: Sources, flags: Mapping[str, str] | None = None) -> None:
        self._known = {option.name: option for option in known}
        self._prefixes = sorted({f"{option.role}_" for option in known}, key=len, reverse=True)
        self._sources = sources
        self._flags = dict(flags or {})

    def judge(
        self, host: str, groups: Sequence[str], values: Mapping[str, object], allowed: Sequence[str] = ()
    ) -> tuple[Row, ...]:
        """All complaints about one host's variables; nothing where there is none."""
        places = {item.variable: item for item in self._sources.definitions(host, groups)}
        rows = [*self._names(values, places, allowed), *self._types(values, places), *self._shadows(values, places)]
        return (*rows, *self._secrets(self._sources.definitions(host, groups)))

    def _names(
        self, values: Mapping[str, object], places: Mapping[str, Definition], allowed: Sequence[str]
    ) -> Iterator[Row]:
        for name in sorted(values):
            if name in self._known or name in allowed:
                continue
            prefix = next((p for p in self._prefixes if name.startswith(p)), None)
            close = nearest(name, tuple(self._known))
            if prefix is None and (close is None or not _almost(name, close)):
                continue
            hint = f"write {close}" if close else "remove it, or list it in preflight_extra_variables"
            yield Row("variable name", Verdict.FAIL, name, "a variable of a role", self._where(name, places, hint))

    def _types(self, values: Mapping[str, object], places: Mapping[str, Definition]) -> Iterator[Row]:
        for name in sorted(values):
            option = self._known.get(name)
            value = values[name]
            if option is None or value is None:
                continue
            problem = _type_problem(option, value)
            if problem is not None:
                needed, action = problem
                yield Row(
                    "variable type", Verdict.FAIL, f"{name}: {value!r}", needed, self._where(name, places, action)
                )

    def _shadows(self, values: Mapping[str, object], places: Mapping[str, Definition]) -> Iterator[Row]:
        for name in sorted(values):
            if not name.endswith("_extra_args"):
                continue
            role = name.removesuffix("_extra_args")
            for flag in _flags(values[name]):
                bare = flag.lstrip("-").split("=", 1)[0].replace("_", "-")
                variable = self._flags.get(bare) or self._flags.get(bare.removeprefix("no-"))
                candidate = f"{role}_{bare.removeprefix('no-').replace('-', '_')}"
                variable = variable or (candidate if candidate in self._known else None)
                if variable is not None and variable != name:
                    yield Row(
                        "extra argument",
                        Verdict.FAIL,
                        f"{flag} in {name}",
                        f"{variable}, which owns this flag",
                        self._where(name, places, f"set {variable} instead"),
                    )

    def _secrets(self, definitions: Sequence[Definition]) -> Iterator[Row]:
        for item in definitions:
            for name, line in _plain_secrets(item.variable, item.node, item.line):
                where = Definition(name, item.path, line, item.node).at(self._sources.base)
                yield Row(
                    "secret in plain text",
                    Verdict.FAIL,
                    f"{name} (value not shown)",
                    "a vault value, or a file that only root reads",
                    f"{where}: encrypt it with ansible-vault encrypt_string, and replace the secret: it was readable",
                )

    def typed_secrets(self, values: Mapping[str, object]) -> tuple[Row, ...]:
        """Secrets among what was typed after -e: everybody on the controller sees it, and the history keeps it."""
        return tuple(
            Row(
                "secret in plain text",
                Verdict.FAIL,
                f"{name} on the command line (value not shown)",
                "a vault value, or a file that only root reads",
                f"write it into a vault file and give -e @FILE, or set {name} in the inventory; and replace the secret",
            )
            for name, value in sorted(values.items())
            if _is_secret(name, str(value))
        )

    def _where(self, name: str, places: Mapping[str, Definition], action: str) -> str:
        place = places.get(name)
        return f"{place.at(self._sources.base) if place else 'on the command line (-e)'}: {action}"


def _type_problem(option: Option, value: object) -> tuple[str, str] | None:
    """(what is needed, what to do) where the value has the wrong type or is no choice."""
    kind = option.kind
    if kind == "bool" and not isinstance(value, bool):
        word = str(value).casefold()
        hint = (
            f"write {word in {'true', 'yes', 'on'}} without quotes".lower()
            if word in _BOOLEAN_WORDS
            else "write true or false"
        )
        return "a boolean", f"{hint} (with -e use JSON: -e '{{\"{option.name}\": true}}')"
    if kind == "int" and (isinstance(value, bool) or not isinstance(value, int)):
        return "a whole number", "write it as a number, without quotes"
    if kind == "float" and (isinstance(value, bool) or not isinstance(value, int | float)):
        return "a number", "write it as a number, without quotes"
    if kind in {"str", "path"} and not isinstance(value, str):
        return "text", "put it in quotes" if isinstance(value, int | float) else "write text"
    if kind == "list" and not isinstance(value, list | tuple):
        return "a list", "write a list"
    if kind == "dict" and not isinstance(value, Mapping):
        return "a mapping", "write a mapping"
    if option.choices and not isinstance(value, list) and value not in option.choices:
        close = nearest(str(value), tuple(str(choice) for choice in option.choices))
        return "one of " + ", ".join(map(str, option.choices)), f"write {close}" if close else "choose one of them"
    return None


def _flags(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from (f"--{str(key).lstrip('-')}" for key in value)
    elif isinstance(value, str):
        yield from (word for word in _words(value) if word.startswith("-"))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _flags(item)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _plain_secrets(name: str, node: yaml.Node, line: int) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield from _plain_secrets(key.value, value, key.start_mark.line + 1)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _plain_secrets("", value, value.start_mark.line + 1)
    elif isinstance(node, yaml.ScalarNode) and node.tag != "!vault" and _is_secret(name, node.value.strip()):
        yield name or "a list item", line


def _is_secret(name: str, text: str) -> bool:
    """Whether a value is one by the variable's name or by its own shape; a reference to a vault value is none."""
    named = bool(_SECRET_NAME.search(name)) and text not in _NULL and "{{" not in text
    return (named and text.casefold() not in _BOOLEAN_WORDS) or bool(_SECRET_VALUE.match(text))


def _almost(name: str, close: str) -> bool:
    """Only a near miss counts where the name has no role's prefix: other software has variables too."""
    return difflib.SequenceMatcher(None, name, close).ratio() >= 0.9


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}

"""The inventory's variables, judged on the controller before any host is asked: names, types, shadows, secrets."""

import difflib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vllm_doctor.knowledge.compat import nearest_torch
from vllm_doctor.preflight import host_table, secrets
from vllm_doctor.preflight.judged import Checked, Result
from vllm_doctor.preflight.sources import IN_INVENTORY, ON_COMMAND_LINE, Definition, Sources

PLAYBOOKS = "playbooks"  # in place of a role's name: the playbooks' own (playbooks/meta/variables.yml)
# How like the rest after such a word is: site_stat is site_state, site_status may be, and site_name is not.
_NEAR, _LIKE = 0.75, 0.6
_BOOLEAN_WORDS = {"true", "false", "yes", "no", "on", "off"}


@dataclass(frozen=True)
class Option:
    """One variable of a role's argument_specs."""

    name: str
    role: str
    kind: str
    choices: tuple[object, ...] = ()
    elements: str = ""
    secret: bool = False  # no_log
    empty: bool = True  # whether null is a value: it is where the default is null too
    inner: tuple["Option", ...] = ()  # the keys of a mapping, where the specification names them


def options(role: str, specs: Mapping[str, object]) -> Iterator[Option]:
    """The variables of one role, from its parsed `meta/argument_specs.yml`, over all its entry points."""
    for entry in _mapping(specs.get("argument_specs")).values():
        yield from _options(role, _mapping(entry))


def _options(role: str, entry: Mapping[str, object]) -> Iterator[Option]:
    for name, raw in _mapping(entry.get("options")).items():
        fields = _mapping(raw)
        choices = fields.get("choices")
        yield Option(
            str(name),
            role,
            str(fields.get("type", "str")),
            tuple(choices) if isinstance(choices, list) else (),
            str(fields.get("elements") or ""),
            secret=fields.get("no_log") is True,
            empty=fields.get("default") is None,
            inner=tuple(_options(role, fields)),
        )


class Variables:
    """The variables that a host gets, and the files that they come from."""

    def __init__(self, known: Sequence[Option], sources: Sources, flags: Mapping[str, str] | None = None) -> None:
        self._known = {option.name: option for option in known}
        roles = {option.role for option in known} - {PLAYBOOKS}
        self._prefixes = sorted({f"{role}_" for role in roles}, key=len, reverse=True)
        self._of_playbooks = {f"{_first(one.name)}_" for one in known if one.role == PLAYBOOKS} - {*self._prefixes}
        self._families = {f"{_first(role)}_" for role in roles} - {*self._prefixes, *self._of_playbooks}
        self._sources = sources
        self._flags = dict(flags or {})

    def judge(
        self, host: str, groups: Sequence[str], values: Mapping[str, object], allowed: Sequence[str] = ()
    ) -> tuple[Checked, ...]:
        """All complaints about one host's variables; nothing where there is none."""
        definitions = self._sources.definitions(host, groups)
        places = {item.variable: item for item in definitions}
        rows = [*self.names(values, places, allowed), *self._types(values, places), *self._shadows(values, places)]
        return (*rows, *self._twice(definitions), *self._secrets(definitions))

    def names(
        self, values: Mapping[str, object], places: Mapping[str, Definition], allowed: Sequence[str]
    ) -> Iterator[Checked]:
        """Complaints about names that are no variable of a role or of the playbooks."""
        for name in sorted(values):
            if name in self._known or name in allowed:
                continue
            for verdict, meant, needed in self._unknown(name):
                own = "list it in preflight_extra_variables"
                hint = f"write {meant}" if meant else f"remove it, or {own}"
                hint += f"; if it is your own, {own}" if meant and verdict is Result.WARN else ""
                yield Checked("variable name", verdict, name, needed, self._where(name, places, hint))

    def _unknown(self, name: str) -> Iterator[tuple[Result, str | None, str]]:
        """(verdict, what is meant, what is needed) of a name that is not known; nothing where it is somebody else's.

        What begins as the playbooks' variables do (site_), or as a role's name does (nvidia_), may be the user's own:
        refused where it is almost one of ours, and a warning otherwise.
        """
        for prefix in filter(name.startswith, self._of_playbooks):
            near, likeness = self._nearest_ending(name, prefix)
            needed = "a variable of the playbooks: " + ", ".join(self._beginning(prefix))
            yield (Result.FAIL if likeness >= _NEAR else Result.WARN), near if likeness >= _LIKE else None, needed
            return
        meant = self._meant(name)
        if meant is not None or any(map(name.startswith, self._prefixes)):
            yield Result.FAIL, meant, "a variable of a role"
            return
        for family in filter(name.startswith, self._families):
            near, likeness = self._nearest_ending(name, family)
            if likeness >= _LIKE:
                yield Result.WARN, near, "a variable of a role"

    def _beginning(self, prefix: str) -> list[str]:
        return [known for known in self._known if known.startswith(prefix)]

    def _nearest_ending(self, name: str, prefix: str) -> tuple[str, float]:
        """(the variable with this prefix whose rest is most like the name's, how like it is)."""
        rest = name.removeprefix(prefix)
        like = {
            known: difflib.SequenceMatcher(None, rest, known.removeprefix(prefix)).ratio()
            for known in self._beginning(prefix)
        }
        best = max(like, key=lambda known: like[known])
        return best, like[best]

    def _meant(self, name: str) -> str | None:
        """The variable that this is a slip of: the same in other letters, of the same role, or almost the same."""
        plain = name.casefold().replace("-", "_")
        if plain in self._known:
            return plain
        prefix = next((prefix for prefix in self._prefixes if name.startswith(prefix)), None)
        if prefix is not None:
            return nearest_torch(name, tuple(known for known in self._known if known.startswith(prefix)))
        close = nearest_torch(name, tuple(self._known))
        return close if close is not None and _almost(name, close) else None

    def mistyped(self, values: Mapping[str, object]) -> frozenset[str]:
        """Variables whose value is of another type: nothing more can be said about these."""
        return frozenset(
            name
            for name, value in values.items()
            if (option := self._known.get(name)) is not None
            and (_type_problem(option, value) is not None or any(self._entries(option, value)))
        )

    def _entries(self, option: Option, value: object) -> Iterator[tuple[str, object, Option, tuple[str, str]]]:
        """(entry's name, value, variable, problem) of keys that are the role's variables without its prefix."""
        listed = value if option.name == f"{option.role}_instances" and isinstance(value, list | tuple) else ()
        for entry in filter(None, map(_mapping, listed)):
            for key, item in entry.items():
                own = self._known.get(f"{option.role}_{key}")
                problem = _type_problem(own, item) if own is not None else None
                if own is not None and problem is not None:
                    yield str(entry.get("name", "…")), item, own, problem

    def _types(self, values: Mapping[str, object], places: Mapping[str, Definition]) -> Iterator[Checked]:
        for name in sorted(values):
            option = self._known.get(name)
            value = values[name]
            problem = _type_problem(option, value) if option is not None else None
            if option is not None and problem is not None:
                needed, action = problem
                hidden = secrets.holds_secret(name, value, told=option.secret) or _from_elsewhere(places.get(name))
                found = f"{name} (value not shown)" if hidden else f"{name}: {value!r}"
                yield Checked("variable type", Result.FAIL, found, needed, self._where(name, places, action))
            for key, shown, needed, action in _inside(option, value) if option is not None and problem is None else ():
                yield Checked(
                    "variable value", Result.FAIL, f"{name}.{key}{shown}", needed, self._where(name, places, action)
                )
            for entry, item, own, (needed, action) in self._entries(option, value) if option is not None else ():
                hidden = secrets.holds_secret(own.name, item, told=own.secret)
                found = f"{own.name.removeprefix(own.role + '_')} of {entry}: {'not shown' if hidden else repr(item)}"
                yield Checked("variable type", Result.FAIL, found, needed, self._where(name, places, action))

    def _twice(self, definitions: Sequence[Definition]) -> Iterator[Checked]:
        """A variable with two lines in one file: the second would win. (An inventory file has one for each host.)"""
        seen: dict[tuple[object, str], int] = {}
        for item in definitions:
            first = seen.setdefault((item.path, item.variable), item.line)
            if first != item.line and {"group_vars", "host_vars"} & {*item.path.parts}:
                found, action = f"{item.variable} in lines {first} and {item.line}", f"{item.at(self._sources.base)}"
                yield Checked("variable twice", Result.FAIL, found, "one line", f"{action}: remove one of the two")

    def _shadows(self, values: Mapping[str, object], places: Mapping[str, Definition]) -> Iterator[Checked]:
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
                    yield Checked(
                        host_table.EXTRA_ARGUMENT,
                        Result.FAIL,
                        f"{flag} in {name}",
                        f"{variable}, which owns this flag",
                        self._where(name, places, f"set {variable} instead"),
                    )

    def _secrets(self, definitions: Sequence[Definition]) -> Iterator[Checked]:
        told = {option.name for option in self._known.values() if option.secret}
        for item in secrets.in_plain_text(definitions, told):
            yield Checked(
                "secret in plain text",
                Result.FAIL,
                f"{item.variable} (value not shown)",
                "a vault value, or a file that only root reads",
                f"{item.at(self._sources.base)}: encrypt it with ansible-vault encrypt_string, and replace the secret: "
                "it was readable",
            )

    def typed_secrets(self, values: Mapping[str, object]) -> tuple[Checked, ...]:
        """Secrets among what was typed after -e: everybody on the controller sees it, and the history keeps it."""
        told = {option.name for option in self._known.values() if option.secret}
        return tuple(
            Checked(
                "secret in plain text",
                Result.FAIL,
                f"{name} on the command line (value not shown)",
                "a vault value, or a file that only root reads",
                f"write it into a vault file and give -e @FILE, or set {name} in the inventory; and replace the secret",
            )
            for name, value in sorted(values.items())
            if secrets.holds_secret(name, value, told=name in told)
        )

    def _where(self, name: str, places: Mapping[str, Definition], action: str) -> str:
        if name in self._sources.typed:
            return f"{ON_COMMAND_LINE}: {action}"
        return f"{places[name].at(self._sources.base) if name in places else IN_INVENTORY}: {action}"


def _inside(option: Option, value: object) -> Iterator[tuple[str, str, str, str]]:
    """(key with dots, value as shown, what is needed, what to do) of keys that the specification does not name, and of
    values of another type."""
    own = {one.name: one for one in option.inner}
    for key, item in _mapping(value).items() if own else ():
        known = own.get(str(key))
        if known is None:
            meant = nearest_torch(str(key), tuple(own))
            yield str(key), "", f"one of {', '.join(own)}", f"write {meant}" if meant else "take it out"
        elif (problem := _type_problem(known, item)) is not None:
            yield str(key), f": {item!r}", *problem
        else:
            yield from ((f"{key}.{deeper}", shown, need, do) for deeper, shown, need, do in _inside(known, item))


def _type_problem(option: Option, value: object) -> tuple[str, str] | None:
    """(what is needed, what to do) where the value has the wrong type or is no choice."""
    kind = option.kind
    if value is None:
        return None if option.empty else ("a value", "write one, or take the line out")
    if kind == "bool" and not isinstance(value, bool):
        word = str(value).casefold()
        if word not in _BOOLEAN_WORDS:
            return "a boolean", "write true or false"
        meant = word in {"true", "yes", "on"}
        said = str(meant).lower()
        json = f"-e '{{\"{option.name}\": {said}}}'"
        return "a boolean", f"write {said} without quotes (with -e use JSON: {json}; in an INI inventory {meant})"
    if kind == "int" and (isinstance(value, bool) or not isinstance(value, int)):
        number = value if re.fullmatch(r"-?\d+", str(value)) else 1
        json = f"-e '{{\"{option.name}\": {number}}}'"
        return "a whole number", f"write it as a number, without quotes (with -e use JSON: {json})"
    if kind == "float" and (isinstance(value, bool) or not isinstance(value, int | float)):
        number = value if re.fullmatch(r"-?\d*\.?\d+", str(value)) else 0.5
        json = f"-e '{{\"{option.name}\": {number}}}'"
        return "a number", f"write it as a number, without quotes (with -e use JSON: {json})"
    if kind in {"str", "path"} and not isinstance(value, str):
        return "text", "put it in quotes" if isinstance(value, int | float) else "write text"
    if kind == "list" and not isinstance(value, list | tuple):
        return "a list", f"write a list, in brackets: {option.name}: [one, another]"
    if kind == "dict" and not isinstance(value, Mapping):
        return "a mapping", "write a mapping"
    if isinstance(value, list | tuple) and option.elements not in {"", "raw", "str", "path"}:
        one = replace(option, kind=option.elements, elements="", choices=())
        problem = next(filter(None, (_type_problem(one, item) for item in value)), None)
        if problem is not None:
            return f"a list, each entry {problem[0]}", f"in each entry {problem[1]}"
    if option.choices and not isinstance(value, list) and value not in option.choices:
        close = nearest_torch(str(value), tuple(str(choice) for choice in option.choices))
        return "one of " + ", ".join(map(str, option.choices)), f"write {close}" if close else "choose one of them"
    return None


def _from_elsewhere(place: Definition | None) -> bool:
    """Whether a value was taken from another variable or a vault, so that nobody sees it in this line."""
    return place is not None and any(scalar.encrypted or "{{" in scalar.node.value for scalar in secrets.scalars(place))


def _flags(value: object) -> Iterator[str]:
    """The options that a variable *_extra_args names, of any program (Prometheus, an exporter, vLLM): their names
    alone, since no table has the options of all of them. What an option of vLLM holds is read by launch/."""
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


def _first(name: str) -> str:
    return name.partition("_")[0]


def _almost(name: str, close: str) -> bool:
    """Only a near miss counts where the name has no role's prefix: other software has variables too."""
    return difflib.SequenceMatcher(None, name, close).ratio() >= 0.9


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}

"""A launch line as vLLM's own parser would take it: model, flags, variables; and what this version would refuse.

vLLM's FlexibleArgumentParser (utils/argparse_utils.py) accepts underscores for dashes, `--flag=value`, unambiguous
prefixes, `--no-flag` for booleans, `-O3`, and nested keys (`--compilation-config.mode 3`). tests/launch/lines.txt says
what the parser of 0.32.0 did itself.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence

import msgspec

from vllm_doctor.knowledge import parser
from vllm_doctor.knowledge.near import near
from vllm_doctor.knowledge.parser import environment, keys
from vllm_doctor.knowledge.versions import FlagFact, Version, canonical, complete, env, flag, newest_known
from vllm_doctor.launch import devices, table
from vllm_doctor.launch.line import LaunchError, begin
from vllm_doctor.launch.refusal import Refusal, Why
from vllm_doctor.launch.together import conflicts
from vllm_doctor.records import excerpt

__all__ = ["LaunchError", "LaunchLine", "Refusal", "Why", "parse_launch"]

_EXPLAINED = 8


class LaunchLine(msgspec.Struct, frozen=True):
    """A parsed launch. `flags` maps canonical long names to text, or True/False for switches; `unknown` are names that
    neither this version nor any sampled one is known to have; `image` is what the line makes a container of, and
    `forgets` whether what vLLM compiles ends with it."""

    model: str | None
    flags: dict[str, str | bool]
    env: dict[str, str]
    refusals: tuple[Refusal, ...] = ()
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    image: str = ""
    forgets: bool = False


_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
# What writes a line for a person may turn hyphens into other dashes, which no parser takes for an option.
_DASHES = "Pd"
# From here on all that stands right behind -O is a level (vLLM's utils/argparse_utils.py), so `-O.mode` takes no word.
_LEVELS_FROM = Version((0, 13))
_LEVEL = "optimization-level"


def parse_launch(argv: Sequence[str], version: Version | None, around: Mapping[str, str] | None = None) -> LaunchLine:
    """Parse a launch for a version; without one, what the newest release takes, and only what none would take is
    refused. `around` are the variables it starts with beside those in the line. Raises LaunchError for a line that
    starts no server or names no model."""
    begun = begin(argv)
    reading = _Reading(version)
    reading.read(begun.words)
    model = reading.flags.get("model")
    if not isinstance(model, str):
        model = reading.model if begun.serve else None
    if model is None and "config" not in reading.flags and "help" not in reading.flags:
        raise LaunchError(
            "the launch names no model; needed: "
            + ("vllm serve MODEL [flags]" if begun.serve else "--model MODEL after the module's name")
        )
    if not begun.serve and reading.model is not None:
        reading.refuse(
            "api_server",
            excerpt.value(reading.model),
            "--model MODEL: this program takes no positional argument",
            Why.WORD,
        )
    if version is not None:
        for key in begun.env:
            known = env(key, version)
            if known is not None and known.exists is False:
                why = known.note or f"it was there from {known.first} to {known.last}"
                reading.notes.append(f"{key} is not read by vLLM {version}: {why}")
        given = {**(around or {}), **begun.env}
        for name, found, needed in (
            *environment.unreadable(given, version),
            *devices.missing(given, reading.flags, version),
        ):
            reading.refuse(name, found, needed, Why.VALUE)
    return LaunchLine(
        model,
        reading.flags,
        begun.env,
        tuple(reading.refused),
        tuple(reading.unknown),
        tuple(reading.notes),
        begun.image,
        begun.forgets,
    )


def parse_words(words: Sequence[str], version: Version | None) -> LaunchLine:
    """The words that vLLM's parser gets, without a judgement on whether they are a launch."""
    reading = _Reading(version)
    reading.read(words)
    model = reading.flags.get("model")
    found = model if isinstance(model, str) else reading.model
    return LaunchLine(found, reading.flags, {}, tuple(reading.refused), tuple(reading.unknown), tuple(reading.notes))


class _Reading:
    """One pass over the words that vLLM's parser gets."""

    def __init__(self, version: Version | None) -> None:
        self.version = version
        self.model: str | None = None
        self.flags: dict[str, str | bool] = {}
        self.refused: list[Refusal] = []
        self.unknown: list[str] = []
        self.notes: list[str] = []
        self._words: Sequence[str] = ()
        self._own: list[str] = []
        self._nested_keys: dict[str, dict[str, object]] = {}
        self._at = 0

    def refuse(self, name: str, found: str, needed: str, why: Why = Why.VALUE) -> None:
        self.refused.append(Refusal(name, found, needed, why))

    def read(self, words: Sequence[str]) -> None:
        self._words = words
        options = True
        while self._at < len(words):
            word = words[self._at]
            self._at += 1
            if word == "--" and options:
                options = False
            elif options and _is_option(word):
                self._option(word)
            else:
                self._positional(word)
        # vLLM's parser puts such keys behind all else, as one object, and so takes them for the option's whole value.
        self.flags |= {name: text for name, given in self._nested_keys.items() if (text := keys.as_json(given))}
        self._plugged()
        if self.version is not None:
            refused = {r.flag for r in self.refused}
            for option, given in self._nested_keys.items():
                wrong = any(flag.startswith(f"--{option}.") for flag in refused)
                if not wrong and not _is_open(self.flags.get(option, "$")):
                    for key, found, needed in keys.wrong_keys(option, given, self.version):
                        self.refuse(f"--{option}.{key}", found, needed)
            self.refused += conflicts(self.flags, self.version)

    def _plugged(self) -> None:
        """Names that a file of the launch may bring are judged where it has none."""
        for name, (file, switch) in parser.PLUGGED.items():
            value = self.flags.get(name)
            if self.version is not None and isinstance(value, str) and not self.flags.get(file):
                said = parser.unregistered(name, value, self.version)
                if said is not None and (not switch or self.flags.get(switch) is True) and "$" not in value:
                    self.refuse(f"--{name}", excerpt.value(value), said.needed)

    def _positional(self, word: str) -> None:
        if unicodedata.category(word[:1] or "x") == _DASHES and word[:1] != "-":
            self.refuse("vllm serve", excerpt.value(word.partition("=")[0]), "ASCII hyphens before an option", Why.WORD)
        elif self.model is not None:
            self.refuse("vllm serve", excerpt.value(word), "flags after the model; two models were given", Why.WORD)
        else:
            self.model = word

    def _option(self, word: str) -> None:
        given, equals, text = word.partition("=")
        value = text if equals else None
        if re.fullmatch(r"-O\d", given):
            given, value = "-O", given[2:]
        if self._is_level(word):
            given, value = f"--{_LEVEL}", word[2:].removeprefix("=") or self._level()
        bare, _, nested = given.partition(".")
        spelled = self._spelled(bare)
        if spelled is None:
            return
        opposite = table.opposite(spelled, self.version)
        switched_off = opposite is not None or (spelled.startswith("no-") and table.is_known(spelled[3:]))
        name = opposite or (spelled[3:] if switched_off else spelled)
        self._own = []
        fact = flag(name, self.version) if self.version is not None else None
        before = self.flags.get(name)
        if switched_off:
            self._no(bare, name, value, fact)
        elif nested:
            self._nested(name, nested, value, short=bare == "-O")
        elif table.takes(name, self.version) == 0:
            self._switch(name, value)
        else:
            self._value(name, value)
        if not nested:
            now = self.flags.get(name)
            self._check(name, fact, None if switched_off or _is_key(given, now) else now)
            if isinstance(before, str) and isinstance(now, str) and parser.is_repeated(name):
                self.flags[name] = f"{before},{now}"
            elif before is not None and before != now:
                self.notes.append(f"--{name} is given twice, as {before} and as {now}; vLLM takes the last one")
        elif not table.is_known(name) or (fact is not None and fact.exists is False):
            self._check(name, fact, None)

    def _is_level(self, word: str) -> bool:
        """Is it `-O…`, of which all that follows is a level in this release (vLLM's utils/argparse_utils.py)?"""
        known = self.version is not None and flag(_LEVEL, self.version)
        return word.startswith("-O") and bool(known and known.exists)

    def _level(self) -> str | None:
        """The word after a lone -O."""
        following = self._next()
        self._at += following is not None
        return following

    def _spelled(self, bare: str) -> str | None:
        """The long name behind what was written, `no-…` where that is a spelling of its own; None: refused."""
        name = canonical(bare)
        if table.opposite(bare.lstrip("-").replace("_", "-"), self.version) is not None:
            return bare.lstrip("-").replace("_", "-")
        if table.is_known(name) or not bare.startswith("--"):
            return name
        could = table.completed(name, self.version or newest_known())
        if len(could) > 1 and self.version is None:
            return name
        if len(could) > 1:
            listed = ", ".join(f"--{n}" for n in could[:4])
            self.refuse(bare, "a shortened option", f"the full name; it could be {listed}", Why.UNKNOWN)
            return None
        return could[0] if could else name

    def _no(self, bare: str, name: str, value: str | None, fact: FlagFact | None) -> None:
        if value is not None and (self.version is None or table.own(self.version)):
            self.refuse(bare, excerpt.value(value), "no value (a switch)")
        if self.version is not None and fact is not None and f"no-{name}" not in table.names(self.version):
            instead = f"a release where --{name} can be switched off this way; here leave it out"
            self.refuse(bare, "this spelling", instead, Why.UNKNOWN)
        self.flags[name] = False

    def _nested(self, name: str, nested: str, value: str | None, *, short: bool) -> None:
        if short and value is None and (self.version is None or self.version >= _LEVELS_FROM):
            self.refuse(
                f"-O.{nested}", "two words", f"-O.{nested}=VALUE, or --compilation-config.{nested} VALUE", Why.WORD
            )
            self._at += self._next() is not None
            return
        if value is None:
            value = self._next()
            self._at += value is not None
        if value is None:
            self.refuse(f"--{name}.{nested}", "no value", "a value")
            return
        given = keys.of_option(nested, value)
        keys.merge(self._nested_keys.setdefault(name, {}), given)
        if self.version is not None and not _is_open(value):
            for key, found, needed in keys.wrong_keys(name, given, self.version, whole=False):
                self.refuse(f"--{name}.{key}", found, needed)

    def _switch(self, name: str, value: str | None) -> None:
        if value is None:
            following = self._next()
            strict = self.version is None or table.own(self.version)
            if not strict and following is not None and following.lower() in {"true", "false"}:
                value, self._at = following, self._at + 1
        elif self.version is not None and table.own(self.version):
            off = f", off: --no-{name}" if f"no-{name}" in table.names(self.version) else ""
            self.refuse(f"--{name}", excerpt.value(value), f"no value (a switch{off})")
        elif value.lower() not in _BOOLEANS:
            self.refuse(f"--{name}", excerpt.value(value), "no value, or true or false")
        self.flags[name] = True if value is None else _BOOLEANS.get(value.lower(), True)

    def _value(self, name: str, value: str | None) -> None:
        many = table.takes(name, self.version)
        if value is not None:
            self.flags[name], self._own = value, [value]
            return
        own = self._own
        while (following := self._next()) is not None and (not own or many == "+"):
            own.append(following)
            self._at += 1
        if own:
            self.flags[name] = ",".join(own)
            return
        self.flags[name] = True
        if many != "?" and (self.version is None or flag(name, self.version) is not None) and table.is_known(name):
            self.refuse(f"--{name}", "no value", "a value")

    def _next(self) -> str | None:
        """The word that follows, where it is no option."""
        word = self._words[self._at] if self._at < len(self._words) else None
        return word if word is not None and not _is_option(word) else None

    def _near(self, name: str, like: float) -> str:
        """The release's names that are most like it; for the first few refusals, since it takes milliseconds each."""
        if self.version is None or len(self.refused) >= _EXPLAINED:
            return ""
        close = near(name, table.names(self.version), 2, like)
        return f"; near: --{', --'.join(close)}" if close else ""

    def _check(self, name: str, fact: FlagFact | None, value: str | bool | None) -> None:
        if self.version is None:
            if not table.is_known(name):
                self.unknown.append(name)
        elif fact is None and name not in table.names(self.version):
            if complete(self.version) and name not in {"help", "config"}:
                near = self._near(name, 0.6)
                self.refuse(f"--{name}", "a name of no flag", f"a flag that vLLM {self.version} has{near}", Why.UNKNOWN)
            else:
                self.unknown.append(name)
            return
        elif fact is not None and fact.exists is False:
            hint = f" (it was there from {fact.first} to {fact.last}{'; ' + fact.note if fact.note else ''})"
            near = self._near(name, 0.75)
            needed = f"a flag that vLLM {self.version} has{hint}{near}"
            self.refuse(f"--{name}", "a flag of other releases", needed, Why.GONE)
            return
        if isinstance(value, str):
            said = parser.value_complaint(name, value, self.version, self._own)
            if said is not None:
                self.refuse(f"--{name}", excerpt.value(value), said.needed)


def _is_key(given: str, value: str | bool | None) -> bool:
    """Is it `-O3` or `-O 3`, of which the parser makes a key of an object first (utils/__init__.py of 0.10.1, `level`;
    utils/argparse_utils.py of 0.11.2, `mode`)? `--compilation-config 3` stays the number that it is."""
    return given == "-O" and isinstance(value, str) and value.isdecimal()


def _is_open(value: str | bool) -> bool:
    """Is something of it to be filled in: a variable that a shell would replace, a secret that was left out?"""
    return isinstance(value, str) and ("$" in value or "[hidden]" in value)


def _is_option(word: str) -> bool:
    """As argparse decides: a number below nought, a lone dash and a name with a space in it are no options."""
    return (
        word.startswith("-")
        and word != "-"
        and " " not in word.partition("=")[0]
        and not re.fullmatch(r"-\d+(?:\.\d+)?|-\.\d+", word)
    )

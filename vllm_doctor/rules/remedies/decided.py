"""What to change where a refusal's sentence does not say it: what vLLM's own test above the `raise` asks for.

An option is named only where the launch gives it, or where the test asks for one that is missing; of a key of the
model's config.json it is said what the code takes, as nobody should write another value into it.
"""

import ast
from collections.abc import Iterator

import msgspec

from vllm_doctor.knowledge.guards import Decider, GuardedRaise, guard
from vllm_doctor.knowledge.parser.keys import choices_of_key
from vllm_doctor.knowledge.versions import newest_known
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import each, says
from vllm_doctor.records.finding import Change, Scalar
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.compilation import NAME as COMPILATION
from vllm_doctor.rules.remedies.compilation import with_key
from vllm_doctor.rules.remedies.refusal import refusal_text, refused_by_vllm
from vllm_doctor.rules.remedies.requested_change import is_option
from vllm_doctor.rules.remedies.runs_behind import NEEDED
from vllm_doctor.rules.say import environment, set_flag, thing

_CHANGES = 2
_CHECKED = "vLLM's own check above the message asks for it"
_WAITS = "vLLM's own code waits this long, and what it waited for did not come: it needs longer, or never comes"
_READ = "vLLM's own check above the message reads this variable: give it a value that the check takes, or remove it"
_QUOTED = "the message refuses this variable's value: give one that the message accepts, or remove the variable"
_OURS = "VLLM_"
_SERVER = "the server works"
_FIELDS = "curl -s http://HOST:PORT/openapi.json   # the fields of each request"
_SAID = {
    ">": "at most {value}",
    ">=": "less than {value}",
    "<": "at least {value}",
    "<=": "more than {value}",
    "==": "another than {value}",
    "!=": "{value}",
    "in": "none of {value}",
    "not in": "one of {value}",
    "on": "off",
    "off": "on",
    "is": "set",
    "is not": "left out",
}
_UNSET = (None, False, "", 0)
# What every launch gives or may give decides a test without being what is wrong.
_OF_EVERY_LAUNCH = NEEDED | {"model", "attention-backend", "tokenizer", "revision", "code-revision", "download-dir"}
# Words of an option's name that say nothing of it.
_COMMON = frozenset({"config", "size", "model", "type", "enable", "disable", "name", "path", "num", "max"})
_SHORTEST = 4
# How a sentence says that one thing alone is taken.
_ALL_BUT = ("refuses-all-but", "refuses-all-but-before", "refuses-all-but-after")
# Of a request such a test says only that a field is there.
_BARE = frozenset({"on", "off", "is", "is not", ""})
# As many keys may decide one test that compares them.
_FEW = 2
# Keys that every such mapping has, which a sentence may name as a circumstance.
_OF_EVERY = frozenset({"kv_connector", "kv_role", "ec_connector", "ec_role", "num_speculative_tokens"})
_OTHER_CONFIG = "take the model's own config.json, unchanged, or a checkpoint with other values"
_QUANTIZED = "quantization_config"
_SWITCHES = ("enable-", "disable-", "trust-", "async-", "enforce-")


def decided(case: Case, fault: Fault) -> tuple[Change, ...]:
    """The changes of what decides the refusal, as far as this launch and this release have it."""
    late = _ended_waiting(fault)
    if not (refused_by_vllm(case, fault) or of_front_end(fault) or late):
        return ()
    told = _told(case, fault)
    inside = _keys_named(case, told)
    found = guard_of(case, fault)
    if inside or found is None:
        return (inside or _values_named(case, told))[:_CHANGES]
    made = [
        change
        for one in _once(found.by)
        if (one.sign or one.kind != "variable" or _of_a_value(fault))
        and (change := _longer(case, one) if late else _change(case, one, found, told)) is not None
    ]
    asked = _of_request(found)
    serving = case.run is not None and case.run.up_at(fault)
    of_one = asked if serving else _of_model(case, fault, found, told)
    told_by_test = (*((of_one,) if of_one is not None else ()), *made)
    return (told_by_test or _values_named(case, told))[:_CHANGES]


def _ended_waiting(fault: Fault) -> bool:
    """Did vLLM's own code give up a wait?"""
    root = fault.crash.root if fault.crash is not None else None
    if root is None or root.kind != "TimeoutError" or not root.frames:
        return False
    return says(root.frames[-1].file, "call-of-vllm-or-pydantic")


def _of_a_value(fault: Fault) -> bool:
    """Does its class say that a value is wrong, rather than a state?"""
    return fault.crash is not None and fault.crash.root.kind in {"ValueError", "ValidationError", "AssertionError"}


def of_front_end(fault: Fault) -> bool:
    """Did FastAPI refuse a request for what a check of vLLM's said of it? It raises in a file of its own."""
    return fault.crash is not None and fault.crash.root.kind == "RequestValidationError"


def stays(case: Case, fault: Fault) -> bool:
    """Does the newest release refuse the very same, by the same test of the same values?"""
    root = fault.crash.root if fault.crash is not None else None
    if case.version is None or root is None or not root.frames:
        return False
    here, told = guard_of(case, fault), _told(case, fault)
    then = guard(root.frames[-1].file, told, newest_known(), gone=True)
    if here is None or then is None or not here.by or here.pieces != then.pieces or here.by != then.by:
        return False
    return all(one.kind == "model" and one.sign and one.value for one in here.by)


def _once(by: tuple[Decider, ...]) -> list[Decider]:
    """Each thing once, as its most definite test has it: a bound says more than that something is set at all."""
    told: dict[tuple[str, str, str], Decider] = {}
    for one in by:
        kept = told.get((one.kind, one.name, one.key))
        if kept is None or (one.sign and kept.sign in {"", "is not"}):
            told[one.kind, one.name, one.key] = one
    return list(told.values())


def guard_of(case: Case, fault: Fault) -> GuardedRaise | None:
    """The refusal as the release's source has it; None where it has none of these words in this file."""
    root = fault.crash.root if fault.crash is not None else None
    if root is None or not root.frames:
        return None
    return guard(root.frames[-1].file, _told(case, fault), case.version)


def _told(case: Case, fault: Fault) -> str:
    """The refusal's words; of an assertion without any its line of code, as Python writes it."""
    told, root = refusal_text(case, fault), fault.crash.root if fault.crash is not None else None
    if told.strip() or root is None or root.kind != "AssertionError" or not root.frames:
        return told
    try:
        return ast.unparse(ast.parse(root.frames[-1].code))
    except (SyntaxError, ValueError, RecursionError):
        return told


def _change(case: Case, one: Decider, whole: GuardedRaise, told: str) -> Change | None:
    match one.kind:
        case "option":
            return _of_option(case, one, whole, told) if is_option(case, one.name) else None
        case "extra":
            why = f"its extra setting `{one.key}`: {_wanted(one) or _CHECKED}"
            return set_flag(case, one.name, None, Direction.CHANGE, why) if one.name in case.flags else None
        case "variable":
            return _of_variable(case, one, whole, told)
        case _:
            return None


def _of_variable(case: Case, one: Decider, whole: GuardedRaise, told: str) -> Change | None:
    """A test that holds only where a variable is set shows that it is, whether or not the log says so."""
    fact, given = case.has_env(one.name), case.env(one.name) not in {None, "", "0"}
    held = given or (fact is not None and fact.default in _UNSET and len(whole.by) == 1)
    if one.sign in {"on", "==", "is not"}:
        return environment(one.name, Direction.REMOVE, _CHECKED) if held else None
    if not one.sign and held and len(whole.by) == 1 and _about(one.name.lower(), told, "_"):
        return environment(one.name, Direction.CHANGE, _READ, before=case.env(one.name))
    wanted = one.sign == "off" and not given and one.name in told
    return environment(one.name, Direction.SET, _CHECKED, to="1") if wanted else None


def _longer(case: Case, one: Decider) -> Change | None:
    """Where a wait ended, what says how long it is."""
    if "TIMEOUT" not in one.name.upper():
        return None
    if one.kind == "variable":
        return environment(one.name, Direction.RAISE, _WAITS, before=case.env(one.name))
    return set_flag(case, one.name, None, Direction.RAISE, _WAITS) if one.kind == "option" and not one.key else None


def _of_option(case: Case, one: Decider, whole: GuardedRaise, told: str) -> Change | None:
    own = one.key.replace("_", "-")
    if one.name not in case.flags and own in case.flags and is_option(case, own):
        one = one._replace(name=own, key="")  # a key of the configuration that has an option of its own name
    given = one.name in case.flags and case.flags[one.name] is not False
    missing = one.sign == "off" or (one.sign == "is" and one.value == "None")
    if missing and given:
        one = one._replace(sign="", value="")  # the test is of something that was made of what the launch gives
    if one.key:
        if (word := _only(case, one, told)) and one.name == COMPILATION:
            return with_key(case, one.key, word, f"its `{one.key}`: the message takes {word} alone")
        given = given or _unseen(case, one, whole)
        why = f"its `{one.key}`: {_wanted(one) or _CHECKED}"
        about = bool(one.sign) or one.key in told or _quotes(case, one, told) or not case.launched
        return set_flag(case, one.name, None, Direction.CHANGE, why) if given and about else None
    if missing and not given:
        alone = len(whole.by) == 1 and _about(one.name, told) and one.name.startswith(_SWITCHES)
        return set_flag(case, one.name, True, Direction.ADD, _CHECKED) if alone else None
    named = _about(one.name, told) and _alone_named(case, one.name, told)
    if not given and (not _unseen(case, one, whole) or not (named or one.sign)):
        return None
    if given and not one.sign and not named and (len(whole.by) > 1 or one.name in _OF_EVERY_LAUNCH):
        return None
    direction, to = _moved(one)
    wanted = _wanted(one)
    return set_flag(case, one.name, to, direction, f"{_CHECKED}: {wanted}" if wanted else _CHECKED)


def _unseen(case: Case, one: Decider, whole: GuardedRaise) -> bool:
    """Nothing is known of the launch, and this option alone decides: was it given, as its default is not refused?"""
    fact = case.has_flag(one.name)
    if case.launched or len(whole.by) > 1 or one.name in _OF_EVERY_LAUNCH or fact is None:
        return False
    if one.key or not one.sign:
        return fact.default is None or not one.key
    return one.sign in {"on", "is not", ">", ">=", "=="} and fact.default in _UNSET


def _only(case: Case, one: Decider, told: str) -> str:
    """The one word that a key may be of which the sentence says that it takes it alone."""
    said = told.replace(".", " ").replace(",", " ").split()
    choices = choices_of_key(one.name, one.key, case.version) if case.version is not None else ()
    named = [word for word in choices if word in said]
    return named[0] if len(named) == 1 and any(says(told, one) for one in _ALL_BUT) else ""


def _alone_named(case: Case, name: str, told: str) -> bool:
    """Does the sentence write no other option of the launch by its whole name?"""
    said = {found["word"].replace("_", "-") for found in each("word-of-code", told)} & set(case.flags)
    return not said or name in said


def _quotes(case: Case, one: Decider, told: str) -> bool:
    """Does the sentence quote what the launch gives this key?"""
    given = _mapping(case.flags.get(one.name, ""))
    value = given.get(one.key) if isinstance(given, dict) else None
    return isinstance(value, str) and len(value) >= _SHORTEST and value in told


def _moved(one: Decider) -> tuple[Direction, Scalar]:
    """Which way the value has to go, and how far where the test says it."""
    value = _literal(one.value)
    number = value if isinstance(value, int) and not isinstance(value, bool) else None
    match one.sign:
        case ">" | ">=" if number is not None:
            return Direction.LOWER, number - (one.sign == ">=")
        case "<" | "<=" if number is not None:
            return Direction.RAISE, number + (one.sign == "<=")
        case "!=" if isinstance(value, str | int) and not isinstance(value, bool):
            return Direction.SET, value
        case "on" | "is not":
            return Direction.REMOVE, None
        case _:
            return Direction.CHANGE, None


def _wanted(one: Decider, *, off: str = "off", on: str = "on") -> str:
    """What the value has to be, in words; empty where the test does not say it plainly."""
    value = _literal(one.value)
    several = value if isinstance(value, tuple | list | set | frozenset) else ()
    shown = ", ".join(str(held) for held in several if held != "") or str(value)
    told = "left out" if one.sign == "==" and one.value == "None" else _SAID.get(one.sign, "").format(value=shown)
    told = {"on": off, "off": on}.get(one.sign, told)
    return f"it must be {told}" if told else ""


def _literal(value: str) -> object:
    try:
        held: object = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value
    return held


def _about(name: str, told: str, sign: str = "-") -> bool:
    """Does the sentence speak of the option or key, by a word of its name or by its first letters?"""
    said = "".join(c if c.isalnum() else " " for c in told.lower()).split()
    parts = name.replace(".", sign).split(sign)
    initials = "".join(part[0] for part in parts if part != "size")
    words = {part for part in parts if len(part) >= _SHORTEST and part not in _COMMON}
    return bool(words & set(said)) or (len(initials) > 1 and initials in said)


def _of_request(found: GuardedRaise) -> Change | None:
    fields = [one for one in _once(found.by) if one.kind == "request"]
    if not fields:
        return None
    named = " and ".join(f"`{name}`" for name in dict.fromkeys(one.name for one in fields))
    wanted = _wanted(fields[0]) if len(fields) == 1 and fields[0].sign not in _BARE else ""
    why = f"{_SERVER}: its check is about {named} of the request{': ' + wanted if wanted else ''}"
    return thing(ChangeKind.OS, "client-input", Direction.REPAIR, why, command=_FIELDS)


def _of_model(case: Case, fault: Fault, found: GuardedRaise, told: str) -> Change | None:
    keys = [one for one in _once(found.by) if one.kind == "model"]
    plain = all(one.sign or one.name == _QUANTIZED for one in keys)
    plain = plain or (len(keys) <= _FEW and any(_about(one.name, told, "_") for one in keys))
    if not keys or not plain or any(one.kind != "model" for one in found.by):
        return None
    if all(one.name.partition(".")[0] == _QUANTIZED for one in keys):
        named = " and ".join(f"`{one.name.removeprefix(f'{_QUANTIZED}.')}`" for one in keys)
        why = f"this release refuses how the checkpoint is quantized ({named}): take one that is quantized otherwise"
        return thing(ChangeKind.FLAG, "model", Direction.CHANGE, why)
    named = " and ".join(f"`{name}`" for name in dict.fromkeys(one.name for one in keys))
    wanted = f": {_wanted(keys[0], off='false', on='true')}" if len(keys) == 1 and keys[0].sign else ""
    why = f"refuses {named} of config.json{wanted}; {_OTHER_CONFIG}"
    if case.has_flag("speculative-config") is not None and case.effective("speculative-config") is not None:
        file = fault.crash.root.frames[-1].file if fault.crash is not None and fault.crash.root.frames else ""
        if says(file, "call-of-a-draft"):
            whose = f"this release's code of the draft {why}, or serve without drafts"
            return set_flag(case, "speculative-config", None, Direction.CHANGE, whose)
    return thing(ChangeKind.FLAG, "model", Direction.CHANGE, f"this release's code of the model {why}")


def _keys_named(case: Case, told: str) -> tuple[Change, ...]:
    """Options whose value is a mapping that has a key of the refusal's own words."""
    said = {found["word"] for found in each("word-of-code", told)}
    made = []
    for name in case.flags:
        keys = [key for key in _inside(_mapping(case.flags[name])) if key in said]
        if keys and is_option(case, name):
            why = f"the message is about its `{keys[0]}`: give a value that the message accepts, or leave it out"
            made.append(set_flag(case, name, None, Direction.CHANGE, why))
    return tuple(change for change in made if change is not None)


def _values_named(case: Case, told: str) -> tuple[Change, ...]:
    """Options whose value is a mapping that holds a text which the refusal quotes: a path, an address, a class."""
    made = []
    for name in case.flags:
        keys = [key for key, text in _texts(_mapping(case.flags[name])) if _stands_in(text, told)]
        if keys and is_option(case, name):
            why = f"the message quotes its `{keys[0]}`: give a value that the message accepts, or leave it out"
            made.append(set_flag(case, name, None, Direction.CHANGE, why))
    given = case.variables
    quoted = (name for name, text in given.items() if name.startswith(_OURS) and _stands_in(text, told))
    made.extend(environment(name, Direction.CHANGE, _QUOTED, before=given[name]) for name in quoted)
    return tuple(change for change in made if change is not None)


def _stands_in(text: str, told: str) -> bool:
    """No common word, and not a part of a longer one."""
    before, found, after = told.partition(text)
    if len(text) < _SHORTEST or (text.isalpha() and text.islower()) or not found:
        return False
    return not (before[-1:].isalnum() or after[:1].isalnum())


def _texts(value: object) -> Iterator[tuple[str, str]]:
    """The keys of a mapping that hold a text, those further in as well."""
    for key, held in value.items() if isinstance(value, dict) else ():
        if isinstance(key, str) and isinstance(held, str):
            yield key, held
        yield from _texts(held)
    for held in value if isinstance(value, list) else ():
        yield from _texts(held)


def _inside(value: object) -> Iterator[str]:
    """The keys of two words and more of a mapping, those further in as well."""
    if isinstance(value, dict):
        for key, held in value.items():
            if isinstance(key, str) and "_" in key and key not in _OF_EVERY:
                yield key
            yield from _inside(held)
    elif isinstance(value, list):
        for held in value:
            yield from _inside(held)


def _mapping(value: str | bool) -> object:
    """What an option that takes a mapping was given: JSON as it is typed, or as Python prints it in a log."""
    if not isinstance(value, str) or not value.lstrip().startswith("{"):
        return None
    try:
        return msgspec.json.decode(value.encode())
    except msgspec.DecodeError:
        return _literal(value)

"""One wish of a refusal as a change that this release can follow."""

from collections.abc import Iterator

from msgspec.structs import replace

from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.refusals import Wish, words
from vllm_doctor.log.match import each
from vllm_doctor.records.finding import Change, Scalar
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.allowed_value import CHOOSES, allowed, meant_value, replacement, without_choice
from vllm_doctor.rules.say import environment, inventory_var, set_flag, thing

WHY = {
    Direction.ADD: "the message asks for it",
    Direction.SET: "the message asks for this value",
    Direction.REMOVE: "vLLM cannot combine it with the rest of the launch, or with this model, GPU or release",
    Direction.RAISE: "the check that failed asks for at least this much",
    Direction.LOWER: "the check that failed allows no more than this",
    Direction.CHANGE: "a value that the message accepts",
}
# What else an option does than the message says.
_BESIDE = {
    "trust-remote-code": "Python code of the model's repository then runs on this host: read it, and pin its revision",
}
# On by themselves in newer releases, or given by a variable or a file.
_ALSO_UNSAID = frozenset(
    {"enable-prefix-caching", "enable-chunked-prefill", "async-scheduling", "attention-backend", "reasoning-parser"}
    | {"tool-call-parser", "load-format", "tokenizer-mode", "dtype"}
)
# Methods whose plain kernel a message of Marlin's asks for: it names one, whatever the checkpoint's own is.
_PLAIN = ("gptq", "awq")
# Not raised for the sake of another option.
_NOT_RAISED = frozenset({"max-model-len", "tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"})
_OTHER = {"0": "1", "1": "0"}
_SWITCHES = ("enable-", "disable-", "trust-", "enforce-", "async-", "kv-sharing-", "allow-")


def is_option(case: Case, name: str) -> bool:
    """May this release have an option of that name, and may a refusal speak about it?"""
    at = case.version or _last_with(name)
    fact = versions.flag(_without_no(name), at) if at is not None else None
    return fact is not None and fact.exists is not False and fact.name not in words().never


def _last_with(name: str) -> versions.Version | None:
    """The last release with this option: one that names it in a refusal is no later one; None where none had it."""
    fact = versions.flag(_without_no(name), versions.newest_known())
    return versions.parse_version(fact.last) if fact is not None else None


def requested_changes(case: Case, wish: Wish, told: str) -> Iterator[Change]:
    """The change that a wish means here; none where it changes nothing, or where the option is not in use."""
    if wish.kind == "flag" and wish.direction is Direction.CHANGE and wish.exact and not wish.field and allowed(told):
        yield from (c for c in replacement(case, wish.name, told) if c is not None)
        return
    if wish.kind == "env":
        change = _variable(case, wish, told)
    else:
        change = _option(case, wish) if is_option(case, wish.name) else None
    if change is not None:
        yield change


def _without_no(name: str) -> str:
    return name.removeprefix("no-") if versions.flag(name, versions.newest_known()) is None else name


def _variable(case: Case, wish: Wish, told: str) -> Change | None:
    if wish.name in words().debug and wish.direction is not Direction.REMOVE:
        return None
    fact = versions.env(wish.name, case.release)
    built_with = fact is None and wish.name.startswith("VLLM_")
    if fact is None and wish.direction is Direction.CHANGE:
        return None  # a word in capitals that no table has: only a message that says what to do makes it a variable
    if (built_with or (fact is not None and fact.exists is False)) and wish.direction is not Direction.REMOVE:
        return None
    if wish.direction is Direction.CHANGE and (choices := allowed(told)):
        why = f"it takes one of {', '.join(choices[:12])}"
        return environment(wish.name, Direction.CHANGE, why, to=meant_value(told))
    if wish.direction is Direction.CHANGE and wish.name.endswith("_ATTENTION_BACKEND"):
        return environment(wish.name, Direction.REMOVE, CHOOSES)
    to = wish.to if wish.direction in {Direction.ADD, Direction.SET} else None
    direction = Direction.SET if wish.direction is Direction.ADD else wish.direction
    has = next((one["value"] for one in each("variable-has", told) if one["variable"] == wish.name), None)
    if to is not None and has is not None and _switched(has) == to:
        to = _OTHER.get(to, to)  # "is 0: set it to 0 or 1", and it is that already
    return environment(wish.name, direction, WHY[wish.direction], to=value_of_sentence(to))


def _switched(value: str) -> str:
    """A switch as a shell writes it: Python prints what it read of one as True or False."""
    return {"True": "1", "False": "0"}.get(value, value)


def _option(case: Case, wish: Wish) -> Change | None:
    name = _without_no(wish.name)
    if name != wish.name:  # its `no-` form
        back = wish.direction is Direction.REMOVE
        direction = Direction.ADD if back else Direction.REMOVE
        return set_flag(case, name, back, direction, WHY[wish.direction], until=_last_with(name))
    if name == "quantization" and wish.to in _PLAIN:
        whose = f"{case.effective(name)} {case.model}".lower()
        wish = replace(wish, to=next((m for m in _PLAIN if m in whose), wish.to))
    given = case.effective(name)
    used = _in_use(case, name, given)
    if wish.field:
        inside = f"its `{wish.field}`: {wish.direction.value}" + (f" to {wish.to}" if wish.to else "")
        change = thing(ChangeKind.FLAG, name, Direction.CHANGE, inside, inventory=inventory_var(name))
        return change if wish.exact or used else None
    if wish.direction is Direction.RAISE and name in _NOT_RAISED and given is None and wish.to is None:
        return None
    turned_off = wish.direction is Direction.REMOVE or (wish.direction is Direction.LOWER and wish.to is None)
    if (turned_off or not wish.exact) and not used:
        return None
    direction, to = _value(case, wish, given)
    if direction is Direction.CHANGE and to is None and used and (chosen := without_choice(case, name)) is not None:
        return chosen
    return set_flag(case, name, to, direction, _BESIDE.get(name, WHY[wish.direction]), until=_last_with(name))


def _value(case: Case, wish: Wish, given: str | bool | None) -> tuple[Direction, Scalar]:
    """The direction and the value in this option's terms."""
    name, to = wish.name, value_of_sentence(wish.to)
    match wish.direction:
        case Direction.REMOVE if name.endswith("parallel-size"):
            return Direction.LOWER, 1
        case Direction.REMOVE:
            return Direction.REMOVE, False if wish.to == "False" else None
        case Direction.ADD if to is None and name.startswith(_SWITCHES):
            return Direction.ADD, True
        case Direction.ADD if to is not None and not isinstance(to, bool):
            return Direction.SET, to
        case Direction.ADD if to is None and given is not None:
            return Direction.CHANGE, None
        case Direction.RAISE | Direction.LOWER:
            return wish.direction, _bounded(case, wish, to)
        case Direction.CHANGE:
            return Direction.CHANGE, None
        case _:
            return wish.direction, to


def _in_use(case: Case, name: str, given: str | bool | None) -> bool:
    """Is it in use? A size of one splits nothing; what is on by itself needs no option."""
    if not case.launched or name in _ALSO_UNSAID:
        return given is not False
    return given not in {None, False, "False", "None", ""} and not (name.endswith("-size") and given == "1")


def _bounded(case: Case, wish: Wish, to: Scalar) -> Scalar:
    """A bound only where it moves the value the right way; half the split where none is given."""
    now, up = case.number(wish.name), wish.direction is Direction.RAISE
    if up and wish.name.endswith("parallel-size"):
        return None
    if isinstance(to, int) and now is not None and (to <= now if up else to >= now):
        return None
    if to is None and wish.name == "tensor-parallel-size" and now is not None and now > 1:
        return max(int(now) // 2, 1)
    return to


def value_of_sentence(value: str | None) -> Scalar:
    """A value of a sentence as one of the option: a switch, a number or a word."""
    if value is None:
        return None
    if value in {"True", "true", "False", "false"}:
        return value.lower() == "true"
    return int(value) if value.removeprefix("-").isdecimal() and len(value) < 13 else value

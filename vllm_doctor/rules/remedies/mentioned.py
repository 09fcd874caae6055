"""The option that a refusal speaks of, where its sentence does not say what is wanted of it.

vLLM writes an option as it is typed, as the field of its configuration, or as plain words in the same order
("distributed executor backend"); or it quotes the value that the launch gave. The release's table holds the names, so a
sentence needs no pattern of its own.
"""

from vllm_doctor.knowledge.refusals import options_named, values_quoted
from vllm_doctor.knowledge.versions import flag_names
from vllm_doctor.log.fault import Fault
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.refusal import refusal_text, refused_by_vllm
from vllm_doctor.rules.remedies.requested_change import is_option
from vllm_doctor.rules.say import set_flag

_WHY = "the message is about this option: give a value that the message accepts, or remove the option"
_QUOTED = "the message refuses the value that the launch gives this option"
# A sentence lists what it found at its end; what it is about stands before.
_READ, _CHANGES = 600, 2


def mentioned(case: Case, fault: Fault, *, used: bool = False) -> tuple[Change, ...]:
    """The options that vLLM's own refusal names, or whose value it quotes; `used`: only options given."""
    if not refused_by_vllm(case, fault):
        return ()
    told = refusal_text(case, fault)[:_READ]
    every = options_named(told, flag_names(case.release))
    named = [name for name in every if is_option(case, name) and (not used or name in case.flags)]
    if named:
        return _changes(case, named, _WHY)
    quoted = [name for name in values_quoted(told, case.flags) if is_option(case, name)]
    return _changes(case, sorted(quoted, key=lambda name: -_spoken(name, told)), _QUOTED)


def switches_named(case: Case, fault: Fault) -> tuple[Change, ...]:
    """The switches that the launch turns on and that a refused request meets: without them vLLM takes it."""
    return tuple(change for change in mentioned(case, fault, used=True) if change.direction is Direction.REMOVE)


def _spoken(name: str, told: str) -> int:
    """How many words of the option the message has: several options may have the value that it quotes."""
    return sum(word in told.lower() for word in name.split("-"))


def _changes(case: Case, names: list[str], why: str) -> tuple[Change, ...]:
    made = (set_flag(case, name, None, _direction(case, name), why) for name in names[:_CHANGES])
    return tuple(change for change in made if change is not None)


def _direction(case: Case, name: str) -> Direction:
    """A switch is taken away, a value is another."""
    return Direction.REMOVE if case.flags.get(name) is True else Direction.CHANGE

"""Answers that are data (`knowledge/answers.py`) as changes that this release has."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.answers import Answer, applies, filled_in, groups
from vllm_doctor.knowledge.hub import is_name
from vllm_doctor.knowledge.versions import FlagFact, Version
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.records.finding import Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Applicability, ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.remedies.host_pool import pools_by_calls
from vllm_doctor.rules.remedies.other_kernel import other_kernel
from vllm_doctor.rules.remedies.requested_change import value_of_sentence
from vllm_doctor.rules.remedies.required_package import (
    names_a_release,
    what_vllm_asks_for,
    within_what_vllm_asks_for,
)
from vllm_doctor.rules.say import environment, set_flag, thing, upgrade

# In a command: the model, where it is one of the hub.
_MODEL = "{model}"
_OFF = (None, False, "False", "None", "", "auto", "0")
# Nothing is less than one rank.
_RANKS, _LEAST = "-parallel-size", ("1", 1)
_V1 = "0.6.4"
_THINGS = {"os": ChangeKind.OS, "package": ChangeKind.PACKAGE, "hardware": ChangeKind.HARDWARE}
_READ = {
    "flag": {Signal.LOG, Signal.LAUNCH, Signal.VERSION},
    "env": {Signal.LAUNCH},
    "upgrade": {Signal.LOG, Signal.VERSION},
    "kernel": {Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS},
    "pool": {Signal.LOG, Signal.LAUNCH, Signal.VERSION},
}


def reads(answer: Answer) -> set[Signal]:
    """The signals that an answer needs beside the message."""
    names = [name for name in answer.options if name.startswith("VLLM_")]
    of_model = {Signal.LAUNCH} if _MODEL in (answer.command or "") else set()
    # A value that the variable has already is not offered again, so that the launch is asked for it.
    of_env = {Signal.VERSION} if answer.kind == "env" and (names or answer.to) else set()
    of_env |= {Signal.LAUNCH} if answer.kind == "env" and answer.to else set()
    of_env |= {Signal.LOG, Signal.VERSION} if names_a_release(answer) else set()
    return _READ.get(answer.kind, set()) | of_model | of_env


def changes_of(
    case: Case,
    answers: Sequence[Answer],
    said: str,
    fault: Fault | None = None,
    fields: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Change, ...]:
    """The answers that apply to what was `said` and to the fault, in their order, as far as the release has them;
    `fields` are those of the message, which `to`, `why` and `command` may name."""
    ids = fault.ids if fault is not None else frozenset()
    found: list[Change | None] = []
    for answer in answers:
        here = applies(answer, said) and (not answer.messages or ids & frozenset(answer.messages))
        if not here or not _given(case, answer) or _untimely(case, answer, fault):
            continue
        if answer.kind in {"kernel", "pool"}:
            make = other_kernel if answer.kind == "kernel" else pools_by_calls
            found += make(case, fault) if fault is not None else ()
        else:
            told = {**groups(answer, said), **fields}
            known = _filled(within_what_vllm_asks_for(case, answer), told)
            asked = what_vllm_asks_for(case, answer)
            made = _change(case, known, _command(case, known, told)) if known is not None and asked is None else asked
            found.append(made)
    return tuple(change for change in found if change is not None)


def _filled(answer: Answer, fields: Mapping[str, str]) -> Answer | None:
    """The answer with the message's figures in it; None where one of them is not known."""
    to, why = filled_in(answer.to or "", fields), filled_in(answer.why, fields)
    options = tuple(name for one in answer.options if (name := filled_in(one, fields)) is not None)
    if to is None or why is None or (answer.options and not options):
        return None
    return replace(answer, to=to or answer.to, why=why, options=options)


def _given(case: Case, answer: Answer) -> bool:
    if answer.given.endswith(_RANKS) and answer.direction is Direction.LOWER and case.effective(answer.given) in _LEAST:
        return False
    if not answer.given or case.effective(answer.given) not in _OFF:
        return True
    return answer.or_unknown and not case.launched


def _untimely(case: Case, answer: Answer, fault: Fault | None) -> bool:
    """Is what the answer says not yet, or no longer, so in this release? V1 came in 0.6.4 (vllm/v1/engine/core.py)."""
    if answer.since and case.version is not None and case.version < versions.as_version(answer.since):
        return True
    if not answer.before:
        return False
    if case.version is not None:
        return case.version >= versions.as_version(answer.before)
    of_v1 = case.run is not None and case.run.engine == "V1"
    of_v1 = of_v1 or (fault is not None and any(says(file, "call-of-v1") for file in fault.files))
    return of_v1 and versions.as_version(answer.before) <= versions.as_version(_V1)


def _command(case: Case, answer: Answer, fields: Mapping[str, str]) -> str | None:
    if answer.command is None or "{" not in answer.command:
        return answer.command
    name = case.model or "" if _MODEL in answer.command else ""
    return (
        filled_in(answer.command, {**fields, "model": name if is_name(name) else ""}, quoted=True) or answer.otherwise
    )


def _change(case: Case, answer: Answer, command: str | None) -> Change | None:
    match answer.kind:
        case "upgrade":
            return upgrade(case, answer.why)
        case "env":
            name = answer.options[0]
            fact = case.has_env(name)
            ours = name.startswith("VLLM_") and fact is None
            if (ours and not _of_some_release(case, versions.env, name)) or answer.to == (case.env(name) or ""):
                return None
            if answer.to is not None and fact is not None and fact.choices and answer.to not in fact.choices:
                return None  # the release has the variable, and would refuse this value
            return environment(name, answer.direction, answer.why, to=answer.to, command=command)
        case "flag":
            change = _flag(case, answer)
            shows = change is not None and change.after is None and change.direction is not Direction.REMOVE
            return replace(change, command=command) if change is not None and shows and command else change
    return thing(_THINGS[answer.kind], answer.options[0], answer.direction, answer.why, to=answer.to, command=command)


def _flag(case: Case, answer: Answer) -> Change | None:
    names = [o for o in answer.options if case.has_flag(o) is not None]
    name = next((o for o in names if case.effective(o) not in _OFF), next(iter(names), ""))
    if name:
        return set_flag(case, name, value_of_sentence(answer.to), answer.direction, answer.why)
    name = next((o for o in answer.options if _of_some_release(case, versions.flag, o)), "")
    if not name or answer.direction is Direction.REMOVE:
        return None
    why = f"{answer.why} (in the releases that have this option; the log does not tell its release)"
    review = Applicability.NEEDS_REVIEW
    return Change(ChangeKind.FLAG, name, None, value_of_sentence(answer.to), answer.direction, review, None, {}, why)


def _of_some_release(case: Case, known: Callable[[str, Version | str], FlagFact | None], name: str) -> bool:
    """Is the release unknown, and does one have it that takes the launch's options?"""
    fact = known(name, versions.newest_known()) if case.version is None else None
    return fact is not None and (case.last_to_take is None or versions.as_version(fact.first) <= case.last_to_take)

"""The changes that a refusal of vLLM itself asks for, under the names of this release."""

import shlex
from pathlib import PurePosixPath

from vllm_doctor.knowledge.distributions import built_for, listed
from vllm_doctor.knowledge.refusals import VllmPart, package, place_of_refusal, wishes, words
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says, without
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.machine_kind import machine_kind
from vllm_doctor.rules.gates.named_fault import text
from vllm_doctor.rules.remedies.attention_backend import other_attention
from vllm_doctor.rules.remedies.refused_backends import without_settings
from vllm_doctor.rules.remedies.requested_change import WHY, is_option, requested_changes, value_of_sentence
from vllm_doctor.rules.remedies.weights_split import smaller_split
from vllm_doctor.rules.say import environment, set_flag, thing, upgrade

# Exceptions with which vLLM's code refuses; what torch and CUDA raise is no refusal.
_REFUSING = frozenset(
    {"ValueError", "TypeError", "AssertionError", "NotImplementedError", "KeyError", "RuntimeError", "ValidationError"}
    | {"VLLMValidationError", "MemoryError", "ImportError", "ModuleNotFoundError", "ArgumentTypeError"}
)
_IMPORTING = frozenset({"ImportError", "ModuleNotFoundError"})
# More are other words for the same.
_CHANGES = 3


def refusal_text(case: Case, fault: Fault) -> str:
    """The refusal's own words, without what pydantic adds."""
    message = fault.crash.root.message if fault.crash is not None else text(case, fault)
    return without("pydantic-input", message)


def refused_by_vllm(case: Case, fault: Fault) -> bool:
    """Did vLLM's own code raise it, with an exception that refuses?"""
    if fault.crash is None or fault.crash.root.kind not in _REFUSING:
        return False
    frames = fault.crash.root.frames
    if not frames:
        return case.run is not None and case.run.is_vllm
    return says(frames[-1].file, "call-of-vllm-or-pydantic")


def asked(case: Case, fault: Fault) -> tuple[Change, ...]:
    """What the refusal asks for, the most definite first; empty where it names nothing that this release has."""
    told = refusal_text(case, fault)
    if not refused_by_vllm(case, fault) or says(told, "refusal-of-memory") or says(told, "names-late-error"):
        return ()
    split = smaller_split(case, fault, told)
    if split is not None:
        return (split,)
    if says(told, "no-attention-backend"):
        return without_settings(case, told)  # the names in its list are of no option
    found = wishes(told, lambda name: is_option(case, name))
    serving = case.run is not None and case.run.up_at(fault)
    made = [c for w in found if w.exact or not serving for c in requested_changes(case, w, told)]
    of_class = None if any(w.exact for w in found) else _of_class(case, told)
    once = {(c.kind, c.name): c for c in reversed([*made, *([of_class] if of_class is not None else [])])}
    return tuple(reversed(once.values()))[:_CHANGES]


def asks_by_name(case: Case, fault: Fault) -> bool:
    """Does the refusal say what to do with an option, and not only that two things do not go together?"""
    told = refusal_text(case, fault)
    if not refused_by_vllm(case, fault):
        return False
    exact = any(w.exact for w in wishes(told, lambda name: is_option(case, name)))
    return exact or smaller_split(case, fault, told) is not None


_THERE = "pip list   # is it in the environment that runs vLLM?"


def packages(case: Case, fault: Fault) -> tuple[Change, ...]:
    """The package that the refusal asks for."""
    # An import that failed says which package it wants, whoever's code it is.
    imports = fault.crash is not None and fault.crash.root.kind in _IMPORTING
    asked_for = imports or "extra-missing" in fault.ids or refused_by_vllm(case, fault)
    return packages_named(case, refusal_text(case, fault)) if asked_for else ()


def packages_named(case: Case, said: str) -> tuple[Change, ...]:
    """The package that a sentence tells its reader to install."""
    wanted = package(said)
    if wanted is None:
        return ()
    if not built_for(wanted.name, machine_kind(case)):
        return ()
    direction = Direction.UPGRADE if wanted.newer else Direction.ADD
    why = "the message names this package; install it in the environment that runs vLLM"
    spec = wanted.spec or wanted.name
    to = wanted.spec if wanted.spec != wanted.name else None
    # A log is written by others: only a package whose name is known comes into a command.
    known = [shlex.quote(spec), *(name for name in wanted.also if listed(name) is not None)]
    command = f"pip install {' '.join(known)}" if listed(wanted.name) is not None else _THERE
    return (thing(ChangeKind.PACKAGE, wanted.name, direction, why, to=to, command=command),)


def unbuilt(case: Case, fault: Fault) -> str | None:
    """The package that the refusal asks for, where nobody builds it for this machine."""
    imports = fault.crash is not None and fault.crash.root.kind in _IMPORTING
    wanted = package(refusal_text(case, fault)) if imports or refused_by_vllm(case, fault) else None
    return wanted.name if wanted is not None and not built_for(wanted.name, machine_kind(case)) else None


def by_place(case: Case, fault: Fault) -> Change | None:
    """The option that the part of vLLM obeys which refused, where its sentence names none."""
    if not refused_by_vllm(case, fault) or fault.crash is None or not fault.crash.root.frames:
        return None
    told, file = refusal_text(case, fault), fault.crash.root.frames[-1].file
    if says(told, "refusal-of-memory"):
        return None
    place = place_of_refusal(file, told) if says(told, "refusal") else None
    return _of_place(case, fault, place) if place is not None else _of_its_file(case, file)


def _of_its_file(case: Case, file: str) -> Change | None:
    """Each class of the configuration that an option takes as JSON has a file of the option's name (vllm/config/)."""
    if not says(file, "call-of-configuration"):
        return None
    name = PurePosixPath(file).stem.removesuffix("_config").replace("_", "-") + "-config"
    why = "a key of this option has the refused value: give a value that the message accepts"
    return set_flag(case, name, None, Direction.CHANGE, why) if is_option(case, name) else None


def _of_place(case: Case, fault: Fault, place: VllmPart) -> Change | None:
    if "attention-backend" in place.options and place.direction is Direction.CHANGE:
        return other_attention(case, fault, place.why, first=(place.to,) if place.to else ())
    name = next((o for o in place.options if place.kind != "flag" or o == "model" or is_option(case, o)), None)
    to = value_of_sentence(place.to)
    match place.kind:
        case "package":
            return upgrade(case, place.why)
        case "env":
            return environment(place.options[0], place.direction, place.why, to=to)
        case "os":
            return thing(ChangeKind.OS, place.options[0], place.direction, place.why)
        case "flag":
            return set_flag(case, name, to, place.direction, place.why) if name is not None else None


def _of_class(case: Case, told: str) -> Change | None:
    """pydantic names the class of the configuration: the option of that class holds the value."""
    found = read("validation-error", told)
    options = words().classes.get(found["what"], ()) if found is not None else ()
    name = next((o for o in options if is_option(case, o)), None)
    return set_flag(case, name, None, Direction.CHANGE, WHY[Direction.CHANGE]) if name is not None else None

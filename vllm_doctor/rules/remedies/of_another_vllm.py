"""A name of vLLM's that a program takes and this release has not: which releases have it, by Python's own words.

`cannot import name`, `has no attribute`, `got an unexpected keyword argument` name the object and what it lacks; the
table knows when it came and went (knowledge/api).
"""

import msgspec

from vllm_doctor.knowledge import api
from vllm_doctor.knowledge.api import Span
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.say import thing, upgrade_to

_RAISED = frozenset({"TypeError", "AttributeError"})


class OfAnotherVllm(msgspec.Struct, frozen=True):
    """What the program takes, the releases that have it, and the change to one of them."""

    title: str
    changes: tuple[Change, ...]


def lacks_of_vllm(case: Case, fault: Fault) -> OfAnotherVllm | None:
    """By a method, an attribute or an argument of a class or a function of vLLM's."""
    root = fault.crash.root if fault.crash is not None else None
    if root is None or root.kind not in _RAISED or _asks_itself(fault):
        return None
    if (told := read("object-lacks", root.message)) is not None:
        return _answer(
            case, f"{told['owner']}.{told['name']}", api.span("members", told["owner"], told["name"], case.version)
        )
    if (told := read("call-lacks", root.message)) is None:
        return None
    owner, name = told["owner"], told["name"]
    found = api.span("arguments", owner, name, case.version)
    if found is None and owner.endswith(".__init__"):  # a record's fields are what it is made with
        found = api.span("members", owner.removesuffix(".__init__"), name, case.version)
    return _answer(case, f"{owner}({name}=…)", found)


def module_of_vllm(case: Case, fault: Fault, module: str) -> OfAnotherVllm | None:
    """By a module."""
    return None if _asks_itself(fault) else _answer(case, module, api.module(module, case.version))


def name_of_vllm(case: Case, fault: Fault, module: str, name: str) -> OfAnotherVllm | None:
    """By a name of a module."""
    if _asks_itself(fault):
        return None
    return _answer(case, f"{name} in {module}", api.span("names", module, name, case.version), api.moved(name))


def _asks_itself(fault: Fault) -> bool:
    """Is the line that failed vLLM's own? Then files of two releases lie in one folder."""
    frames = fault.crash.root.frames if fault.crash is not None else ()
    return bool(frames) and says(frames[-1].file, "call-of-vllm")


def _answer(case: Case, what: str, found: Span | None, now: str | None = None) -> OfAnotherVllm | None:
    if found is None:
        return None
    title = f"{what} is of vLLM {found.told}"
    if not found.ended:
        newer = upgrade_to(case, as_version(found.first), "the program was written for a vLLM that has it")
        return OfAnotherVllm(title, (newer,)) if newer is not None else None
    place = f"; later releases have the name in {now}" if now is not None else ""
    older = thing(
        ChangeKind.PACKAGE,
        "vllm-version",
        Direction.CHANGE,
        f"the program was written for one of these releases{place}: take the program's release for the installed vLLM, "
        "or this vLLM for it",
        to=found.last,
        before=case.version_text,
        command="pip show vllm",
    )
    return OfAnotherVllm(title, (older,))

"""One row a rule: a finding code with its declared inputs, its place in the flowchart and its judge."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from vllm_doctor.records.finding import Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Cause, Phase

if TYPE_CHECKING:
    from vllm_doctor.rules.case import Case


class Clear(msgspec.Struct, frozen=True):
    """Looked, and it is not that; `because` goes on the printed path."""

    because: str


class NotHere(msgspec.Struct, frozen=True):
    """The question does not arise here (no GPU, another engine generation)."""

    because: str


class Unseen(msgspec.Struct, frozen=True):
    """A signal that the question needs could not be read."""

    signals: frozenset[Signal]
    because: str = ""


Outcome: TypeAlias = Finding | Clear | NotHere | Unseen
Judge: TypeAlias = "Callable[[Case], Outcome]"


class Rule(msgspec.Struct, frozen=True):
    """One finding. `reads` are the signals its judge touches, `node` the box of the flowchart it answers.

    `rank` orders causes: what is lower explains what is higher (driver and hardware 0, another tenant 10, the host 20,
    arithmetic of the launch 30, workload 40, symptoms 90). `also` are further phases in which the same cause is found.
    `refines` names the codes that this rule is the more exact answer to: where both fire, the other is explained by it.
    A `fallback` counts only where no other rule fires.
    """

    code: str
    slug: str
    title: str
    node: str
    cause: Cause
    phase: Phase
    reads: frozenset[Signal]
    judge: Judge
    rank: int = 30
    also: frozenset[Phase] = frozenset()
    since: str = "0.1.0"
    refines: frozenset[str] = frozenset()
    fallback: bool = False


INTERNAL = "VD0001"
# Codes that were once given out; none is ever given to another finding.
RETIRED: frozenset[str] = frozenset()

_FAMILIES = ("startup", "burst", "pressure", "prefix", "launch", "host", "platform", "multigpu", "live")


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule, by code. A rule is a module of one of the families that has a `RULE`."""
    found: list[Rule] = []
    for family in _FAMILIES:
        package = import_module(f"vllm_doctor.rules.{family}")
        names = [m.name for m in iter_modules(package.__path__) if not m.name.startswith("_")]
        found.extend(import_module(f"{package.__name__}.{name}").RULE for name in names)
    return tuple(sorted(found, key=lambda r: r.code))


@cache
def by_code() -> dict[str, Rule]:
    """The rules by their codes."""
    return {rule.code: rule for rule in rules()}

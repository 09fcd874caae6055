"""A rule: its row in the order, the signals that its judge reads, and the judge with its possible outcomes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from vllm_doctor.records.finding import Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.rules.order import OrderRow, by_code

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


class Rule(OrderRow, frozen=True):
    """One finding: its row, and `reads`, the signals that its judge touches."""

    reads: frozenset[Signal]
    judge: Judge


def rule(code: str, *, reads: frozenset[Signal], judge: Judge) -> Rule:
    """The rule of this code. Raises KeyError for a code that has no row in ORDER.md."""
    return Rule(**msgspec.structs.asdict(by_code()[code]), reads=reads, judge=judge)

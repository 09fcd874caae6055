"""A restart from the diagnosis before it to the completion after it: minutes, in a thread of its own."""

import time
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol

from vllm_doctor.operate.guard.first_finding import Explanation
from vllm_doctor.operate.guard.memory import Decision, DecisionKind
from vllm_doctor.operate.guard.policy import Policy
from vllm_doctor.operate.guard.restart import Ask, NotPermitted
from vllm_doctor.records.reading import Known, Reading
from vllm_doctor.records.sample import Look

_POLL_S = 3.0


class Hands(Protocol):
    """The world as the guard meets it."""

    def look(self, names: tuple[str, ...], *, cards: bool, canaries: Mapping[str, float]) -> Reading[tuple[Look, ...]]:
        """Look at the units."""

    def kernel(self, since: float) -> tuple[str, ...]:
        """The kernel's lines since that time."""

    def refused(self, unit: str) -> str | None:
        """Why it would not be restarted now."""

    def restart(self, ask: Ask) -> None:
        """Start it anew. Raises NotPermitted."""

    def explain(self, unit: str) -> Explanation:
        """What the doctor says of it now."""


class DeedEnd(Enum):
    """How a deed ended; TOLD where nothing was done but a diagnosis."""

    TOLD = "told"
    REFUSED = "refused"
    RESTARTED = "restarted"


Tell = Callable[[str, str], None]


def why_ended(hands: Hands, unit: str, tell: Tell) -> DeedEnd:
    """What the doctor says of a unit that ended by itself."""
    finding = hands.explain(unit).finding
    if finding:
        tell("diagnosed", f"after it ended: {finding}")
    return DeedEnd.TOLD


def what_it_took(hands: Hands, unit: str, tell: Tell) -> DeedEnd:
    """The memory of a start that has ended well."""
    _memory(hands.explain(unit), tell)
    return DeedEnd.TOLD


def _memory(told: Explanation, tell: Tell) -> None:
    if told.memory:
        tell("memory", told.memory)


def restarted(hands: Hands, policy: Policy, unit: str, one: Decision, tell: Tell) -> DeedEnd:
    """Diagnose, restart, wait for a real completion, diagnose again. `tell` gets each step as it is done."""
    before = hands.explain(unit).finding
    if before:
        tell("diagnosed", f"before the restart: {before}")
    began = time.monotonic()
    try:
        hands.restart(Ask(unit, cut=one.cut, why=f"{one.kind}: {one.sum}"))
    except NotPermitted as refused:
        tell("not-restarted", str(refused))
        return DeedEnd.REFUSED
    kind, how = _answer(hands, policy, unit, began)
    tell(kind, f"restarted; {how} after {time.monotonic() - began:.1f} s")
    if kind != DecisionKind.HELD:  # of what another started there is nothing to say
        after = hands.explain(unit)
        _memory(after, tell)
        tell("diagnosed", f"after the restart: {after.finding or 'no finding'}")
    return DeedEnd.RESTARTED


def _answer(hands: Hands, policy: Policy, unit: str, began: float) -> tuple[str, str]:
    """Wait for the run that the restart began to serve: the event's kind, and what was seen. A run that another began
    meanwhile says nothing of this restart."""
    first: Look | None = None
    while time.monotonic() - began < policy.ready_s:
        seen = hands.look((unit,), cards=False, canaries={unit: policy.canary_s})
        look = seen.value[0] if isinstance(seen, Known) and seen.value else None
        if look is not None:
            first = first or look
            taken = _taken(first, look)
            if taken:
                return DecisionKind.HELD, f"{taken}, so the guard stopped waiting for it,"
            if look.active == "failed":
                return "no-answer", "the service failed"
            if look.health == 200 and look.canary is True:
                return DecisionKind.ANSWERS, "a completion came back"
            if look.health == 200 and look.canary is None:
                return DecisionKind.ANSWERS, "/health answers 200, and no completion can be asked for"
        time.sleep(min(_POLL_S, policy.beat_s))
    return "no-answer", "no completion came"


def _taken(first: Look, now: Look) -> str:
    """Who else has taken the unit in hand since the restart; empty where nobody has."""
    if now.drained:
        return "it was drained"
    if now.held:
        return f"it is being changed ({now.held})"
    if now.active == "inactive":
        return "it was stopped"
    anew = bool(first.invocation and now.invocation) and first.invocation != now.invocation
    return "something other than its Restart= started it again" if anew and now.restarts <= first.restarts else ""

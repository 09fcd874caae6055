"""The walk through the flowchart, written down: yes with its finding, no with its reason, or what was not seen."""

from collections.abc import Sequence
from dataclasses import dataclass

from vllm_doctor.records.finding import Finding, Step
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.rules.chart import NODES, Node
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Rule, Unseen

YES, NO, NOT_SEEN = "yes", "no", "unknown"
# What a rule looks at for evidence; the others only say how to take it.
_EVIDENCE = frozenset(Signal) - {Signal.LAUNCH, Signal.VERSION, Signal.MODEL_CONFIG}
# Of each box: itself with those to which its yes leads, and itself with the one whose yes leads to it.
_BELOW = {node.id: (node, *(n for n in NODES if n.under == node.id)) for node in NODES}
_ABOVE = {node.id: tuple(n.id for n in NODES if n.id in {node.id, node.under}) for node in NODES}


@dataclass(frozen=True)
class Asked:
    """One rule, what it answered, and which inputs it looked at."""

    rule: Rule
    outcome: Outcome
    touched: frozenset[Signal]


def walk(
    asked: Sequence[Asked], findings: Sequence[Finding], read: frozenset[Signal], *, quiet: bool = False
) -> list[Step]:
    """One step for each box on the way. `read` are the inputs that were read, or that do not exist; `quiet` says that
    the server served and its log holds no statistics."""
    steps: list[Step] = []
    fired = {f.code for f in findings}
    about: dict[str, list[Asked]] = {node.id: [] for node in NODES}
    for one in asked:
        for box in _ABOVE.get(one.rule.node, ()):
            about[box].append(one)
    for node in NODES:
        if node.under is not None and not any(s.node == node.under and s.answer == YES for s in steps):
            continue
        here = about[node.id]
        own = {o.rule.code for o in here if isinstance(o.outcome, Finding) and o.rule.code in fired}
        yes = [f for f in findings if f.code in own or _is_of(f, node)]  # the root cause before what it explains
        if yes:
            steps.append(Step(node.id, node.question, YES, f"{yes[0].code}: {yes[0].title}"))
            continue
        steps.append(_without(node, here, read - {Signal.LOG} if quiet and node.statistics else read))
    return steps


def _is_of(finding: Finding, node: Node) -> bool:
    """Does the finding say yes to this box, whichever box its rule answers?"""
    return any(finding.phase in box.phases or finding.cause in box.causes for box in _BELOW[node.id])


def _without(node: Node, here: Sequence[Asked], read: frozenset[Signal]) -> Step:
    """No rule of the box fired: no, if its sources were read."""
    needed = min(node.sources, key=lambda need: len(need - read))
    lacking = needed - read
    if lacking == {Signal.LOG} and node.statistics:
        lacking = frozenset({Signal.METRICS})
    unseen = [o.outcome for o in here if isinstance(o.outcome, Unseen)]
    if here and len(unseen) == len(here):
        lacking |= {signal for o in unseen for signal in o.signals}
    if lacking:
        return Step(node.id, node.question, NOT_SEEN, f"not read: {', '.join(sorted(s.value for s in lacking))}")
    whole = [one.outcome for one in here if not (one.touched & _EVIDENCE) - read]
    reasons = [o.because for o in whole if isinstance(o, Clear)] or [o.because for o in whole if isinstance(o, NotHere)]
    because = "; ".join(dict.fromkeys(reasons[:3])) or f"read: {', '.join(sorted(s.value for s in needed))}"
    return Step(node.id, node.question, NO, because)

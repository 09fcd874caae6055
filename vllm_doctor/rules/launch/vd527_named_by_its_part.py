"""VD527: a failure that the part of vLLM which failed names by its own sentence, with what cures it."""

from vllm_doctor.knowledge.answers import Answer, applies
from vllm_doctor.knowledge.layers import Layer
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.root_cause import IMPORTS
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import severity, text
from vllm_doctor.rules.gates.out_of_memory import EXHAUSTED
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.layer import cures, layer, unforeseen
from vllm_doctor.rules.say import finding


def judge(case: Case) -> Outcome:
    """Does the first failure's part have a name for what it said?"""
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    root = case.root
    if root is None or root.crash is None or root.ids & (EXHAUSTED | IMPORTS):
        return NotHere("there is no traceback of a failure that is not memory")
    part = layer(case, root)
    answer = _answer(case, root, part) if part is not None else None
    title = answer.title if answer is not None else part.broken if part is not None and unforeseen(root) else ""
    if part is None or not title:
        return Clear("no part of vLLM has a name for what failed")
    at = root.crash.root.at
    return finding(
        RULE,
        title=title,
        severity=severity(case, root),
        confidence=Confidence.LIKELY,
        evidence=(case.line(at if at is not None else root.index),),
        changes=cures(case, root, part),
        refute="the change is made, and the same call fails with the same message",
        layer=part.id,
        then=part.next,
    )


def _answer(case: Case, root: Fault, part: Layer) -> Answer | None:
    said = text(case, root)
    return next((answer for answer in part.answers if answer.title and applies(answer, said)), None)


RULE = rule("VD527", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)

"""VD208: memory of the GPU ran out, and the log does not tell in which step."""

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Cause, Confidence, Phase, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.registry import NotHere, Outcome, Rule, Unseen
from vllm_doctor.rules.say import finding
from vllm_doctor.rules.startup._gate import exhausted, sums


def judge(case: Case) -> Outcome:
    """Is exhausted GPU memory the first fault?"""
    oom = exhausted(case)
    if isinstance(oom, NotHere | Unseen):
        return oom
    return finding(
        RULE,
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.POSSIBLE,
        evidence=(case.line(oom.fault.hits[0].index),),
        arithmetic=sums(oom.torch),
        refute="the lines before it show in which step of the start it was",
    )


RULE = Rule(
    code="VD208",
    slug="memory-step-unknown",
    title="GPU memory ran out; the log does not tell in which step",
    node="burst",
    cause=Cause.UTILIZATION_TOO_HIGH,
    phase=Phase.RUNTIME_PREFILL_BURST,
    reads=frozenset({Signal.LOG}),
    judge=judge,
    rank=94,
    fallback=True,
)

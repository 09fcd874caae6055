"""VD801: a collective operation did not end: one rank did not take part."""

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Cause, Phase
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.launch._fault import named, severity, shown
from vllm_doctor.rules.multigpu._hang import ways_out
from vllm_doctor.rules.registry import NotHere, Outcome, Rule, Unseen
from vllm_doctor.rules.say import finding

_IDS = (
    "nccl-watchdog",
    "rendezvous",
    "call-timeout",
)


def judge(case: Case) -> Outcome:
    """Did the watchdog fire?"""
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere | Unseen):
        return fault
    fields = fault.fields("nccl-watchdog")
    op, limit = fields.get("op"), fields.get("limit")
    return finding(
        RULE,
        title=f"{op} did not end within {int(limit) // 1000} s" if op and limit else RULE.title,
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=ways_out(case),
        refute="another rank failed first: its traceback stands above, or in its own log",
    )


RULE = Rule(
    code="VD801",
    slug="nccl-timeout",
    title="Ranks waited for one another until the watchdog ended them",
    node="multigpu",
    cause=Cause.NCCL_TIMEOUT,
    phase=Phase.NCCL_OR_MULTIGPU,
    reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}),
    judge=judge,
    rank=50,
)

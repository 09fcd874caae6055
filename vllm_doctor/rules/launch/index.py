"""VD516: an index beyond a table: a token that the model does not have, or a wrong position."""

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Cause, ChangeKind, Direction, Phase
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.launch._fault import named, severity, shown
from vllm_doctor.rules.registry import NotHere, Outcome, Rule, Unseen
from vllm_doctor.rules.say import finding, thing, upgrade

_IDS = (
    "assert-device",
    "index-assert",
    "index-assert-src",
    "index-assert-hip",
    "assert-mid-gather",
    "assert-vector-gather",
)


def judge(case: Case) -> Outcome:
    """Did an index assertion on the device fail?"""
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere | Unseen):
        return fault
    return finding(
        RULE,
        severity=severity(case, fault),
        evidence=shown(case, fault, *_IDS),
        changes=(
            thing(
                ChangeKind.OS,
                "client-input",
                Direction.REPAIR,
                "have the gateway refuse token ids outside the vocabulary",
            ),
            upgrade(case, "releases differ in what they check before the GPU sees it"),
        ),
        refute="the same request passes with CUDA_LAUNCH_BLOCKING=1",
    )


RULE = Rule(
    code="VD516",
    slug="index-out-of-range",
    title="A token or an index is out of range",
    node="not-memory",
    cause=Cause.INDEX_OR_INPUT_OUT_OF_RANGE,
    phase=Phase.NOT_MEMORY,
    also=frozenset({Phase.GPU_FAULT}),
    reads=frozenset({Signal.LOG, Signal.VERSION}),
    judge=judge,
    rank=30,
)

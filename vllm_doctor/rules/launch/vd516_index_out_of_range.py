"""VD516: an index beyond a table: a token that the model does not have, or a wrong position."""

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named, severity, shown
from vllm_doctor.rules.registry import NotHere, Outcome, Unseen, rule
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
                "let the gateway refuse token IDs outside the vocabulary",
            ),
            upgrade(case, "newer releases check more before the request reaches the GPU"),
        ),
        refute="the same request passes with CUDA_LAUNCH_BLOCKING=1",
    )


RULE = rule("VD516", reads=frozenset({Signal.LOG, Signal.VERSION}), judge=judge)

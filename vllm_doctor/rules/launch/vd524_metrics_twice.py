"""VD524: two parts of one process register a metric under the same name."""

from vllm_doctor.records.finding import Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named, severity, shown
from vllm_doctor.rules.registry import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, set_flag, upgrade

_ID = "metric-twice"


def judge(case: Case) -> Outcome:
    """Was a metric registered twice?"""
    fault = named(case, _ID)
    if isinstance(fault, NotHere | Unseen):
        return fault
    return finding(
        RULE,
        severity=severity(case, fault),
        confidence=Confidence.LIKELY,
        evidence=shown(case, fault, _ID),
        changes=_changes(case),
        refute="one engine without a connector fails in the same way",
    )


def _changes(case: Case) -> tuple[Change | None, ...]:
    """Two connectors of a kind, or two engines: one of them, or no statistics."""
    parts = case.effective("kv-transfer-config") is not None or any(name.startswith("kv-") for name in case.flags)
    one = set_flag(
        case,
        "kv-transfer-config",
        None,
        Direction.CHANGE,
        "use one connector of each kind: two of them register the same metric",
    )
    return (
        one if parts or case.launch is None else None,
        set_flag(case, "disable-log-stats", True, Direction.ADD, "turns off statistics, so that nothing is registered"),
        upgrade(case, "this release gives each part its own metric names"),
    )


RULE = rule("VD524", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)

"""VD316: requests wait at one replica while another one of the same model has room."""

from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Evidence
from vllm_doctor.records.host import Load
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, thing

# One request that always waits; and a mean below which nobody waited but for a moment.
_WAITS, _NONE = 1.0, 0.05
# A replica with room runs at most half as many requests, and no more than half of its KV cache is full.
_HALF = 0.5


def judge(case: Case) -> Outcome:
    """Did requests wait here while another replica of the model ran few?"""
    metrics = case.metrics
    if metrics is None:
        return Unseen(frozenset({Signal.METRICS}))
    if len(metrics.loads) < 2:
        return NotHere("the metrics are of one server alone")
    own, *peers = metrics.loads
    if own.waiting < _WAITS:
        return Clear("no request waits here for long")
    idle = [one for one in peers if _has_room(one, own)]
    if not idle:
        return Clear("no other replica of the model has room")
    best = min(idle, key=lambda one: one.running)
    return finding(
        RULE,
        title=excerpt.title(f"{own.waiting:.0f} requests wait here while {best.name} runs {best.running:.0f}"),
        severity=Severity.DEGRADED,
        confidence=Confidence.LIKELY,
        evidence=tuple(Evidence("metrics", one.name, _told(one)) for one in (own, *peers[:7])),
        changes=(
            thing(
                ChangeKind.OS,
                "load-balancer",
                Direction.CHANGE,
                "send each request to the replica with the fewest requests: not in turn, not by connection",
            ),
        ),
        refute=f"{best.name} is drained, or requests are bound to a replica on purpose (sessions, prefix cache)",
    )


def _has_room(one: Load, own: Load) -> bool:
    empty = one.kv is None or one.kv <= _HALF
    return one.waiting <= _NONE and one.running <= _HALF * own.running and empty


def _told(one: Load) -> str:
    full = "" if one.kv is None else f", KV cache {one.kv:.0%} full"
    return f"{one.running:.1f} run, {one.waiting:.1f} wait{full} (means of five minutes)"


RULE = rule("VD316", reads=frozenset({Signal.METRICS}), judge=judge)

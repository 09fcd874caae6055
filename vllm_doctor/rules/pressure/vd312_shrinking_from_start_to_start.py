"""VD312: start after start of the same launch there is less memory for the KV cache: something is not given back."""

from itertools import pairwise

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.gpu_holders import stop_others
from vllm_doctor.rules.say import finding, gib

# Fewer starts, or a smaller loss, may be chance: another model's cache, a desktop.
_STARTS = 3
_LOSS = 0.1


def judge(case: Case) -> Outcome:
    """Did each of the last starts have less than the one before, and a tenth less in all?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    now = run.number("kv-available", "size")
    sizes = (*run.log.earlier_kv_gib, *((now,) if now is not None else ()))[-8:]
    if len(sizes) < _STARTS:
        return NotHere("fewer than three starts of this launch are in the log")
    loss = sizes[0] - sizes[-1]
    if not all(a > b for a, b in pairwise(sizes)) or loss < _LOSS * abs(sizes[0]):
        return Clear("the memory for the KV cache is the same from start to start")
    hit = run.last("kv-available")
    return finding(
        RULE,
        title=(
            f"In {len(sizes)} starts of the same launch the KV cache shrank from {sizes[0]:.2f} to {sizes[-1]:.2f} GiB"
        ),
        severity=Severity.DEGRADED,
        confidence=Confidence.LIKELY,
        evidence=(case.line(hit.index if hit is not None else 0),),
        arithmetic=(
            gib("lost since the first of these starts", loss, " → ".join(f"{s:.2f}" for s in sizes), "the log"),
        ),
        changes=(stop_others(case, "processes of earlier starts still run, or another service grows"),),
        refute="the first start after a reboot has as little memory",
    )


RULE = rule("VD312", reads=frozenset({Signal.LOG}), judge=judge)

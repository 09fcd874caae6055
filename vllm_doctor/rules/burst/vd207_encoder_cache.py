"""VD207: one image or video is larger than the encoder cache; the request is refused, nothing dies."""

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, set_flag


def judge(case: Case) -> Outcome:
    """Were items refused because they exceed the encoder cache?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    hits = run.all("encoder-cache-exceeded")
    if not hits:
        return NotHere("no item exceeded the encoder cache")
    size = int(hits[-1].fields.get("size", "0"))
    return finding(
        RULE,
        severity=Severity.DEGRADED,
        evidence=tuple(case.line(h.index) for h in hits[-2:]),
        changes=(
            set_flag(
                case,
                "max-num-batched-tokens",
                size * 2,
                Direction.RAISE,
                f"this option sets the size of the encoder cache; an item needs more than {size} tokens",
            )
            if size
            else None,
        ),
        refute="the same item fails when scaled down to half its sides",
    )


RULE = rule("VD207", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)

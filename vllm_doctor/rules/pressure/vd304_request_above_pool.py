"""VD304: a request alone is larger than the whole KV cache (V0: it is ignored, or ends the engine)."""

from vllm_doctor.records.finding import Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.utilization import raise_utilization
from vllm_doctor.rules.say import finding, set_flag


def judge(case: Case) -> Outcome:
    """Did the block manager say that a prompt exceeds its capacity, or that no block is free?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    root = case.root
    ended = root is not None and "no-free-blocks" in root.ids
    hits = run.all("prompt-above-pool") or (run.all("no-free-blocks") if ended else ())
    if not hits:
        return NotHere("no request exceeded the KV cache")
    blocks, block = run.number("gpu-blocks", "blocks"), int(case.number("block-size") or 16)
    fits = int(blocks * block) if blocks is not None else None
    length = case.number("max-model-len")
    return finding(
        RULE,
        severity=Severity.WILL_FAIL_UNDER_LOAD if ended else Severity.DEGRADED,
        evidence=tuple(case.line(h.index) for h in hits[-2:]),
        changes=(
            _shorter(case, length, fits, f"{blocks:.0f} blocks × {block} tokens" if blocks else ""),
            raise_utilization(case, 1.0) if case.total_gib is not None else None,
        ),
        refute="the KV cache holds more tokens than the longest request",
    )


def _shorter(case: Case, length: float | None, fits: int | None, sum_: str) -> Change | None:
    """What the pool holds, where that is less than what is allowed; else half, as other requests share the pool."""
    if fits and (length is None or fits < length):
        return set_flag(case, "max-model-len", fits, Direction.LOWER, sum_)
    if length is None:
        return None
    why = "half of the present limit, because all running requests share the KV cache"
    return set_flag(case, "max-model-len", int(length // 2), Direction.LOWER, why)


RULE = rule("VD304", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)

"""VD118: a smaller type would make it fit: fp8 for the KV cache where half of what is needed is there."""

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.kv_cache import too_small
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.kv_cache import half_size_kv
from vllm_doctor.rules.say import finding, gib


def judge(case: Case) -> Outcome:
    """Would one byte an element hold the configured length?"""
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    small = too_small(case)
    if small is None or small.need is None or small.have is None:
        return NotHere("the KV cache was not too small for one request")
    change = half_size_kv(case, small)
    if change is None:
        return Clear("a KV cache of half the size would not fit, or the cache already uses one byte per element")
    return finding(
        RULE,
        severity=Severity.ADVICE,
        confidence=Confidence.LIKELY,
        evidence=(case.line(small.index),),
        arithmetic=(
            gib("needed with one byte per element", small.need / 2, f"{small.need} / 2", "the error line"),
            gib("available", small.have, "KV cache memory", "the error line"),
        ),
        changes=(change,),
        refute="the model keeps state that is not KV cache (hybrid models), so that FP8 saves less than half",
    )


RULE = rule("VD118", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)

"""VD126: nothing is left for the KV cache because the fraction gives vLLM a small part of the card."""

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.kv_cache import left_over
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.utilization import raise_utilization
from vllm_doctor.rules.say import finding, gib

# Above this the fraction is not small, and raising it a little is the lesser of several remedies (VD120).
_SMALL = 0.5
# A KV cache that is worth starting with, GiB.
_USEFUL = 2.0


def judge(case: Case) -> Outcome:
    """Is the budget small, while the card has room for the weights and more?"""
    if case.run is None:
        return Unseen(frozenset({Signal.LOG}))
    root = case.root
    if root is None or "no-kv-blocks" not in root.ids:
        return NotHere("the log does not say that no KV block was left over")
    fraction, source = case.utilization
    if fraction > _SMALL:
        return Clear(f"gpu_memory_utilization is {fraction:g}")
    weights, total = case.weights_gib, case.total_gib
    if weights is not None and total is not None and weights > 0.8 * total:
        return Clear("the weights need most of the GPU")
    sums = () if total is None else (gib("budget", total * fraction, f"{total:.2f} × {fraction:g}", source),)
    return finding(
        RULE,
        title=f"gpu_memory_utilization {fraction:g} leaves no memory for the KV cache",
        evidence=(case.line(root.hits[0].index),),
        arithmetic=sums,
        changes=(raise_utilization(case, max(-(left_over(case) or 0.0), 0.0) + _USEFUL),),
        refute="the GPU has no more free memory than the budget",
    )


RULE = rule("VD126", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)

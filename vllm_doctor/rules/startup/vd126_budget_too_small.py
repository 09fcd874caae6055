"""VD126: nothing is left for the KV cache because the fraction gives vLLM a small part of the card."""

from vllm_doctor.records.finding import Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.kv_cache import cpu_by_share, left_over, on_cpu
from vllm_doctor.rules.gates.profile_run import too_large_by_name
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.utilization import raise_utilization
from vllm_doctor.rules.say import finding, gib, set_flag

# Above this the fraction is not small, and raising it a little is the lesser of several remedies (VD120).
_SMALL = 0.5
# Of a node whose size nobody printed: how much more to ask for at the least.
_MORE = 0.2
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
    if on_cpu(case):
        return (
            _on_cpu(case, fraction)
            if cpu_by_share(case)
            else Clear("the CPU build of this release does not read gpu_memory_utilization")
        )
    weights, total = case.weights_gib, case.total_gib
    if weights is not None and total is not None and weights > 0.8 * total:
        return Clear("the weights need most of the GPU")
    if weights is None and too_large_by_name(case) is not None:
        return Clear("the weights need more than the GPU has, as the model's name counts them")
    sums = () if total is None else (gib("budget", total * fraction, f"{total:.2f} × {fraction:g}", source),)
    return finding(
        RULE,
        title=f"gpu_memory_utilization {fraction:g} leaves no memory for the KV cache",
        evidence=(case.line(root.hits[0].index),),
        arithmetic=sums,
        changes=(raise_utilization(case, max(-(left_over(case) or 0.0), 0.0) + _USEFUL),),
        refute="the GPU has no more free memory than the budget",
    )


def _on_cpu(case: Case, fraction: float) -> Finding | Clear:
    """The CPU build takes this share of one NUMA node for weights, a pass and the KV cache."""
    root = case.root
    if root is None:
        return Clear("nothing failed")
    to = round(max(_SMALL, fraction + _MORE), 2)
    why = "the CPU build takes this share of one NUMA node's memory, despite the name: `numactl -H` shows its size"
    return finding(
        RULE,
        title=f"gpu_memory_utilization {fraction:g} leaves no memory for the KV cache",
        evidence=(case.line(root.hits[0].index),),
        changes=(set_flag(case, "gpu-memory-utilization", to, Direction.RAISE, why),),
        refute="`numactl -H` shows that the node has no more free memory than the budget",
    )


RULE = rule("VD126", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}), judge=judge)

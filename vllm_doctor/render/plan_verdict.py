"""What a plan foresees, in words."""

from __future__ import annotations

from vllm_doctor.plan.prediction.points import TOO_FEW_STATES, UNDER_LOAD
from vllm_doctor.plan.prediction.record import Prediction

_OUTCOMES = {
    "ok": "starts",
    "kv-too-small": "does not start: the KV cache cannot hold one request",
    TOO_FEW_STATES: "does not start: the KV cache has fewer blocks than --max-num-seqs, and each sequence takes one",
    "oom-profile": "does not start: out of memory in the profile run",
    "oom-weights": "does not start: the weights do not fit",
    "oom-cudagraph": "does not start: out of memory in graph capture or sampler warm-up",
    UNDER_LOAD: "starts, and runs out of memory in its first full step",
    "oom-host": "does not start: it needs more host memory than the host has",
    "rejected": "does not start: vLLM refuses the launch",
    "unknown": "cannot be predicted",
}

# What may be missing, of each point at which a start ends.
_DOUBTS = {
    "oom-weights": "the weights may be larger than what is free",
    "oom-profile": "a full step may be larger than what is free beside the weights",
    UNDER_LOAD: "a full step may be larger than what is free beside the KV cache",
    "kv-too-small": "the memory that one request needs lies inside the range",
    TOO_FEW_STATES: "the blocks that --max-num-seqs sequences need for their states lie inside the range",
    "oom-cudagraph": "CUDA graphs, or the sampler's warm-up, may be larger than what the KV cache leaves free",
}


def verdict_in_words(p: Prediction) -> str:
    """Whether it starts; if not, or not surely, why."""
    if p.verdict == "uncertain" and p.odds is None:
        return f"may start or not: it depends on {p.settings.depends[0].on}, which the launch does not show"
    if p.verdict == "uncertain":
        open_ = (
            "starts, and may end under load" if p.doubtful == UNDER_LOAD and p.outcome == "ok" else "may start or not"
        )
        return f"{open_}: {_DOUBTS[p.doubtful or 'kv-too-small']}"
    return _OUTCOMES[p.outcome]

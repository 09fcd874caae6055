"""What leaves the first full step the memory that it lacks beside the KV cache."""

from __future__ import annotations

from vllm_doctor.plan.advice.remedies import Remedy
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.question.planner import Planner


def remedy_under_load(planner: Planner, p: Prediction) -> Remedy | None:
    """None where nothing is lacking, and where the launch does not start with the value."""
    if p.smaller_pool is None:
        return None
    flag, value = p.smaller_pool
    then = planner.predict({flag: value})
    if then.verdict != "starts" or then.available_kv_gib is None:
        return None
    return Remedy(flag, value, then.available_kv_gib, "a smaller KV cache")

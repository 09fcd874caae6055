"""What leaves the first full step the memory that it lacks beside the KV cache."""

from __future__ import annotations

import msgspec

from vllm_doctor.plan.prediction.predict import Prediction
from vllm_doctor.plan.question.planner import Planner


class Cure(msgspec.Struct, frozen=True):
    """One option, its value, and the KV cache of one GPU that is left with it."""

    flag: str
    value: str
    pool_gib: float


def cure(planner: Planner, p: Prediction) -> Cure | None:
    """None where nothing is lacking, and where the launch does not start with the value."""
    if p.cure is None:
        return None
    flag, value = p.cure
    then = planner.predict({flag: value})
    if then.verdict != "starts" or then.available_kv_gib is None:
        return None
    return Cure(flag, value, then.available_kv_gib)

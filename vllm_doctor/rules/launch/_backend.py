"""Another attention backend, named the way the release wants it."""

from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.say import environment, set_flag


def other_backend(case: Case, why: str) -> Change:
    """An option from 0.13.0, a variable before."""
    change = set_flag(case, "attention-backend", "TRITON_ATTN", Direction.CHANGE, why)
    if change is not None:
        return change
    return environment("attention-backend", Direction.CHANGE, f"VLLM_ATTENTION_BACKEND: {why}")

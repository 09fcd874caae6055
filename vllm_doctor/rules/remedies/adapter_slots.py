"""Smaller buffers for adapters: fewer slots, of a smaller rank."""

from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.say import set_flag

# The smallest rank that vLLM takes (config/lora.py).
SMALLEST_RANK = 8
# What is set where nothing sets it (config/lora.py).
_SLOTS, _RANK = 1, 16


def slots(case: Case) -> tuple[int, int]:
    """The slots for adapters, and the rank that each of them has."""
    return int(case.number("max-loras") or _SLOTS), int(case.number("max-lora-rank") or _RANK)


def fewer_slots(case: Case) -> tuple[Change | None, ...]:
    """Half the slots, and half their rank; none of what is the least already."""
    many, rank = slots(case)
    return (
        set_flag(
            case,
            "max-loras",
            max(1, many // 2),
            Direction.LOWER,
            "vLLM allocates slots for this many adapters at once, whether they are used or not",
        )
        if many > 1
        else None,
        set_flag(
            case,
            "max-lora-rank",
            max(SMALLEST_RANK, rank // 2),
            Direction.LOWER,
            "every slot has this rank; set the largest rank that you serve",
        )
        if rank > SMALLEST_RANK
        else None,
    )

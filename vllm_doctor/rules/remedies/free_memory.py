"""The `gpu_memory_utilization` that passes the check of free memory."""

import math

from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.free_memory import Shortage
from vllm_doctor.rules.say import set_flag

# What other start-up steps may take before the check on the next start (a driver context is 0.3 to 0.6 GiB).
MARGIN_GIB = 0.3


# A smaller budget than this, GiB, holds a model only where the launch asked for little in the first place.
SMALLEST_GIB = 8.0


def lower_utilization(case: Case, short: Shortage) -> Change | None:
    """The largest value that passes the check as things are; None where no model and KV cache would fit the budget."""
    fraction = math.floor((short.free - MARGIN_GIB) / short.total * 100) / 100
    weights = case.weights_gib
    budget = fraction * short.total
    if budget < min(SMALLEST_GIB, short.want / 2) or (weights is not None and budget <= weights):
        return None
    why = (
        f"({short.free:.2f} − {MARGIN_GIB}) / {short.total:.2f}, rounded down: passes the check while "
        "the other processes stay"
    )
    return set_flag(
        case,
        "gpu-memory-utilization",
        fraction,
        Direction.LOWER,
        why,
        predicted={"budget_gib": round(budget, 2)},
    )

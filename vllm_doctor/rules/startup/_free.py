"""The figures of vLLM's check of free memory at start (0.9.2 and later), and the fraction that would pass it."""

import math

import msgspec

from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.say import set_flag

# What other start-up steps may take before the check on the next start (a driver context is 0.3 to 0.6 GiB).
MARGIN_GIB = 0.3
# Below this no model worth serving gets a KV cache.
LOWEST = 0.05


class Shortage(msgspec.Struct, frozen=True):
    """The rank that was furthest from what it wanted; GiB."""

    device: str
    free: float
    total: float
    utilization: float
    want: float
    lines: tuple[int, ...]

    @property
    def gap(self) -> float:
        """What is missing."""
        return self.want - self.free

    @property
    def held(self) -> float:
        """What is not free."""
        return self.total - self.free


def shortage(case: Case) -> Shortage | None:
    """The failed check in the first fault; with several ranks the one that lacks most."""
    run, root = case.run, case.root
    if run is None or root is None or "free-below-wanted" not in root.ids:
        return None
    found = []
    for hit in run.all("free-below-wanted"):
        f = hit.fields
        if not float(f["total"]):
            continue
        device = f.get("device", "the GPU")
        found.append(
            Shortage(device, float(f["free"]), float(f["total"]), float(f["util"]), float(f["want"]), (hit.index,))
        )
    return max(found, key=lambda s: s.gap, default=None)


def lower_utilization(case: Case, short: Shortage) -> Change | None:
    """The largest fraction that passes the check as things are, if the weights and some KV cache still fit it."""
    fraction = math.floor((short.free - MARGIN_GIB) / short.total * 100) / 100
    weights = case.weights_gib
    if fraction < LOWEST or (weights is not None and fraction * short.total <= weights):
        return None
    why = f"({short.free:.2f} − {MARGIN_GIB}) / {short.total:.2f}, rounded down: passes the check while the others stay"
    return set_flag(
        case,
        "gpu-memory-utilization",
        fraction,
        Direction.LOWER,
        why,
        predicted={"budget_gib": round(fraction * short.total, 2)},
    )

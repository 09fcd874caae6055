"""The figures of vLLM's check of free memory at start (0.9.2 and later), and the fraction that would pass it."""

import msgspec

from vllm_doctor.rules.case import Case

# Of the card, as a fraction: what a desktop or a driver context takes. A larger gap is another process.
_SMALL_GAP = 0.05


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
    def small(self) -> bool:
        """Is no more missing than a desktop or a driver context takes?"""
        return self.gap <= _SMALL_GAP * self.total

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
    lacking = [short for short in found if short.gap > 0]
    return max(lacking, key=lambda s: s.gap, default=None)

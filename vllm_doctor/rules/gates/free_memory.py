"""The figures of vLLM's check of free memory at start (0.9.2 and later), and the fraction that would pass it.

From 0.33.0 on weights that another process shares count as the engine's own: it wants that much less to be free.
"""

import msgspec

from vllm_doctor.rules.case import Case

# Of the card, as a fraction: what a desktop or a driver context takes. A larger gap is another process.
_SMALL_GAP = 0.05
# The messages of the check; does the engine's budget leave out weights that another process shares?
_CHECKS = {"free-below-wanted": False, "budget-above-free": True}


class Shortage(msgspec.Struct, frozen=True):
    """The rank that was furthest from what it wanted; GiB."""

    device: str
    free: float
    total: float
    utilization: float
    want: float
    lines: tuple[int, ...]
    shared: float
    told: bool = True  # by the message; where its end was cut off, the fraction is the launch's or the default

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
        return self.total - self.free - self.shared

    @property
    def wanted_by(self) -> str:
        """The sum of what it wants."""
        shared = f" − {self.shared:.2f} of shared weights" if self.shared else ""
        if not self.told:
            return "more than is free, as the check failed; the line is cut before it says how much"
        return f"{self.total:.2f} GiB × {self.utilization:g}{shared}"


def shortage(case: Case) -> Shortage | None:
    """The failed check in the first fault; with several ranks the one that lacks most."""
    run, root = case.run, case.root
    if run is None or root is None or not root.ids & _CHECKS.keys():
        return None
    found = []
    for hit in (hit for check in _CHECKS for hit in run.all(check)):
        f = hit.fields
        free, total, util, want = (float(f.get(name, "0")) for name in ("free", "total", "util", "want"))
        if not total:
            continue
        told = "want" in f
        if not told:
            # A line that was cut: what it wanted was more than what is free, or the check had not failed.
            util = float(f["asked"]) if "asked" in f else case.utilization[0]
            want = max(util * total, free)
        shared = max(0.0, util * total - want) if _CHECKS[hit.id] else 0.0
        found.append(Shortage(f.get("device", "the GPU"), free, total, util, want, (hit.index,), shared, told))
    lacking = [short for short in found if short.gap > 0 or not short.told]
    return max(lacking, key=lambda s: s.gap, default=None)

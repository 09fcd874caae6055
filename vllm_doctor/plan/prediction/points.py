"""Where a start may run out of memory, in its order, and how much is left there.

vLLM measures its weights and its profile before it sizes the pool, so an error of those moves the pool and cancels
afterwards: what is left for graphs and for the sampler is the part of the card beyond the budget, what the profile
gave back, and graphs that were charged.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import erfc, sqrt

import msgspec

# vLLM starts, and ends when the first full step comes.
UNDER_LOAD = "oom-under-load"
# The pool has fewer blocks than there may be sequences, each of which keeps its recurrent state in one.
TOO_FEW_STATES = "too-few-states"
# The range is claimed to hold nine starts of ten: so many standard deviations lie on each side of the middle.
SIDE = 1.645


class StartPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One point of a start: the GiB that are left there, how far below and above that nine of ten truths lie, and what
    vLLM ends with where nothing is left. `doubt` is the least of the odds, on either side, that is worth a word."""

    outcome: str
    left: float
    below: float
    above: float
    doubt: float = 0.1

    @property
    def certain(self) -> bool:
        """Does it fail here, as good as surely?"""
        return self.left < 0 and self._likely() < self.doubt

    @property
    def odds(self) -> float | None:
        """How likely the start gets beyond it, 0 to 1; None where there is no doubt."""
        odds = self._likely()
        return odds if self.doubt <= odds < 1 - self.doubt else None

    def _likely(self) -> float:
        return likely(self.left, self.below, self.above)


def likely(left: float, below: float, above: float) -> float:
    """How likely `left` GiB are not below 0, if they may be `below` less and `above` more."""
    side = above if left < 0 else below
    return 0.5 * erfc(-left * SIDE / max(side, 1e-9) / sqrt(2))


def first_end(points: Sequence[StartPoint]) -> tuple[str | None, float | None]:
    """(What ends the start if the middle of each range holds, the odds that nothing does). No odds where it is sure to
    end, or sure not to."""
    ends = next((p.outcome for p in points if p.left < 0), None)
    if any(p.certain for p in points):
        return ends, None
    told = [p.odds for p in points if p.odds is not None]
    return ends, min(told, default=None)


def doubtful(points: Sequence[StartPoint]) -> str | None:
    """What the start would end with at the point that it is least likely to get beyond."""
    told = [(p.odds, p.outcome) for p in points if p.odds is not None]
    return min(told)[1] if told else None

"""How fast a memory grows, and how sure that is: the median of slopes between medians, with a rank interval.

Kendall's and Sen's method: a step (a start, another tenant) or an outlier moves it little, and noise gives no slope.
"""

from collections.abc import Sequence
from itertools import combinations
from math import sqrt
from statistics import median

import msgspec

HOUR = 3600.0
GIB = 1 << 30
# So many points are kept of a series, each the median of its part of the time: 1,128 pairs.
_POINTS = 48
_FEWEST = 12
# Standard deviations of a one-sided 99.9 %: the guard looks a thousand times in a week.
_Z = 3.1
# A pool in use breathes; what is less than this part of the limit in all is no leak, however steady.
_PART = 0.01
# Hours. What a server has set aside becomes resident page by page as it is first used (the KV cache of the CPU build):
# that grows as steadily as a leak, and levels off. Growth that leaves more time than this is judged after as much.
_LASTING = 6.0


class Slope(msgspec.Struct, frozen=True):
    """One memory of a unit: bytes an hour with the ends of their range, over `hours`; `used` is a part of `limit`."""

    what: str
    per_hour: float
    low: float
    high: float
    hours: float
    now: float
    limit: float | None
    first: float

    @property
    def used(self) -> float:
        """Part of the limit that is used; 0 where no limit is known."""
        return self.now / self.limit if self.limit else 0.0

    @property
    def sure(self) -> bool:
        """Does it grow for sure, by more than a pool breathes, and for longer than a first use of memory?"""
        left = self.hours_left
        lasting = self.hours >= _LASTING or (left is not None and left <= _LASTING)
        return lasting and self.low > 0 and self.low * self.hours >= _PART * (self.limit or self.now or 1.0)

    @property
    def hours_left(self) -> float | None:
        """Hours until the limit at this pace; None without growth or limit."""
        if not self.limit or self.per_hour <= 0:
            return None
        return max(0.0, (self.limit - self.now) / self.per_hour)

    @property
    def told(self) -> str:
        """The sum in one line."""
        left = self.hours_left
        until = f": {self.limit / GIB:.2f} in {left:.1f} h" if self.limit and left is not None else ""
        grows = f"{self.what} grows by {self.per_hour / GIB:.3f} GiB an hour"
        spread = f"({self.low / GIB:.3f} to {self.high / GIB:.3f}, over {self.hours:.1f} h)"
        return f"{grows} {spread}, is {self.now / GIB:.2f} GiB now{until}"


def slope(what: str, series: Sequence[tuple[float, float]], limit: float | None) -> Slope | None:
    """The slope of (seconds, bytes) in order of time; None for fewer than a dozen points or less than an hour."""
    points = _thinned(series)
    if len(points) < _FEWEST or points[-1][0] - points[0][0] < HOUR:
        return None
    pairs = sorted((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2) if b[0] > a[0])
    count, n = len(pairs), len(points)
    spread = _Z * sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low = pairs[max(0, int((count - spread) / 2))]
    high = pairs[min(count - 1, int((count + spread) / 2))]
    hours = (points[-1][0] - points[0][0]) / HOUR
    return Slope(what, median(pairs) * HOUR, low * HOUR, high * HOUR, hours, points[-1][1], limit, points[0][1])


def _thinned(series: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most `_POINTS` points, each the medians of as many neighbours."""
    size = max(1, len(series) // _POINTS)
    parts = [series[at : at + size] for at in range(0, len(series), size)]
    return [(median(t for t, _ in part), median(v for _, v in part)) for part in parts]

"""What the guard's records of hours and days say of a unit; sizes in GiB, paces in GiB an hour."""

import msgspec


class Growth(msgspec.Struct, frozen=True):
    """One memory of the unit over `hours`: its pace with the ends of its range, what it is now and may be.

    `sure` says that it grows, and by more than a pool in use moves.
    """

    what: str
    pace: float
    low: float
    high: float
    hours: float
    now: float
    limit: float | None
    sure: bool

    @property
    def hours_left(self) -> float | None:
        """Hours until the limit at this pace; None without growth or limit."""
        if self.limit is None or self.pace <= 0:
            return None
        return max(0.0, (self.limit - self.now) / self.pace)


class Peak(msgspec.Struct, frozen=True):
    """One GPU at the moment of the present run in which most of it was held, bytes: by the unit, by the other services
    that the guard watches, and by all the rest. `at` is the moment in words."""

    gpu: str
    at: str
    own: int
    servers: int
    others: int


class Past(msgspec.Struct, frozen=True):
    """The unit's memories; how it stood at the last look before it last ended by itself, and when and why the guard
    last restarted it (empty: it never did); and each of its GPUs when it was fullest."""

    growths: tuple[Growth, ...] = ()
    before_crash: str = ""
    restarted: str = ""
    peaks: tuple[Peak, ...] = ()

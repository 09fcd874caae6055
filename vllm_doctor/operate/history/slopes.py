"""The slopes of a unit's memories, from the store."""

from vllm_doctor.operate.history.slope import Slope, slope
from vllm_doctor.operate.history.store_reader import Reader

# What a start takes before its memory is level.
_WARM_S = 900.0
_BEGINS = {"started", "crashed", "answers"}


def level_since(reader: Reader, unit: str, now: float, hours: float) -> float:
    """From when on, within these hours, the memory of the unit's present run is no longer that of its start."""
    starts = [e.at for e in reader.events(unit, now - hours * 3600) if e.kind in _BEGINS]
    return max((now - hours * 3600, *(at + _WARM_S for at in starts)))


def slopes(reader: Reader, unit: str, now: float, hours: float) -> tuple[Slope, ...]:
    """How the memories of the unit's present run grow: the host's, and what it holds of each GPU."""
    since = level_since(reader, unit, now, hours)
    rows = reader.minutes(unit, since)
    found = [slope("host memory", [(r.at, r.host) for r in rows if r.host], _last([r.host_limit for r in rows]))]
    by_card: dict[str, list[tuple[float, int]]] = {}
    room: dict[str, float] = {}
    for one in reader.cards(unit, since):
        if one.own is not None:
            by_card.setdefault(one.uuid, []).append((one.at, one.own))
            room[one.uuid] = one.own + (one.free or 0)
    found += [slope(f"memory of {uuid}", series, room[uuid]) for uuid, series in by_card.items()]
    return tuple(one for one in found if one is not None)


def _last(values: list[int | None]) -> float | None:
    return next((float(v) for v in reversed(values) if v), None)

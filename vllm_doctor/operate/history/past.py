"""A unit's past as rules judge it, read from the guard's store."""

import time

from vllm_doctor.operate.history import deeds
from vllm_doctor.operate.history.slope import GIB
from vllm_doctor.operate.history.slopes import level_since, slopes
from vllm_doctor.operate.history.store_format import Minute, store_file
from vllm_doctor.operate.history.store_reader import Reader, Unreadable
from vllm_doctor.records import excerpt
from vllm_doctor.records.past import Growth, Past, Peak
from vllm_doctor.records.reading import Absent, Known, Reading, Unknown

HOURS = 48.0
DAY = 86400.0
_BEFORE_S = 600.0
# What the guard writes down when a unit ended by itself, or had to be ended.
_ENDED = {"crashed", "engine-dead", "one-engine-dead"}


def past(unit: str, now: float | None = None) -> Reading[Past]:
    """What is kept of the unit; Absent where nobody keeps anything."""
    at = time.time() if now is None else now
    try:
        reader = Reader(store_file())
    except (FileNotFoundError, PermissionError):
        return Absent("no guard keeps records on this host (vllm_doctor_guard: true)")
    except Unreadable as problem:
        return Unknown(f"the guard's records: {problem}", "journalctl -u vllm-doctor-guard")
    try:
        found = slopes(reader, unit, at, HOURS)
        growths = tuple(
            Growth(
                s.what,
                s.per_hour / GIB,
                s.low / GIB,
                s.high / GIB,
                s.hours,
                s.now / GIB,
                s.limit / GIB if s.limit else None,
                s.sure,
            )
            for s in found
        )
        told = Past(growths, _before_crash(reader, unit, at), _restarted(unit, at), _peaks(reader, unit, at))
        return Known(told, str(store_file()))
    except Unreadable as problem:
        return Unknown(f"the guard's records: {problem}", "journalctl -u vllm-doctor-guard")
    finally:
        reader.close()


def _before_crash(reader: Reader, unit: str, now: float) -> str:
    """The last record before the unit last ended by itself."""
    ends = [e.at for e in reader.events(unit, now - 14 * 86400) if e.kind in _ENDED]
    if not ends:
        return ""
    rows = [row for row in reader.minutes(unit, ends[-1] - _BEFORE_S) if row.at < ends[-1]]
    return told(rows[-1]) if rows else ""


def _peaks(reader: Reader, unit: str, now: float) -> tuple[Peak, ...]:
    since = level_since(reader, unit, now, HOURS)
    return tuple(
        Peak(one.uuid, _when(one.at), one.own, min(one.servers, one.others), max(0, one.others - one.servers))
        for one in reader.fullest(unit, since)
    )


def _restarted(unit: str, now: float) -> str:
    """The guard's last restart of the day: what looks like a crash is its deed."""
    done = [e for e in deeds.events(unit, now - DAY) if e.kind == deeds.RESTARTED]
    return f"{_when(done[-1].at)} {excerpt.said(done[-1].text)}" if done else ""


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(at))


def told(row: Minute) -> str:
    """One record in a line."""
    kv = "" if row.kv is None else f", KV cache {row.kv:.0%}"
    load = "load unknown" if row.running is None else f"{row.running:.0f} running, {row.waiting or 0:.0f} waiting{kv}"
    room = f" of {row.host_limit / GIB:.2f}" if row.host_limit else ""
    host = f", host memory {row.host / GIB:.2f}{room} GiB" if row.host else ""
    return f"{_when(row.at)}: {load}{host}"

"""What happened to a unit, from all who know: the guard's store, root's record of deeds, systemd and the journal."""

import datetime
import time
from collections.abc import Sequence

import msgspec

from vllm_doctor.gather import journal, procfs, systemd
from vllm_doctor.log.match import anchors, read, says
from vllm_doctor.operate.history import deeds
from vllm_doctor.operate.history.store_format import UnitEvent, store_file
from vllm_doctor.operate.history.store_reader import Reader, Unreadable
from vllm_doctor.records.reading import Absent, Known
from vllm_doctor.records.temporary import until

_STARTS = 12
# systemd's first words on a run.
_BEGINS = ("Starting ", "Started ")
# Who ends a service to start it anew writes that down first, and the end follows at once.
_STARTED_BY = {deeds.RESTARTED: "the guard", deeds.RECOVERED: "recover"}
_SOON_S = 120.0
_S = 5.0
# What a start says of its memory, with the words for a person.
_SAID = {"term-weights": "weights", "term-graphs": "graphs", "term-kv": "KV cache"}


class Timeline(msgspec.Struct, frozen=True):
    """Events, oldest first; what could not be read; and what nobody keeps here."""

    events: tuple[UnitEvent, ...]
    unread: tuple[str, ...]
    absent: tuple[str, ...] = ()


def timeline(unit: str | None, since: float) -> Timeline:
    """What happened to `unit` (None: to every unit) since that time, seconds since the epoch."""
    found = deeds.events(unit, since)
    unread: list[str] = []
    absent: list[str] = []
    names = {unit} if unit is not None else {event.unit for event in found}
    try:
        reader = Reader(store_file())
        try:
            found += reader.events(unit, since)
            names |= set(reader.units()) if unit is None else set()
        finally:
            reader.close()
    except FileNotFoundError:
        absent.append(f"no records of a guard ({store_file()}): vllm_doctor_guard: true keeps them")
    except Unreadable as problem:
        unread.append(str(problem))
    listed = systemd.find(unit, _S)
    if isinstance(listed, Known):
        names |= {one.unit.name for one in listed.value}
        for one in listed.value:
            found += _holding(one.unit.name, one.unit.drop_ins)
    else:
        (absent if isinstance(listed, Absent) else unread).append(listed.reason)
    for name in sorted(n for n in names if n is not None and n.endswith(".service")):
        runs, why = starts(name, since)
        found += runs
        unread += [f"{name}: {why}"] if why else []
    found += _expired(found, time.time(), booted=procfs.booted())
    told = _by_whom(sorted(set(found), key=lambda e: (e.at, e.unit)))
    return Timeline(tuple(told), tuple(dict.fromkeys(unread)), tuple(absent))


def _expired(events: Sequence[UnitEvent], now: float, *, booted: float = 0.0) -> list[UnitEvent]:
    """The ends of what took itself away: nobody was there to write them down. A boot takes it away before its time."""
    found: list[UnitEvent] = []
    for one in events:
        end = _moment(one.text.removeprefix(deeds.UNTIL).strip()) if one.text.startswith(deeds.UNTIL) else None
        over = ("off", deeds.UNTIL)  # turned off, or another put in its place
        ends = (e.at for e in events if (e.unit, e.kind) == (one.unit, one.kind) and e.text.startswith(over))
        if end is None:
            continue
        rebooted = one.at < booted < end
        gone, whom = (booted, "the host's restart") if rebooted else (end, "its timer")
        if gone < now and not any(one.at < at < gone for at in ends):
            found.append(UnitEvent(gone, one.unit, one.kind, f"expired: {whom} removed the drop-in"))
    return found


def _by_whom(events: list[UnitEvent]) -> list[UnitEvent]:
    """An end that the guard or `recover` made is no crash, though systemd calls it one. What they started, and ends at
    once, is."""
    done = [e for e in events if e.kind in _STARTED_BY]
    began = {(e.unit, _run(e)): e.at for e in events if e.kind == "start"}
    told: list[UnitEvent] = []
    for one in events:
        since = began.get((one.unit, _run(one)), float("-inf"))
        made = next((d for d in done if _ended_by(d, one) and since < d.at), None) if one.kind == "crash" else None
        if made is None:
            told.append(one)
            continue
        whom = f"{one.text} (by {_STARTED_BY[made.kind]}, which restarts it)"
        told.append(msgspec.structs.replace(one, kind="end", text=whom))
    return told


def _run(event: UnitEvent) -> str:
    """`run 1a2b3c4d`, by which a start and its end name the same run."""
    return event.text.partition(":")[0]


def _ended_by(deed: UnitEvent, end: UnitEvent) -> bool:
    return deed.unit == end.unit and -1.0 <= end.at - deed.at <= _SOON_S and not deed.text.startswith(deeds.UNTIL)


def _holding(unit: str, drop_ins: Sequence[str]) -> list[UnitEvent]:
    """Temporary drop-ins that are in force now."""
    ends = [(path, end) for path in drop_ins if (end := until(path)) is not None]
    return [
        UnitEvent(time.time(), unit, "holds", f"{path}, until {end.isoformat(timespec='seconds')}")
        for path, end in ends
    ]


def starts(unit: str, since: float) -> tuple[list[UnitEvent], str]:
    """The runs that the journal has, also of earlier boots: when each began, with the memory that it logged, and how it
    ended; why they cannot be read."""
    runs = journal.invocations(unit, _S, since=since)
    if not isinstance(runs, Known):
        return [], runs.reason
    found: list[UnitEvent] = []
    for run in runs.value[-_STARTS:]:
        if any(line.startswith(_BEGINS) for line in run.said):  # of an older run only the end lies in this time
            logged = _told(memory(journal.head(run.invocation, _S)))
            found.append(UnitEvent(run.began, unit, "start", f"run {run.invocation[:8]}: {logged}"))
        told = [line for line in run.said if says(line, "systemd-run-end", "systemd-oom-kill")]
        if told:
            kind = "crash" if run.failed else "end"
            found.append(UnitEvent(run.last, unit, kind, f"run {run.invocation[:8]}: {'; '.join(told)}"))
    return found, ""


def _told(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {size:.2f} GiB" for name, size in figures.items()) or "no memory logged"


def memory(lines: Sequence[str]) -> dict[str, float]:
    """The memory that a start logged, GiB: weights, graphs, KV cache."""
    found: dict[str, float] = {}
    for line in lines:
        for message, name in _SAID.items():
            if name not in found and any(a in line for a in anchors(message)):
                said = read(message, line)
                if said is not None:
                    found[name] = float(next(iter(said.values())))
    return found


def _moment(line: str) -> float | None:
    """The time at a line's head."""
    try:
        return datetime.datetime.fromisoformat(line.split(" ", 1)[0]).timestamp()
    except ValueError:
        return None

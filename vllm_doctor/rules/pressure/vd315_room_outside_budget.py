"""VD315: what vLLM's own budget leaves of a GPU is nearly used up while it serves, now or by the guard's records."""

import math
from collections.abc import Sequence

import msgspec

from vllm_doctor.records.finding import Arithmetic, Change, Evidence
from vllm_doctor.records.host import Gpu, GpuProcess
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Direction, Severity
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.device import maker_tool
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.gpu_holders import stop_others
from vllm_doctor.rules.say import finding, gib, set_flag

# The usual mark of a GPU that fills up. For the whole card it says nothing: the KV cache takes its part at the start.
_MARK = 0.85
# What is smaller than a driver's context is no room for anything: there the launch asks for the whole card on purpose.
_LEAST_ROOM_GIB = 0.5
_OWN_LIMITS = ("kv-cache-memory-bytes", "kv-cache-memory")


class _Room(msgspec.Struct, frozen=True):
    """One GPU outside vLLM's budget, GiB: what there is, what the service itself and what others use of it; `at` is
    when, where it is not now."""

    gpu: Gpu
    budget: float
    room: float
    own: float
    others: float
    at: str = ""

    @property
    def used(self) -> float:
        """GiB in use."""
        return self.own + self.others

    @property
    def part(self) -> float:
        """Part of the room that is in use."""
        return self.used / self.room


def judge(case: Case) -> Outcome:
    """Is more than the mark of the memory outside the budget in use on a GPU of this service?"""
    gpus, unit = case.gpus, case.unit
    if gpus is None or unit is None:
        missing = {Signal.GPUS} if gpus is None else {Signal.UNIT}
        return Unseen(frozenset(missing)) if case.live else NotHere("a log does not show the GPUs while it serves")
    if unit.active_state != "active" or case.root is not None:
        return NotHere("the service does not run")
    if any(case.effective(name) is not None for name in _OWN_LIMITS):
        return NotHere("--kv-cache-memory-bytes sets the KV cache's size; gpu_memory_utilization does not bound it")
    rooms = [room for gpu in gpus if (room := _room(gpu, unit.name, case.utilization[0])) is not None]
    if not rooms:
        return NotHere("no GPU reports memory of this service and a budget below its size")
    before = _before(case, rooms)
    worst = max((*rooms, *before), key=lambda one: one.part)
    if worst.part <= _MARK:
        return Clear(f"{worst.room - worst.used:.2f} GiB outside the budget are free")
    left = max(0.0, worst.room - worst.used)
    when = f"were free at {worst.at}" if worst.at else "are free"
    return finding(
        RULE,
        title=f"Only {left:.2f} GiB of GPU {worst.gpu.index} {when} outside vLLM's budget",
        severity=Severity.ADVICE,
        confidence=Confidence.LIKELY,
        evidence=tuple(
            Evidence(_source(one), f"GPU {one.gpu.index}", _told(one)) for one in (*rooms, *before) if one.part > _MARK
        )[:8],
        arithmetic=_sums(worst, case.utilization),
        changes=_changes(case, worst),
        refute=f"{maker_tool(case).holders} shows less memory once the load is over",
    )


def _room(gpu: Gpu, unit: str, utilization: float) -> _Room | None:
    """None where a size is not told, nothing of the service is there, or the launch leaves no room on purpose."""
    mine = [p for p in gpu.processes if p.unit == unit]
    if gpu.unified_memory or not gpu.cuda_bytes or not mine or any(p.used_bytes is None for p in gpu.processes):
        return None
    total, budget = gpu.cuda_bytes / GIB, utilization * gpu.cuda_bytes / GIB
    held, servers, others = (
        sum(p.used_bytes or 0 for p in group) / GIB
        for group in (
            mine,
            [p for p in gpu.processes if p.unit != unit and _serves(p)],
            [p for p in gpu.processes if p.unit != unit and not _serves(p)],
        )
    )
    room = total - budget - servers  # another server's memory is its own budget
    if room < _LEAST_ROOM_GIB:
        return None
    return _Room(gpu, budget, room, max(0.0, held - budget), others)


def _before(case: Case, rooms: Sequence[_Room]) -> list[_Room]:
    """The same GPUs when they were fullest in this run, from the guard's records."""
    peaks = {peak.gpu: peak for peak in case.past.peaks} if case.past is not None else {}
    found = []
    for now in rooms:
        peak = peaks.get(now.gpu.uuid or f"GPU {now.gpu.index}")
        if peak is None or not now.gpu.cuda_bytes:
            continue
        room = now.gpu.cuda_bytes / GIB - now.budget - peak.servers / GIB
        if room >= _LEAST_ROOM_GIB:
            own = max(0.0, peak.own / GIB - now.budget)
            found.append(_Room(now.gpu, now.budget, room, own, peak.others / GIB, peak.at))
    return found


def _source(one: _Room) -> str:
    return "the guard's records" if one.at else "NVML"


def _serves(process: GpuProcess) -> bool:
    return "vllm" in f"{process.unit or ''} {process.name or ''}".lower()


def _told(one: _Room) -> str:
    when = f"were used at {one.at}" if one.at else "are used"
    return f"{one.used:.2f} of {one.room:.2f} GiB outside the budget {when} ({one.part:.0%})"


def _sums(one: _Room, utilization: tuple[float, str]) -> tuple[Arithmetic, ...]:
    asked, where = utilization
    return (
        gib("budget", one.budget, f"{asked:g} × total", where),
        gib("outside the budget", one.room, "total − budget − other vLLM servers", _source(one)),
        gib("used by this service", one.own, "its processes − budget: graphs, NCCL, late allocations", _source(one)),
        gib("used by others", one.others, "all other processes", _source(one)),
    )


def _changes(case: Case, one: _Room) -> tuple[Change | None, ...]:
    total = (one.gpu.cuda_bytes or 0) / GIB
    wanted = math.floor((one.budget + one.room - one.used / _MARK) / total * 100) / 100
    more = total * (case.utilization[0] - wanted)
    lower = set_flag(
        case,
        "gpu-memory-utilization",
        wanted,
        Direction.LOWER,
        f"leaves {more:.2f} GiB more outside the budget; the KV cache shrinks by the same amount",
    )
    stop = (
        stop_others(case, "the memory that these processes free is room for this service")
        if one.others > one.own
        else None
    )
    return (stop, lower if 0 < wanted < case.utilization[0] else None)


RULE = rule(
    "VD315",
    reads=frozenset({Signal.GPUS, Signal.UNIT, Signal.LAUNCH, Signal.LOG, Signal.VERSION, Signal.PAST}),
    judge=judge,
)

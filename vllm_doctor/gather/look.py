"""A cheap look at every vLLM unit of the host, for who looks again and again: one systemctl, one NVML, one scrape."""

import os
import re
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from vllm_doctor.gather import journal, nvml, probe, procfs, systemd
from vllm_doctor.gather.bounded import text_of_start, whole_file
from vllm_doctor.gather.concurrently import Task
from vllm_doctor.gather.environment_file import environment_files
from vllm_doctor.gather.http import NO_PASS, NoResponse, Pass, get_keyed
from vllm_doctor.gather.launch import parse_argv
from vllm_doctor.gather.metrics import scrape_few
from vllm_doctor.gather.systemd import Found
from vllm_doctor.knowledge import serving
from vllm_doctor.launch.positions import option_text
from vllm_doctor.records import excerpt
from vllm_doctor.records.host import Gpu, Scrape
from vllm_doctor.records.reading import Absent, Known, Reading, Unknown
from vllm_doctor.records.sample import UNIX_SOCKET, CardUse, Counters, EngineUse, Look

# Who changes the host's services just now writes a line here, and takes the file away; a reboot forgets it.
CHANGING = Path("/run/vllm-doctor/changing")
# So long a change may take; an older file was left by one that was cut off.
_CHANGE_S = 4 * 3600.0
_ASLEEP = {"weights_offloaded", "discard_all"}
_TICKS = os.sysconf("SC_CLK_TCK")
_HTTP_S = 3.0
_MOST_ENGINES = 256
_GROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/systemd"), Path("/sys/fs/cgroup/unified"))
_TIMES = tuple(f"{name}_{part}" for name in (serving.TO_FIRST, *serving.BETWEEN) for part in ("sum", "count"))
_WANTED = tuple(
    name.partition(":")[2].removesuffix("_total")
    for names in (
        serving.KV_USE, serving.RUNNING, serving.WAITING, serving.PREEMPTIONS, serving.FINISHED, serving.PROMPT_TOKENS,
        serving.GENERATED, serving.SLEEP, _TIMES,
    )
    for name in names
)  # fmt: skip


def looks(
    names: tuple[str, ...], *, cards: bool, canaries: Mapping[str, float], deadline_s: float = 5.0
) -> Reading[tuple[Look, ...]]:
    """The vLLM units, or those of `names` that exist. `cards` asks the driver too, which costs as much as all the rest.

    `canaries` are the units that are asked for a completion, with the seconds that it may take.
    """
    found = systemd.find(None, deadline_s)
    if isinstance(found, Unknown) or (isinstance(found, Absent) and not names):
        return found
    listed = found.value if isinstance(found, Known) else ()
    chosen = [one for one in listed if not names or one.unit.name in names]
    for name in set(names) - {one.unit.name for one in chosen}:  # a unit of another name than vLLM's usual ones
        other = systemd.find(name, deadline_s)
        chosen += other.value if isinstance(other, Known) else ()
    gpus = nvml.read()[0] if cards else Absent("not asked")
    at = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic()
    change = changing(at[0])
    held = {one.unit.name: change.who for one in chosen if change is not None and change.of(one.unit.name)}
    tasks = [
        Task(partial(_look, one, gpus, at, held.get(one.unit.name, ""), canaries.get(one.unit.name))) for one in chosen
    ]
    until = time.monotonic() + deadline_s + 4 * _HTTP_S + max(canaries.values(), default=0.0)
    late = [Look(one.unit.name, *at, one.unit.active_state, health=None, why="not read in time") for one in chosen]
    return Known(tuple(task.result(until, other) for task, other in zip(tasks, late, strict=True)), "systemctl show")


class HostChange(msgspec.Struct, frozen=True):
    """Who changes the host's services just now, and which; without `unit` it may be every one."""

    who: str
    unit: str = ""

    def of(self, unit: str) -> bool:
        """Is this unit changed?"""
        return self.unit in {"", unit}


def changing(now: float, file: Path = CHANGING) -> HostChange | None:
    """None where nobody changes anything, where that was said long ago, or where the process that said so is gone. Its
    number and start are on the second line, the one unit that it changes on the third."""
    try:
        age = now - file.stat().st_mtime
    except OSError:
        return None
    read = whole_file(file, 4096)
    lines = (read.value.decode(errors="replace") if isinstance(read, Known) else "").strip().splitlines()
    who, process, unit = (*lines, "", "", "")[:3]
    if age >= _CHANGE_S or _gone(process):
        return None
    return HostChange(excerpt.name(who) or "somebody", excerpt.name(unit))


def _gone(process: str) -> bool:
    found = re.fullmatch(r"([0-9]{1,10}) ([0-9]{1,20})", process)
    return found is not None and procfs.started(int(found[1])) != int(found[2])


def base_of(found: Found) -> tuple[str | None, Pass]:
    """Where the unit's server answers, and what opens it."""
    flags = parse_argv(found.argv, found.env).flags
    return probe.base_url(flags), Pass(key_of(found), probe.certificate_of(flags))


def key_of(found: Found) -> str | None:
    """The API key, from where the unit has it."""
    given = option_text(found.argv, "api-key")
    if given is not None:
        return given
    files = environment_files(found.unit.properties.get("EnvironmentFiles", ""))
    return found.env.get("VLLM_API_KEY") or files.get("VLLM_API_KEY")


def pids_of(found: Found) -> tuple[int, ...]:
    """The processes of the unit's control group."""
    group = found.control_group.lstrip("/")
    for root in _GROUPS if group else ():
        listed = text_of_start(root / group / "cgroup.procs")
        if listed:
            return tuple(int(word) for word in listed.split() if word.isdecimal())
    return tuple(pid for pid in procfs.pids() if procfs.unit_of(pid) == found.unit.name) if group else ()


def _look(
    found: Found, gpus: Reading[tuple[Gpu, ...]], at: tuple[float, float, float], held: str, canary_s: float | None
) -> Look:
    unit, pids = found.unit, pids_of(found)
    own = _anonymous(pids)
    look = Look(
        unit.name,
        *at,
        unit.active_state,
        invocation=unit.invocation_id or "",
        restarts=unit.restarts or 0,
        drained=found.unit.drained,
        held=held,
        host=own,
        host_limit=_room(own, unit.memory_max),
        engine_cpu=_cpu(pid for pid in pids if pid != unit.main_pid) if len(pids) > 1 else None,
        engine_processes=max(1, len(pids) - 1),
        cards=_used(gpus, frozenset(pids)),
    )
    base, given = base_of(found)
    if unit.active_state != "active" or base is None:
        return msgspec.structs.replace(
            look, health=None if base is None else 0, why=UNIX_SOCKET if base is None else ""
        )
    answer = get_keyed(f"{base}/health", given, deadline_s=_HTTP_S, max_bytes=1 << 16)
    health = (None if answer.connected else 0) if isinstance(answer, NoResponse) else answer.status
    if health == 0:
        silent = journal.silent_s(look.invocation, at[0], _HTTP_S) if look.invocation else None
        return msgspec.structs.replace(look, health=0, silent_s=silent)
    told, why = _load(base, given)
    canary = _completes(base, found, given, canary_s) if canary_s is not None else None
    return msgspec.structs.replace(look, health=health, counters=told, why=why, canary=canary)


def _load(base: str, given: Pass) -> tuple[Counters | None, str]:
    """What /metrics says of serving, or why it says nothing."""
    scraped = scrape_few(base, _WANTED, deadline_s=_HTTP_S, given=given)
    if isinstance(scraped, Unknown):
        return None, scraped.reason
    told = _counters(scraped)
    if told.running is not None:
        return told, ""
    return (
        None,
        f"{base}/metrics has no {serving.RUNNING[0]}: its load is unknown (another program, or another release)",
    )


def _counters(scrape: Scrape) -> Counters:
    asleep = any(
        s.value > 0 and s.labels.get("sleep_state") in _ASLEEP for s in scrape.samples if s.name in serving.SLEEP
    )
    return Counters(
        running=serving.total(scrape, serving.RUNNING),
        waiting=serving.total(scrape, serving.WAITING),
        kv=serving.highest(scrape, serving.KV_USE),
        prompt=serving.total(scrape, serving.PROMPT_TOKENS),
        generated=serving.total(scrape, serving.GENERATED),
        finished=serving.total(scrape, serving.FINISHED),
        preemptions=serving.total(scrape, serving.PREEMPTIONS),
        server=next((s.value for s in scrape.samples if s.name == "process_start_time_seconds"), None),
        first=_time(scrape, (serving.TO_FIRST,)),
        between=_time(scrape, serving.BETWEEN),
        asleep=asleep,
        engines=_engines(scrape),
    )


def _engines(scrape: Scrape) -> tuple[EngineUse, ...]:
    """The engines one by one, where the server has several."""
    names = tuple(serving.engines(scrape))
    if not 1 < len(names) <= _MOST_ENGINES:
        return ()
    found = []
    for name in names:
        of = Scrape(scrape.at, tuple(s for s in scrape.samples if s.labels.get("engine") == name))
        found.append(
            EngineUse(
                excerpt.word(name),
                running=serving.total(of, serving.RUNNING),
                prompt=serving.total(of, serving.PROMPT_TOKENS),
                generated=serving.total(of, serving.GENERATED),
                finished=serving.total(of, serving.FINISHED),
                kv=serving.highest(of, serving.KV_USE),
            )
        )
    return tuple(found)


def _time(scrape: Scrape, names: tuple[str, ...]) -> tuple[float, float] | None:
    """Sum and count of the first of these histograms that is there."""
    for name in names:
        spent, count = serving.total(scrape, (f"{name}_sum",)), serving.total(scrape, (f"{name}_count",))
        if spent is not None and count is not None:
            return spent, count
    return None


def look_at(base: str, given: Pass = NO_PASS) -> Look:
    """A server that is known by its address alone, in a container or on another host."""
    at = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic()
    answer = get_keyed(f"{base}/health", given, deadline_s=_HTTP_S, max_bytes=1 << 16)
    health = (None if answer.connected else 0) if isinstance(answer, NoResponse) else answer.status
    look = Look(base, *at, active="", health=health)
    told, why = _load(base, given)
    return msgspec.structs.replace(look, counters=told, why=why)


def _completes(base: str, found: Found, given: Pass, within_s: float) -> bool | None:
    """Does a completion of one token come back? None where the server refuses to be asked: that proves nothing."""
    named = probe.served(base, deadline_s=_HTTP_S, given=given)
    model = named[0] if named else parse_argv(found.argv, found.env).model
    return probe.completion(base, model, deadline_s=within_s, given=given)[0] if model is not None else None


def _used(gpus: Reading[tuple[Gpu, ...]], pids: frozenset[int]) -> tuple[CardUse, ...]:
    """The GPUs that the unit's processes hold memory of."""
    if not isinstance(gpus, Known):
        return ()
    found: list[CardUse] = []
    for gpu in gpus.value:
        mine = [p.used_bytes for p in gpu.processes if p.pid in pids]
        if not mine:
            continue
        others = [p.used_bytes for p in gpu.processes if p.pid not in pids]
        found.append(CardUse(gpu.uuid or f"GPU {gpu.index}", _sum(mine), _sum(others), gpu.total_bytes, gpu.free_bytes))
    return tuple(found)


def _sum(sizes: list[int | None]) -> int | None:
    """None where a process does not say its size: a sum without it would be wrong."""
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _room(own: int | None, most: int | None) -> int | None:
    """What the processes may have: what they have and what the host has left, and no more than the unit's limit."""
    free = procfs.meminfo().get("MemAvailable")
    room = own + free if own is not None and free is not None else None
    return min((size for size in (room, most) if size), default=None)


def _anonymous(pids: tuple[int, ...]) -> int | None:
    """Memory of the processes that no file backs, bytes; the page cache of the weights is no growth."""
    found = [
        int(line.split()[1]) << 10
        for pid in pids
        for line in (text_of_start(procfs.PROC / str(pid) / "status") or "").splitlines()
        if line.startswith("RssAnon:")
    ]
    return sum(found) if found else None


def _cpu(pids: Iterable[int]) -> float | None:
    """Seconds of the processor that these processes have used."""
    used: list[float] = []
    for pid in pids:
        fields = (text_of_start(procfs.PROC / str(pid) / "stat") or "").rpartition(")")[2].split()
        if len(fields) > 12:
            used.append((int(fields[11]) + int(fields[12])) / _TICKS)
    return sum(used) if used else None

"""The live picture of one unit: all readings at the same time, each with a deadline, none that can hold us up."""

import datetime
import os
import re
import shlex
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import msgspec

from vllm_doctor.gather import (
    containers,
    journal,
    kernel,
    nvml,
    place,
    probe,
    procfs,
    prometheus,
    release,
    systemd,
    unit_line,
)
from vllm_doctor.gather.concurrently import Task
from vllm_doctor.gather.contained import place_of
from vllm_doctor.gather.environment_file import environment_files
from vllm_doctor.gather.http import Pass
from vllm_doctor.gather.inspected import Inspected
from vllm_doctor.gather.launch import is_vllm, parse_argv
from vllm_doctor.gather.metrics import scrape_twice
from vllm_doctor.gather.probe import CANARY_S, HTTP_S, SILENCE_S
from vllm_doctor.gather.program import gone
from vllm_doctor.gather.systemd import Found
from vllm_doctor.gather.target import Target
from vllm_doctor.gather.unit_files import is_rendered, settings
from vllm_doctor.gather.unit_runs import judged_log, since_start
from vllm_doctor.gather.weight_files import checked
from vllm_doctor.gather.worker import Worker, collect
from vllm_doctor.launch.port import port_of
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Subject
from vllm_doctor.records.host import (
    Driver,
    Gpu,
    Kernel,
    Launch,
    Machine,
    Metrics,
    Probe,
    Process,
    Setting,
    Unit,
    WeightFiles,
)
from vllm_doctor.records.log import Log
from vllm_doctor.records.reading import NOT_GIVEN, Absent, Known, Reading, Unknown
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.redact.launch import secret_values
from vllm_doctor.redact.records import record_without
from vllm_doctor.redact.visible import visible

_VERSION_LINE = re.compile(r"vLLM (?:API )?server version v?(\d[\w.+-]*)|LLM engine \(v(\d[\w.+-]*)\)")
# A host in order answers in well under a second. One under load may take longer, and is not therefore unknown.
PATIENCE_S = 5.0
# What a cluster may take: a distant API server, asked through a program that fetches credentials.
CLUSTER_S = 15.0


def discover(deadline_s: float = PATIENCE_S) -> Reading[tuple[str, ...]]:
    """The vLLM units of this host, those in trouble first."""
    found = systemd.find(None, deadline_s)
    if isinstance(found, Known):
        return Known(tuple(f.unit.name for f in found.value), found.source)
    return found


def gather_live(unit: str | None, deadline_s: float = PATIENCE_S) -> Snapshot:
    """Everything this user may see of `unit` (None: the vLLM unit of this host, one in trouble before others).

    `deadline_s` bounds every reading but the driver's, which may need seconds to wake a card (`nvml.DEADLINE_S`).
    """
    return gather_all(deadline_s, unit)[0]


def gather_all(
    deadline_s: float = PATIENCE_S, unit: str | None = None, *, canary: bool | None = False, aims: Sequence[Target] = ()
) -> tuple[Snapshot, ...]:
    """One snapshot for each vLLM of this host, whatever runs it (or for `unit` alone, or for each of `aims`), never
    none: without any, one of the bare host.

    A server that says it is healthy is asked for one token: with `canary`, and with None where that can be tried.
    """
    if any(aim.kind == "pod" for aim in aims):
        deadline_s = max(deadline_s, CLUSTER_S)
    cards = Worker(nvml.read, _Cards, nvml.DEADLINE_S + 1)
    kernel_log = Worker(partial(kernel.read, deadline_s), _KernelLog, deadline_s + PATIENCE_S)
    most = 3 * deadline_s + nvml.DEADLINE_S + SILENCE_S + (0 if canary is False else CANARY_S) + 2
    works, seen = _works(deadline_s, unit, aims, canary=canary)
    reading = [Worker(work, _Read, most) for _, work in works]
    collect([cards, kernel_log, *reading])
    gpus, driver = cards.result(_late_cards)
    events = kernel_log.result(lambda why: Unknown(f"kernel log: {why}", "journalctl -k -b"))
    read = [one.result(partial(_late, name)) for one, (name, _) in zip(reading, works, strict=True)]
    if unit is None and not aims:
        read = _beside(read, seen, most, canary=canary)
    # The kernel, and another unit, may have written what one unit is given and nobody else may know.
    secrets = frozenset[str]().union(*(own for _, own in read))
    events = record_without(events, secrets)
    shots = [record_without(shot, secrets - frozenset(own)) for shot, own in read]
    return tuple(
        shot
        if shot.gpus != NOT_GIVEN
        else msgspec.structs.replace(shot, kernel=since_start(events, shot.log), gpus=gpus, driver=driver)
        for shot in shots
    )


_Work: TypeAlias = tuple[str, Callable[[], "_Read"]]


def _works(
    deadline_s: float, unit: str | None, aims: Sequence[Target], *, canary: bool | None
) -> tuple[list[_Work], tuple[Inspected, ...]]:
    """What is to be read, each with its name; and the containers among it."""
    if aims:
        return [one for aim in aims for one in _aimed(aim, deadline_s, canary=canary)], ()
    listing = Worker(partial(containers.find, deadline_s), _Listed, 3 * deadline_s) if unit is None else None
    found = systemd.find(unit, deadline_s)
    seen: tuple[Inspected, ...] = ()
    if listing is not None:
        collect([listing])
        seen, _ = listing.result(lambda _why: ((), ()))
    works: list[_Work] = []
    if isinstance(found, Known):
        works += [(one.unit.name, partial(_snapshot, one, deadline_s, canary=canary)) for one in found.value]
    works += [(place_of(one), partial(place.of_container, one, deadline_s, canary=canary)) for one in seen]
    if not isinstance(found, Known) and (not works or isinstance(found, Unknown)):
        works.append(("this host", partial(_without_unit, found)))
    return works, seen


def _aimed(aim: Target, deadline_s: float, *, canary: bool | None) -> list[_Work]:
    """What one target names. Raises NotThereError where nothing of that name is there to be read."""
    if aim.kind == "url":
        told = prometheus.read(aim.name, _now())
        if isinstance(told, Unknown):
            raise NotThereError(told.reason, told.remedy)
        if isinstance(told, Known):
            return [(one.subject.place or aim.name, partial(_told, one)) for one in told.value]
        return [(aim.name, partial(place.of_url, aim.name, canary=canary))]
    if aim.kind == "pid":
        if not procfs.cmdline(int(aim.name)):
            raise NotThereError(f"pid:{aim.name}: no such process")
        if not procfs.is_of_vllm(int(aim.name)):
            program = excerpt.word(visible(procfs.cmdline(int(aim.name))[0]))
            raise NotThereError(
                f"pid:{aim.name} is {program}, no vLLM",
                "name a vllm serve, its engine or a program that has vLLM loaded",
            )
        return [(f"pid:{aim.name}", partial(place.of_process, int(aim.name), canary=canary))]
    found = place.find(aim, deadline_s)
    if not isinstance(found, Known):
        raise NotThereError(found.reason, found.remedy if isinstance(found, Unknown) else "")
    return [(place_of(one), partial(place.of_container, one, deadline_s, canary=canary)) for one in found.value]


def _told(shot: Snapshot) -> "_Read":
    return shot, ()


class NotThereError(Exception):
    """What was named could not be read: nothing of that name, or nobody who tells of it."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.remedy = remedy


_Listed: TypeAlias = tuple[tuple[Inspected, ...], tuple[Unknown, ...]]
_KernelLog: TypeAlias = Reading[Kernel]
# A picture, and the secrets that were taken out of it.
_Read: TypeAlias = tuple[Snapshot, tuple[str, ...]]
_Cards: TypeAlias = tuple[Reading[tuple[Gpu, ...]], Reading[Driver]]


def _late_cards(why: str) -> tuple[Reading[tuple[Gpu, ...]], Reading[Driver]]:
    unknown = Unknown(f"NVML: {why}", "nvidia-smi")
    return unknown, unknown


def _late(name: str, why: str) -> _Read:
    """A unit of which nothing came back: that is all that can be said of it."""
    return _of_host(Unknown(f"{name}: {why}", "look at the load: uptime"), NOT_GIVEN, unit=name), ()


def _snapshot(chosen: Found, deadline_s: float, *, canary: bool | None) -> _Read:
    """What one unit tells; its host's cards and kernel are read beside it."""
    until = time.monotonic() + deadline_s
    state = chosen.unit
    pid = state.main_pid if state.running else None
    launch, env = _launch(chosen, pid)
    from_files = environment_files(state.properties.get("EnvironmentFiles", ""))
    flags = launch.value.flags if isinstance(launch, Known) else {}
    base = probe.base_url(flags)
    key = env.get("VLLM_API_KEY") or from_files.get("VLLM_API_KEY")
    given = Pass(key, probe.certificate_of(flags))
    asked: Task[Probe | None] = Task(lambda: probe.probe(base, deadline_s=HTTP_S, given=given) if base else None)
    scraped: Task[Reading[Metrics]] = Task(lambda: _metrics(base, state, 2 * HTTP_S, given))
    runs = journal.invocations(state.name, deadline_s)
    machine: Task[Machine | None] = Task(
        partial(procfs.machine, main_pid=pid, port=port_of(flags), folders=_folders(launch, env))
    )
    stands: Task[tuple[tuple[Setting, ...], bool]] = Task(lambda: (settings(state), is_rendered(state)))
    answered = asked.result(until, None)
    if base is not None and state.running and answered is not None and answered.silent:
        # A busy server may be slow; only one that stays silent for seconds is called silent.
        answered = probe.probe(base, deadline_s=SILENCE_S, given=given)
    healthy = answered is not None and answered.health_status == 200
    model = launch.value.model if isinstance(launch, Known) else None
    weights: Task[WeightFiles | None] = Task(
        partial(_weights, None if healthy else model, state.properties.get("User", ""))
    )
    host = machine.result(max(until, time.monotonic() + HTTP_S), None)
    halted = _halted(host, state.name)
    if answered is not None and healthy and halted is not None:  # nothing would come back, and why is known
        answered = msgspec.structs.replace(answered, untried=f"process {halted.pid} does not run")
    elif canary is not False and healthy and answered is not None and base is not None and isinstance(launch, Known):
        own = canary is True
        answered = probe.one_token(base, launch.value, answered, asked=own, deadline_s=CANARY_S, given=given)
    log = judged_log(chosen, runs, healthy=healthy, deadline_s=deadline_s)
    if host is not None:
        lost = gone(chosen.argv[0]) if chosen.argv and not healthy else None
        host = msgspec.structs.replace(
            host, program=lost, weights=weights.result(max(until, time.monotonic() + HTTP_S), None)
        )
    lines, by_playbook = stands.result(max(until, time.monotonic() + HTTP_S), ((), False))
    state = msgspec.structs.replace(state, settings=lines, rendered=by_playbook)
    # What the unit is given and nobody else may know is looked for in all that was read.
    words = (*chosen.argv, *procfs.cmdline(pid or 0))
    secrets = secret_values(words, from_files | env, (state.name, socket.gethostname()))
    taken = Snapshot(
        taken_at=_now(),
        subject=Subject(host=socket.gethostname(), unit=state.name),
        log=log,
        unit=Known(state, "systemctl show"),
        launch=launch,
        version=_version(log, chosen.argv, pid),
        metrics=scraped.result(
            max(until, time.monotonic() + HTTP_S),
            Unknown("metrics: no answer in time", f"curl -m 5 {shlex.quote(f'{base}/metrics')}"),
        ),
        machine=Known(host, "/proc") if host else Unknown("/proc was not read in time", "look at the load: uptime"),
        probe=_probe(answered, base, running=state.running),
        model_config=release.model_config(launch.value, env, state.properties.get("User"))
        if isinstance(launch, Known)
        else Unknown("the launch is unknown", f"systemctl cat {shlex.quote(state.name)}"),
        live=True,
    )
    return record_without(taken, secrets), tuple(secrets)


def _halted(host: Machine | None, unit: str) -> Process | None:
    """A process of the unit that is stopped or frozen, so that no request of it ends."""
    mine = (p for p in (host.processes if host is not None else ()) if p.unit == unit)
    return next((p for p in mine if p.state == "T" or p.frozen), None)


def _weights(model: str | None, user: str) -> WeightFiles | None:
    return checked(model, user) if model is not None and model.startswith("/") else None


def _now() -> str:
    return datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="seconds")


def _without_unit(missing: Absent | Unknown) -> _Read:
    """A host with no unit to judge: what the machine itself says is still worth having."""
    return _of_host(missing, Known(procfs.machine(main_pid=None, port=None, folders=["/"]), "/proc")), ()


def _beside(read: list[_Read], seen: Sequence[Inspected], most: float, *, canary: bool | None) -> list[_Read]:
    """vLLM that runs beside the units and containers that were found: a process that is of neither is judged by
    itself; what is left (a container of another user's runtime) is told in a picture of the host."""
    shots = [shot for shot, _ in read]
    bare = [shot for shot in shots if shot.subject.unit is None and shot.subject.place is None]
    if any(isinstance(shot.unit, Unknown) for shot in bare):
        return read
    units = [shot.subject.unit for shot in shots if shot.subject.unit is not None]
    whole = _first_machine(shots) or procfs.machine(main_pid=None, port=None, folders=["/"])
    strays = [p for p in procfs.unexplained(whole.processes, units) if not _is_of(p, seen)]
    pids = {p.pid for p in strays}
    plain = [p for p in strays if p.ppid not in pids and _is_plain(p)][:16]
    reading = [Worker(partial(place.of_process, p.pid, canary=canary), _Read, most) for p in plain]
    collect(reading)
    judged = [one.result(partial(_late, f"process {p.pid}")) for one, p in zip(reading, plain, strict=True)]
    rest = tuple(p for p in strays if not _is_plain(p))
    if rest and not bare:
        own = msgspec.structs.replace(whole, processes=rest, listeners=())
        judged.append((_of_host(Absent("no unit of vLLM's started it"), Known(own, "/proc")), ()))
    told = [one for one in read if not (judged and not rest and one[0] in bare)]
    return [*told, *judged]


def _first_machine(shots: Sequence[Snapshot]) -> Machine | None:
    """The host's processes, all of them: a container's picture has its own alone."""
    whole = (shot.machine for shot in shots if shot.subject.place is None)
    return next((machine.value for machine in whole if isinstance(machine, Known)), None)


def _is_of(process: Process, seen: Sequence[Inspected]) -> bool:
    return process.container is not None and any(one.id.startswith(process.container[1]) for one in seen)


def _is_plain(process: Process) -> bool:
    """Did a terminal or a script start it, and nothing that keeps its log?"""
    return process.container is None and process.unit is None and process.user_unit is None


def _of_host(missing: Absent | Unknown, machine: Reading[Machine], unit: str | None = None) -> Snapshot:
    return Snapshot(
        taken_at=_now(),
        subject=Subject(host=socket.gethostname(), unit=unit),
        log=missing,
        unit=missing,
        launch=missing,
        version=missing,
        metrics=missing,
        machine=machine,
        probe=missing,
        model_config=missing,
        live=True,
    )


def _launch(found: Found, pid: int | None) -> tuple[Reading[Launch], dict[str, str]]:
    """The command line in effect: the running process's own, otherwise what the unit would start."""
    argv = procfs.cmdline(pid) if pid is not None else ()
    if not argv:
        found = unit_line.exact(found)
    env = release.launch_environment(pid, found.env)
    if found.argv and argv[-len(found.argv) :] == found.argv:
        argv = found.argv  # the interpreter before it comes from the script's first line
    if is_vllm(argv):
        return Known(parse_argv(argv, env), f"/proc/{pid}/cmdline"), env
    if found.argv:
        return Known(parse_argv(found.argv, env), f"ExecStart of {found.unit.name}"), env
    return Unknown(f"{found.unit.name} has no ExecStart", f"systemctl cat {shlex.quote(found.unit.name)}"), env


def _folders(launch: Reading[Launch], env: dict[str, str]) -> list[str]:
    """File systems whose space matters to the service."""
    model = launch.value.model if isinstance(launch, Known) else None
    named = ["/", "/tmp", model if model and model.startswith("/") else "", env.get("HF_HOME", "")]  # noqa: S108
    return [folder for folder in dict.fromkeys(named) if folder and os.path.isdir(folder)]  # noqa: PTH112


def _metrics(base: str | None, unit: Unit, deadline_s: float, given: Pass) -> Reading[Metrics]:
    if base is None:
        return Absent("the server listens on a Unix socket only")
    if unit.active_state not in {"active", "activating", "deactivating"}:
        return Absent(f"{unit.name} is not running, so it has no metrics")
    return scrape_twice(base, deadline_s=deadline_s, given=given)


def _probe(answered: Probe | None, base: str | None, *, running: bool) -> Reading[Probe]:
    if base is None:
        return Absent("the server listens on a Unix socket only")
    if answered is None:
        return Known(Probe(health_error="no answer in time"), base)
    if not running and answered.health_status is None:
        return Absent("the unit is not running")
    return Known(answered, base)


def _version(log: Reading[Log], argv: tuple[str, ...], pid: int | None) -> Reading[str]:
    """What the judged run said of itself, otherwise what is installed."""
    if isinstance(log, Known):
        for line in log.value.last.lines[:400]:
            found = _VERSION_LINE.search(line.text)
            if found:
                return Known(found[1] or found[2], log.value.source)
    return release.version(argv, pid)

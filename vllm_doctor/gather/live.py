"""The live picture of one unit: all readings at the same time, each with a deadline, none that can hold us up."""

import datetime
import os
import re
import shlex
import socket
import time
from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

import msgspec

from vllm_doctor.gather import journal, kernel, nvml, probe, procfs, release, systemd
from vllm_doctor.gather.environment_file import environment_files
from vllm_doctor.gather.http import Pass
from vllm_doctor.gather.launch import is_vllm, parse_argv
from vllm_doctor.gather.life import judged_log, since_start
from vllm_doctor.gather.metrics import scrape_twice
from vllm_doctor.gather.systemd import Found
from vllm_doctor.gather.together import Task
from vllm_doctor.gather.unit_files import settings
from vllm_doctor.gather.weight_files import checked
from vllm_doctor.gather.worker import Worker, collect
from vllm_doctor.records.finding import Subject
from vllm_doctor.records.host import Driver, Gpu, Kernel, Launch, Machine, Metrics, Probe, Setting, Unit, WeightFiles
from vllm_doctor.records.log import Log
from vllm_doctor.records.reading import NOT_GIVEN, Absent, Known, Reading, Unknown
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.redact.launch import secret_values
from vllm_doctor.redact.records import without

_VERSION_LINE = re.compile(r"vLLM API server version (\d[\w.+-]*)|LLM engine \(v(\d[\w.+-]*)\)")
# A host in order answers in well under a second. One under load may take longer, and is not therefore unknown.
PATIENCE_S = 5.0
HTTP_S = 1.0
SILENCE_S = 4.0
CANARY_S = 15.0


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
    deadline_s: float = PATIENCE_S, unit: str | None = None, *, canary: bool = False
) -> tuple[Snapshot, ...]:
    """One snapshot for each vLLM unit (or for `unit` alone), never none: without a unit, one of the bare host.

    With `canary` a server that says it is healthy is asked for one token.
    """
    cards = Worker(nvml.read, _Cards, nvml.DEADLINE_S + 1)
    kernel_log = Worker(partial(kernel.read, deadline_s), _KernelLog, deadline_s + PATIENCE_S)
    most = 3 * deadline_s + nvml.DEADLINE_S + SILENCE_S + (CANARY_S if canary else 0) + 2
    found = systemd.find(unit, deadline_s)
    if isinstance(found, Known):
        names = [one.unit.name for one in found.value]
        reading = [Worker(partial(_snapshot, one, deadline_s, canary=canary), _Read, most) for one in found.value]
    else:
        names = ["this host"]
        reading = [Worker(partial(_without_unit, found), _Read, most)]
    collect([cards, kernel_log, *reading])
    gpus, driver = cards.result(_late_cards)
    events = kernel_log.result(lambda why: Unknown(f"kernel log: {why}", "journalctl -k -b"))
    read = [one.result(partial(_late, name)) for one, name in zip(reading, names, strict=True)]
    # The kernel, and another unit, may have written what one unit is given and nobody else may know.
    secrets = frozenset[str]().union(*(own for _, own in read))
    events = without(events, secrets)
    shots = [without(shot, secrets - frozenset(own)) for shot, own in read]
    if unit is None:
        shots += _beside(shots, names)
    return tuple(
        msgspec.structs.replace(shot, kernel=since_start(events, shot.log), gpus=gpus, driver=driver) for shot in shots
    )


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


def _snapshot(chosen: Found, deadline_s: float, *, canary: bool) -> _Read:
    """What one unit tells; its host's cards and kernel are read beside it."""
    until = time.monotonic() + deadline_s
    state = chosen.unit
    running = state.active_state in {"active", "activating", "deactivating", "reloading"}
    pid = state.main_pid if running else None
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
        partial(procfs.machine, main_pid=pid, port=probe.port_of(flags), folders=_folders(launch, env))
    )
    stands: Task[tuple[Setting, ...]] = Task(partial(settings, state))
    model = launch.value.model if isinstance(launch, Known) else None
    weights: Task[WeightFiles | None] = Task(
        partial(_weights, model if state.active_state in {"failed", "activating"} else None)
    )
    answered = asked.result(until, None)
    if base is not None and running and answered is not None and "sent nothing" in (answered.health_error or ""):
        # A busy server may be slow; only one that stays silent for seconds is called silent.
        answered = probe.probe(base, deadline_s=SILENCE_S, given=given)
    healthy = answered is not None and answered.health_status == 200
    if canary and healthy and answered is not None and base is not None and isinstance(launch, Known):
        answered = probe.canary(base, launch.value, answered, deadline_s=CANARY_S, given=given)
    log = judged_log(chosen, runs, healthy=healthy, deadline_s=deadline_s)
    host = machine.result(max(until, time.monotonic() + HTTP_S), None)
    if host is not None:
        host = msgspec.structs.replace(host, weights=weights.result(max(until, time.monotonic() + HTTP_S), None))
    state = msgspec.structs.replace(state, settings=stands.result(max(until, time.monotonic() + HTTP_S), ()))
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
        probe=_probe(answered, base, running=running),
        model_config=release.model_config(launch.value, env, state.properties.get("User"))
        if isinstance(launch, Known)
        else Unknown("the launch is unknown", f"systemctl cat {shlex.quote(state.name)}"),
        live=True,
    )
    return without(taken, secrets), tuple(secrets)


def _weights(model: str | None) -> WeightFiles | None:
    return checked(model) if model is not None and model.startswith("/") else None


def _now() -> str:
    return datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="seconds")


def _without_unit(missing: Absent | Unknown) -> _Read:
    """A host with no unit to judge: what the machine itself says is still worth having."""
    return _of_host(missing, Known(procfs.machine(main_pid=None, port=None, folders=["/"]), "/proc")), ()


def _beside(shots: Sequence[Snapshot], names: Sequence[str]) -> list[Snapshot]:
    """Where vLLM runs beside the units that were found (a container, a terminal), a picture of the host with that."""
    machine = next((s.machine.value for s in shots if isinstance(s.machine, Known)), None)
    strays = procfs.unexplained(machine.processes, names) if machine is not None else ()
    if machine is None or not strays or not any(isinstance(shot.unit, Known) for shot in shots):
        return []
    own = msgspec.structs.replace(machine, processes=strays, listeners=())
    return [_of_host(Absent("no unit of vLLM's started it"), Known(own, "/proc"))]


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
    """What the judged life said of itself, otherwise what is installed."""
    if isinstance(log, Known):
        for line in log.value.last.lines[:400]:
            found = _VERSION_LINE.search(line.text)
            if found:
                return Known(found[1] or found[2], log.value.source)
    return release.version(argv, pid)

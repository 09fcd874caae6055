"""Where a vLLM runs that is no unit of this host's: a container, a pod, a job, a process, a URL; each as a snapshot."""

import datetime
import re
import shlex
import socket
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from vllm_doctor.gather import containers, kubectl, probe, procfs, release, slurm
from vllm_doctor.gather.concurrently import Task
from vllm_doctor.gather.contained import (
    launch_in_container,
    no_unit,
    place_of,
    secrets_of,
    subject_of,
    version_in,
)
from vllm_doctor.gather.http import NO_PASS, NoResponse, Pass, get
from vllm_doctor.gather.inspected import Inspected
from vllm_doctor.gather.launch import is_vllm, parse_argv
from vllm_doctor.gather.logfile import read_logs
from vllm_doctor.gather.metrics import scrape_twice
from vllm_doctor.gather.probe import CANARY_S, HTTP_S, SILENCE_S
from vllm_doctor.gather.target import Target
from vllm_doctor.launch.port import port_of
from vllm_doctor.records.container import Container
from vllm_doctor.records.finding import Missing, Subject
from vllm_doctor.records.host import Launch, Machine, Metrics, Probe, Process
from vllm_doctor.records.log import Log
from vllm_doctor.records.reading import NOT_GIVEN, Absent, Known, Reading, Unknown
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.redact.launch import secret_values
from vllm_doctor.redact.records import record_without

# Between the two scrapes of a server that was named: long enough for vLLM's counters to move.
WINDOW_S = 2.0
_Read: TypeAlias = tuple[Snapshot, tuple[str, ...]]


def find(aim: Target, deadline_s: float) -> Reading[tuple[Inspected, ...]]:
    """The containers of a target."""
    if aim.kind == "slurm":
        return slurm.read(aim.name, deadline_s)
    if aim.kind == "pod":
        return kubectl.read(aim.name, aim.space, deadline_s)
    return containers.inspect(aim.kind, [aim.name], deadline_s)


def of_container(seen: Inspected, deadline_s: float, *, canary: bool | None) -> _Read:
    """What a container's runtime, its log and the server in it tell."""
    container = seen.container
    running = container.state == "running"
    machine = _machine(seen, running=running)
    inner = _server_in(seen, machine)
    argv = procfs.cmdline(inner.pid) if inner is not None else ()
    env = (procfs.environ(inner.pid) or {}) if inner is not None else seen.env
    launch: Reading[Launch] = launch_in_container(seen)
    if inner is not None:
        launch = Known(parse_argv(argv, {}), f"/proc/{inner.pid}/cmdline")
    flags = launch.value.flags if isinstance(launch, Known) else {}
    base = base_url(seen, flags) if running else None
    given = Pass(env.get("VLLM_API_KEY"), probe.certificate_of(flags))
    asking: Task[Probe | None] = Task(lambda: _ask(base, launch, given, canary=canary) if base else None)
    scraping: Task[Reading[Metrics]] = Task(
        lambda: scrape_twice(base, deadline_s=2 * HTTP_S, given=given) if base else _no_answer(seen, running=running)
    )
    log = _log(seen, deadline_s)
    if inner is not None and inner.unit is not None and isinstance(log, Unknown):
        inside = f"{container.runtime} exec {container.name} journalctl -b -o short-iso -u {shlex.quote(inner.unit)}"
        log = Unknown(f"{log.reason}; {inner.unit} in it writes to its journal", f"{inside} | vllm-doctor diagnose -")
    answered = asking.within(SILENCE_S + CANARY_S + 1, None)
    shot = Snapshot(
        taken_at=_now(),
        subject=subject_of(seen),
        log=_never_ran(seen) if not container.started and not isinstance(log, Known) else log,
        unit=no_unit(seen),
        launch=launch,
        version=version_in(seen),
        metrics=scraping.within(3 * HTTP_S, Unknown("metrics: no answer in time", f"curl -m 5 {base}/metrics")),
        machine=machine,
        probe=_probe(answered, base, seen, running=running),
        model_config=_config(launch, seen),
        container=Known(container, place_of(seen)),
        live=True,
        unread=(Missing("container", container.unseen, "kubectl get events"),) if container.unseen else (),
    )
    if _elsewhere(container):
        owner = "the pod's" if container.is_pod else "the job's"
        node = f"{owner} node {container.node}" if container.node else f"{owner} node"
        there = Unknown(f"{node} is another machine", "run vllm-doctor diagnose there")
        shot = msgspec.structs.replace(shot, gpus=there, driver=there, kernel=there)
    secrets = secrets_of(seen, argv) | secret_values(argv, env, (container.name,))
    return record_without(shot, secrets), tuple(secrets)


def _server_in(seen: Inspected, machine: Reading[Machine]) -> Process | None:
    """The server that something else in the container started: a systemd, a supervisor, a script."""
    if is_vllm(seen.argv) or not isinstance(machine, Known):
        return None
    return next((one for one in machine.value.processes if one.serves and is_vllm(one.cmdline)), None)


def _elsewhere(container: Container) -> bool:
    """Does it run on a machine that another one chose? That may be this one, but nothing says so."""
    return container.is_pod or container.is_job


def _log(seen: Inspected, deadline_s: float) -> Reading[Log]:
    if seen.container.is_job:
        return slurm.log(seen)
    return kubectl.log(seen, deadline_s) if seen.container.is_pod else containers.log(seen, deadline_s)


def base_url(seen: Inspected, flags: dict[str, str | bool]) -> str | None:
    """Where the container's server is reached from this host: a published port, the host's network, its address."""
    inside = port_of(flags)
    scheme = (probe.base_url(flags) or "http").partition(":")[0]
    if _elsewhere(seen.container):
        return None  # the cluster's network is not this machine's
    if inside in seen.ports:
        return f"{scheme}://127.0.0.1:{seen.ports[inside]}"
    return f"{scheme}://{seen.container.address}:{inside}" if seen.container.address else None


def _ask(base: str, launch: Reading[Launch], given: Pass, *, canary: bool | None) -> Probe:
    found = probe.probe(base, deadline_s=HTTP_S, given=given)
    if found.silent:
        found = probe.probe(base, deadline_s=SILENCE_S, given=given)
    if canary is not False and found.health_status == 200:
        known = launch.value if isinstance(launch, Known) else Launch((), None, {})
        found = probe.one_token(base, known, found, asked=canary is True, deadline_s=CANARY_S, given=given)
    return found


def _no_answer(seen: Inspected, *, running: bool) -> Absent | Unknown:
    if not running:
        return Absent(f"{seen.container.name} is not running, so it has no metrics")
    if seen.container.is_job:
        where = f"http://{seen.container.node or 'NODE'}:8000"
        return Unknown(f"job {seen.container.name}: its server is not asked from here", f"vllm-doctor diagnose {where}")
    port = "its port is not reached from here"
    space, _, rest = seen.container.name.partition("/")
    remedy = (
        f"kubectl port-forward -n {space} pod/{rest.partition('/')[0]} 8000 & vllm-doctor diagnose http://127.0.0.1:8000"
        if seen.container.is_pod
        else f"{seen.container.runtime} exec {seen.container.name} curl -s http://127.0.0.1:8000/metrics"
    )
    return Unknown(f"{seen.container.name}: {port}", remedy)


def _probe(answered: Probe | None, base: str | None, seen: Inspected, *, running: bool) -> Reading[Probe]:
    if base is None:
        return _no_answer(seen, running=running) if running else Absent("the container is not running")
    if answered is None:
        return Known(Probe(health_error="no answer in time"), base)
    return Known(answered, base)


def _never_ran(seen: Inspected) -> Absent:
    return Absent(f"{seen.container.name} was never started, so it wrote nothing")


def _machine(seen: Inspected, *, running: bool) -> Reading[Machine]:
    """This machine, with the container's own processes; of a pod another one, as a rule."""
    if _elsewhere(seen.container):
        return Absent("its node is another machine")
    pid = seen.container.pid if running else None
    whole = procfs.machine(main_pid=pid, port=None, folders=["/"])
    own = tuple(p for p in whole.processes if p.container is not None and seen.id.startswith(p.container[1]))
    return Known(msgspec.structs.replace(whole, processes=own), "/proc")


def _config(launch: Reading[Launch], seen: Inspected) -> Reading[dict[str, object]]:
    """The model's config.json is in the container's own files: it is not looked for in the host's."""
    model = launch.value.model if isinstance(launch, Known) else None
    where = "on the job's node" if seen.container.is_job else f"inside {seen.container.name}"
    return Unknown(f"{model or 'the model'}: its config.json is {where}", "give it: --model-config FILE")


def of_process(pid: int, *, canary: bool | None) -> _Read:
    """A server that a terminal, a script or a batch system started."""
    argv = procfs.cmdline(pid)
    env = procfs.environ(pid) or {}
    launch: Reading[Launch] = (
        Known(parse_argv(argv, release.launch_environment(pid, {})), f"/proc/{pid}/cmdline")
        if is_vllm(argv)
        else Unknown(f"process {pid} is not vllm serve", "give it: --launch 'vllm serve …'")
    )
    flags = launch.value.flags if isinstance(launch, Known) else {}
    base = probe.base_url(flags)
    given = Pass(env.get("VLLM_API_KEY"), probe.certificate_of(flags))
    answered = _ask(base, launch, given, canary=canary) if base else None
    written = procfs.output_of(pid)
    machine = procfs.machine(main_pid=pid, port=port_of(flags), folders=["/"])
    own = _family(pid, machine.processes)
    shot = Snapshot(
        taken_at=_now(),
        subject=Subject(host=socket.gethostname(), place=f"pid:{pid}"),
        log=read_logs([written], theirs=True)
        if written
        else Unknown(f"process {pid} writes to a terminal or a pipe", "vllm-doctor diagnose FILE, with what it wrote"),
        unit=Absent(f"no unit of systemd's started process {pid}"),
        launch=launch,
        version=release.version(argv, pid),
        metrics=scrape_twice(base, deadline_s=2 * HTTP_S, given=given)
        if base
        else Absent("it serves on a Unix socket"),
        machine=Known(msgspec.structs.replace(machine, processes=own), "/proc"),
        probe=Known(answered, base) if base and answered is not None else Absent("it serves on a Unix socket"),
        model_config=release.model_config(launch.value, env, procfs.user_of(pid))
        if isinstance(launch, Known)
        else NOT_GIVEN,
        live=True,
    )
    secrets = secret_values(argv, env, (socket.gethostname(),))
    return record_without(shot, secrets), tuple(secrets)


def _family(pid: int, found: Sequence[Process]) -> tuple[Process, ...]:
    """The process and what it started."""
    ours = {pid}
    for _ in range(8):
        ours |= {p.pid for p in found if p.ppid in ours}
    return tuple(p for p in found if p.pid in ours)


def of_url(base: str, *, canary: bool | None) -> _Read:
    """What a server tells to whoever can reach it: its health, its release, its models, its metrics over a window."""
    given = NO_PASS
    answered = _ask(base, Unknown(""), given, canary=canary)
    reached = answered.health_status is not None
    metrics: Reading[Metrics] = (
        scrape_twice(base, deadline_s=WINDOW_S + 2 * HTTP_S, interval_s=WINDOW_S, given=given)
        if reached
        else Unknown(answered.health_error or "no answer", f"curl -m 5 {base}/health")
    )
    there = Unknown("a URL does not show its host", "run vllm-doctor diagnose there")
    shot = Snapshot(
        taken_at=_now(),
        subject=Subject(place=base),
        log=there,
        unit=Absent("it was reached by its URL"),
        launch=there,
        version=_version(base),
        metrics=metrics,
        gpus=there,
        driver=there,
        kernel=there,
        machine=there,
        probe=Known(answered, base),
        model_config=there,
        live=True,
    )
    return shot, ()


def _version(base: str) -> Reading[str]:
    answer = get(f"{base}/version", deadline_s=HTTP_S, max_bytes=1 << 16)
    if isinstance(answer, NoResponse):
        return Unknown(answer.reason, f"curl -m 5 {base}/version")
    found = re.search(rb'"version"\s*:\s*"(\d[\w.+-]{0,60})"', answer.body)
    if answer.status != 200 or found is None:
        return Unknown(f"{base}/version answers {answer.status}", f"curl -m 5 {base}/version")
    return Known(found[1].decode(), f"{base}/version")


def _now() -> str:
    return datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="seconds")

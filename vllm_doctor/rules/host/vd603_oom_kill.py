"""VD603: the kernel, or systemd-oomd, killed a process of vLLM: the host or its control group had no memory left."""

import math

from vllm_doctor.log.match import Hit, says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Arithmetic, Change, Evidence, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.deaths import killed
from vllm_doctor.rules.gates.host_claims import host_claims
from vllm_doctor.rules.gates.oom_killer import UNNAMED, Kill, in_log, kills
from vllm_doctor.rules.gates.unified import shares_memory
from vllm_doctor.rules.outcome import Clear, Outcome, Unseen, rule
from vllm_doctor.rules.say import environment, finding, gib, set_flag, thing

# Who else than the kernel tells of such a kill: systemd, Kubernetes, Docker, Slurm, Ray.
_TOLD = (
    "unit-oom",
    "unit-oom-result",
    "kernel-killed",
    "oom-invoked",
    "step-oom",
    "container-oom",
    "ray-low-memory",
    "ray-threshold",
    "ray-killed",
    "oomd-killed",
    "earlyoom-killed",
    "platform-oom",
    "container-oom-event",
    "job-oom",
    "lsf-oom",
    "pbs-oom",
)
# It asks with SIGTERM before it kills: a server that stopped did as it was asked.
_ASKS = "earlyoom-killed"
# Kubernetes and Docker say so of a container at its own limit.
_POD = frozenset({"container-oom", "platform-oom", "container-oom-event"})
# A batch system says so of a job at the memory that it asked for; Slurm of a step, too.
_STEP = "step-oom"
_JOB = frozenset({"job-oom", "lsf-oom", "pbs-oom"})
# Where a container's limit stands; the message that says so is Kubernetes' own, where nothing else is known.
_LIMITS = {"pod": "limits.memory", "docker": "--memory", "compose": "mem_limit"}
# systemd's letters for bytes, in powers of 1024.
_UNITS = {"B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# Of such a kill nobody else tells; who saw the signal may name its usual reason.
_SHELL = frozenset({"shell-killed", "killed-suspects-memory"})
# A probe, a time limit or a person ends a pod or a job with the same code.
_ANY_REASON = frozenset({"exit-by-signal", "exit-by-signal-told"})
# With so many times the checkpoint free the host has room for it.
_PLENTY = 2.0
_ASK = "journalctl -k -g 'Killed process' says whether the kernel did it: give that with --kernel-log"
_RAY = ("ray-low-memory", "ray-threshold", "ray-killed")


def judge(case: Case) -> Outcome:
    """Does the kernel log, or the unit's own record, show a kill for lack of memory?"""
    run, kernel, unit = case.run, case.kernel, case.unit
    if kernel is None and unit is None and run is None:
        return Unseen(frozenset({Signal.KERNEL, Signal.UNIT, Signal.LOG}))
    hit = run.first(*_TOLD) if run is not None else None
    if run is not None and hit is not None and hit.id == _ASKS and run.stopped is not None and run.root is None:
        hit = None
    recorded = unit is not None and (unit.result == "oom-kill" or bool(unit.oom_kills))
    found = kills(kernel) if kernel is not None else ()
    if case.live:
        container = case.container.id if case.container is not None else ""
        found = tuple(
            kill for kill in found if kill.may_be_of(unit.name if unit is not None else None, container or None)
        )
    if not found and hit is None and not recorded:
        if kernel is None and run is None:
            return Unseen(frozenset({Signal.KERNEL, Signal.LOG}))  # systemd knows its own main process only
        return _while_it_held_much(case) or Clear("no kill for lack of memory is recorded")
    if run is not None and run.served(-1) and run.root is None and not run.deaths and not recorded:
        return Clear("the service outlived the kill that is recorded")
    evidence = tuple(Evidence("kernel log", f"line {k.event.number}", k.event.text, k.event.at) for k in found[-2:])
    if hit is not None:
        evidence += (case.line(hit.index),)
    if not evidence and unit is not None:
        evidence = (Evidence("systemd", unit.name, f"Result={unit.result}, oom_kill {unit.oom_kills}"),)
    found = found or (in_log(run) if run is not None else ())
    last = found[-1] if found else None
    return finding(
        RULE,
        title=_title(last) if last is not None else _told_by(hit),
        severity=Severity.WILL_FAIL_UNDER_LOAD if run is not None and run.served(-1) else Severity.BLOCKS_START,
        confidence=Confidence.CONFIRMED if found or recorded or hit is not None else Confidence.LIKELY,
        evidence=evidence,
        arithmetic=(*_sum(last), *_peaked(case), *_of_ray(hit)),
        changes=(
            _fewer_jobs(case),
            *_changes(case, last, hit),
            _ray_threshold(case),
        ),
        refute="the killed process does not belong to this unit",
    )


def _while_it_held_much(case: Case) -> Finding | None:
    """Nobody tells who sent SIGKILL, and no kernel log was read: to a process that takes much of the host's memory the
    kernel sends it when none is left."""
    run = case.run
    dead = killed(run) if run is not None and run.root is None and case.kernel is None else None
    held = host_claims(case) if dead is not None else ()
    if run is None or dead is None:
        return None
    if not any(claim.large for claim in held):
        return _while_it_grew(case, run, dead)
    return finding(
        RULE,
        title="A process was killed (SIGKILL) holding much of the host's memory",
        severity=Severity.WILL_FAIL_UNDER_LOAD if run.served(-1, dead.index) else Severity.BLOCKS_START,
        confidence=Confidence.LIKELY,
        evidence=(case.line(dead.index),),
        arithmetic=tuple(claim.sum_ for claim in held if claim.sum_ is not None),
        changes=(
            *(claim.change for claim in held if claim.large),
            thing(ChangeKind.HARDWARE, "host-ram", Direction.RAISE, _more(None)),
        ),
        refute="the kernel log of that minute (journalctl -k) shows no OOM kill",
    )


def _while_it_grew(case: Case, run: AnalysedRun, dead: Hit) -> Finding | None:
    """A start that reads weights takes more of the host's memory every second, and a shell prints `Killed` of what
    nobody in it ended. Where the log counts twice the checkpoint as free, it was not that."""
    loading = run.reached(dead.index) is StartupPhase.WEIGHTS
    if not loading and dead.id not in _SHELL:
        return None
    served = run.served(-1, dead.index)
    if (served and dead.id not in _SHELL) or dead.id in _ANY_REASON:
        return None
    if shares_memory(case) and case.weights_gib is not None:
        return None  # there the fraction decides (VD602)
    size, ram = run.number("checkpoint-size", "size"), run.number("checkpoint-size", "ram")
    if size is not None and ram is not None and ram > _PLENTY * size:
        return None
    sums = (
        (
            gib("checkpoint", size, "all files", "the log"),
            gib("host memory available", ram, "as the loading began", "the log"),
        )
        if size is not None and ram is not None
        else ()
    )
    return finding(
        RULE,
        title=f"{_grown(loading=loading, served=served)}: most likely the host's memory ran out",
        severity=Severity.WILL_FAIL_UNDER_LOAD if served else Severity.BLOCKS_START,
        confidence=Confidence.LIKELY,
        evidence=(case.line(dead.index),),
        arithmetic=sums,
        changes=(thing(ChangeKind.HARDWARE, "host-ram", Direction.RAISE, _more(None) if served else _room()),),
        refute="the kernel log of that minute (journalctl -k) shows no OOM kill",
        then=_ASK,
    )


def _grown(*, loading: bool, served: bool) -> str:
    if loading:
        return "Killed while loading weights"
    return "The server was killed" if served else "The start was killed"


def _room() -> str:
    return (
        "give the host, its container or the virtual machine (memory= in .wslconfig) more memory, or add swap for the "
        "time of the loading: a start passes the weights through host memory"
    )


def _title(kill: Kill | None) -> str:
    if kill is None:
        return RULE.title
    whose = f"the limit of {kill.group}" if kill.group else "the whole host"
    size = f" at {kill.resident / GIB:.1f} GiB" if kill.resident is not None else ""
    return f"The kernel killed {kill.name}{size}: {whose} had no memory left"


def _sum(kill: Kill | None) -> tuple[Arithmetic, ...]:
    if kill is None or kill.resident is None:
        return ()
    return (gib("memory of the killed process", kill.resident / GIB, "anon-rss + shmem-rss", "the kernel log"),)


def _peak(case: Case) -> float | None:
    """GiB that the unit's control group held at most, as systemd tells it at the end; None where it does not."""
    said = case.run.all("unit-memory-peak") if case.run is not None else ()
    return float(said[-1].fields["size"]) * _UNITS[said[-1].fields["unit"]] / GIB if said else None


def _peaked(case: Case) -> tuple[Arithmetic, ...]:
    peak = _peak(case)
    return (gib("most that the unit held", peak, "memory.peak of its control group", "systemd"),) if peak else ()


def _told_by(hit: Hit | None) -> str:
    """By whose word, where the kernel's own is not there."""
    if hit is None:
        return ""
    if hit.id in _RAY:
        return "Ray killed a worker: the host's memory was used up"
    return {
        _STEP: "The job was killed at the memory that it asked Slurm for",
        "container-oom-event": "The container was killed at its memory limit",
        "container-oom": "The container was killed at its memory limit (OOMKilled)",
        "platform-oom": "The platform ended the container at its memory limit",
    }.get(hit.id, "The batch system ended the job at its memory limit" if hit.id in _JOB else "")


def _of_ray(hit: Hit | None) -> tuple[Arithmetic, ...]:
    """Ray prints what the host had and what was in use, in units of 10⁹ bytes or 2³⁰, by release."""
    if hit is None or "total" not in hit.fields:
        return ()
    used, total = float(hit.fields["used"]), float(hit.fields["total"])
    return (
        Arithmetic("in use on the host", used, "GB", "by all its processes", "Ray's message"),
        Arithmetic("memory of the host", total, "GB", "or of the limit that Ray runs under", "Ray's message"),
    )


def _changes(case: Case, kill: Kill | None, hit: Hit | None) -> tuple[Change | None, ...]:
    by = hit.id if hit is not None else ""
    limited = by in _POD | _JOB | {_STEP} or (kill is not None and kill.group is not None)
    own = _jobs_limit(by) if by in _JOB | {_STEP} else _limit(kill) if kill is not None else _containers_limit(case)
    return (
        own if limited else None,
        *(claim.change for claim in host_claims(case)),
        set_flag(
            case,
            "gpu-memory-utilization",
            round(case.utilization[0] - 0.1, 2),
            Direction.LOWER,
            "one pool for CPU and GPU",
        )
        if shares_memory(case)
        else None,
        None if limited else thing(ChangeKind.HARDWARE, "host-ram", Direction.RAISE, _more(kill, _peak(case))),
    )


def _jobs_limit(by: str) -> Change:
    if by in _JOB - {"job-oom"}:
        why = "ask the batch system for more: how much more than its own the job needs, nobody printed"
        return thing(ChangeKind.OS, "job-memory", Direction.RAISE, why)
    why = "0 gives the job all memory of its node; how much more than its own it needs, nobody printed"
    return thing(ChangeKind.OS, "job-memory", Direction.RAISE, why, to="0")


def _containers_limit(case: Case) -> Change:
    """Nobody printed how much the container held: its limit has to grow, wherever it stands."""
    named = _LIMITS.get(case.launch.medium if case.launch is not None else "pod", _LIMITS["pod"])
    return thing(ChangeKind.OS, named, Direction.RAISE, "the container was killed at its own limit")


def _limit(kill: Kill) -> Change:
    """A quarter more than it had when it was killed, in whole GiB: what it would have taken next is not known."""
    held = kill.resident
    if kill.container is not None and held is not None:
        return _of_container(kill.container, kill.group or "", math.ceil(held / GIB * 1.25))
    to = f"{math.ceil(held / GIB * 1.25)}G" if held is not None else None
    why = "sets MemoryMax to 1.25 times what the process held; memory.peak in the unit's cgroup then shows the peak"
    if kill.group == UNNAMED or kill.container is not None:
        why += "; for a container use docker's --memory, for a pod limits.memory"
    return thing(ChangeKind.OS, "MemoryMax", Direction.RAISE, why, to=to, inventory="vllm_memory_max")


def _of_container(number: str, group: str, gib_: int) -> Change:
    why = "1.25 times what the process held when its container's limit ended it"
    if "kubepods" in group:
        return thing(ChangeKind.OS, "container-memory", Direction.RAISE, why, to=f"{gib_}Gi")
    runtime = "podman" if "libpod" in group else "docker"
    command = f"{runtime} update --memory {gib_}g --memory-swap {gib_}g {excerpt.short(number)}   # then start"
    return thing(ChangeKind.OS, "container-memory", Direction.RAISE, why, to=f"{gib_}g", command=command)


def _more(kill: Kill | None, peak: float | None = None) -> str:
    held = kill.resident / GIB if kill is not None and kill.resident is not None else peak
    size = f": more than the {held:.1f} GiB that it held when it was killed" if held is not None else ""
    return f"the host needs more memory than it has{size}; swap only delays the failure"


def _fewer_jobs(case: Case) -> Change | None:
    """Kernels that are compiled at the first start take 1 to 3 GiB a compiler."""
    run, kernel = case.run, case.kernel
    ids = ("compiler-killed-task", "compiler-oom-task")
    told = kernel is not None and any(says(e.text, *ids) for e in kernel.events)
    if not told and (run is None or run.first(*ids) is None):
        return None
    why = "each job is a compiler of 1 to 3 GiB; without a limit as many run as the host has cores"
    return environment("MAX_JOBS", Direction.LOWER, why, to=4)


def _ray_threshold(case: Case) -> Change | None:
    """Ray kills before the kernel would, at a share of the host's memory that can be set."""
    run = case.run
    if run is None or run.first(*_RAY) is None:
        return None
    why = "Ray ends workers when this part of the host's memory is in use; give the host more memory, if you can"
    return environment("RAY_memory_usage_threshold", Direction.RAISE, why, to=0.99)


RULE = rule(
    "VD603",
    reads=frozenset(
        {Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS, Signal.KERNEL, Signal.UNIT, Signal.CONTAINER}
    ),
    judge=judge,
)

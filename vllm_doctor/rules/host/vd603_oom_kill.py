"""VD603: the kernel, or systemd-oomd, killed a process of vLLM: the host or its control group had no memory left."""

from vllm_doctor.log.match import Hit, says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.finding import Arithmetic, Change, Evidence, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Direction, Severity
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.deaths import killed
from vllm_doctor.rules.gates.host_claims import host_claims
from vllm_doctor.rules.gates.kernel_said import said_since
from vllm_doctor.rules.gates.oom_killer import OOMD, Kill, in_log, kills, of_the_host
from vllm_doctor.rules.gates.ranks import ranks_of
from vllm_doctor.rules.gates.unified import is_named, shares_memory
from vllm_doctor.rules.outcome import Clear, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.host_memory import (
    RAY,
    containers_limit,
    fewer_jobs,
    jobs_limit,
    launched_limit,
    memory_limit,
    more_host_memory,
    ray_threshold,
    room_to_load,
    spared_by_oomd,
)
from vllm_doctor.rules.remedies.utilization import lower_utilization
from vllm_doctor.rules.say import finding, gib, set_flag

# Who else than the kernel tells of such a kill: systemd, Kubernetes, Docker, Slurm, Ray.
_TOLD = (
    "unit-oom",
    "unit-oom-result",
    "kernel-killed",
    "oom-invoked",
    "step-oom",
    "step-oom-task",
    "container-oom",
    "ray-low-memory",
    "ray-threshold",
    "ray-killed",
    "ray-oom-advice",
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
# What a person says of such a kill, in a sentence.
_IN_WORDS = "told-killed"
# Kubernetes and Docker say so of a container at its own limit.
_POD = frozenset({"container-oom", "platform-oom", "container-oom-event"})
# A batch system says so of a job at the memory that it asked for; Slurm of a step, too.
_STEP = "step-oom"
_TASK = "step-oom-task"
_JOB = frozenset({"job-oom", "lsf-oom", "pbs-oom"})
_OF_SLURM = frozenset({_STEP, _TASK, "job-oom"})
# systemd's letters for bytes, in powers of 1024.
_UNITS = {"B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# Of such a kill nobody else tells; who saw the signal may name its usual reason.
_SHELL = frozenset({"shell-killed", "killed-suspects-memory"})
# A probe, a time limit or a person ends a pod or a job with the same code.
_ANY_REASON = frozenset({"exit-by-signal", "exit-by-signal-told"})
# With so many times the checkpoint free the host has room for it.
_PLENTY = 2.0
_BY_OOMD = "systemd-oomd killed the server: the host's memory was under pressure"
_ASK = "journalctl -k -g 'Killed process' says whether the kernel did it: give that with --kernel-log"


def judge(case: Case) -> Outcome:
    """Does the kernel log, or the unit's own record, show a kill for lack of memory?"""
    run, kernel, unit = case.run, case.kernel, case.unit
    if kernel is None and unit is None and run is None:
        return Unseen(frozenset({Signal.KERNEL, Signal.UNIT, Signal.LOG}))
    root = case.root
    told = next((one for one in root.hits if one.id == _IN_WORDS), None) if root is not None else None
    hit = told or (run.first(*_TOLD) if run is not None else None)
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
        return _of_another(case) or _while_it_held_much(case) or Clear("no kill for lack of memory is recorded")
    if run is not None and run.root is None and not run.deaths and not recorded and _outlived(run, hit):
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
        severity=Severity.WILL_FAIL_UNDER_LOAD if run is not None and run.served() else Severity.BLOCKS_START,
        confidence=Confidence.CONFIRMED if found or recorded or told is None else Confidence.LIKELY,
        evidence=evidence,
        arithmetic=(*_sum(last), *_peaked(case), *_of_ray(hit)),
        changes=(
            fewer_jobs(case),
            *_changes(case, last, hit),
            ray_threshold(case),
        ),
        refute="the killed process does not belong to this unit",
    )


def _outlived(run: AnalysedRun, hit: Hit | None) -> bool:
    """Did the server serve, and not only until it was asked to end? One that had stopped by then is no victim."""
    asked = hit is not None and hit.id == _ASKS and run.first("app-stopped", "uvicorn-finished") is None
    return run.served() and not (asked and hit is not None and not run.served(hit.index))


def _of_another(case: Case) -> Finding | None:
    """The kernel found no page on the whole host and ended somebody else's process, while the start goes no further."""
    run = case.run
    if run is None or run.root is not None or run.stopped is not None or run.served():
        return None
    found = of_the_host(run)
    if not found or run.reached() in {None, StartupPhase.CONFIG}:
        return None
    last = found[-1]
    return finding(
        RULE,
        title=_title(last),
        severity=Severity.BLOCKS_START,
        confidence=Confidence.LIKELY,
        evidence=tuple(case.line(at) for at in _lines_of(run, last)),
        arithmetic=_sum(last),
        changes=_changes(case, None, None),
        refute="the start goes on after that line",
    )


def _lines_of(run: AnalysedRun, kill: Kill) -> tuple[int, ...]:
    """The line of the log in which the kernel tells of it."""
    return tuple(i for i, line in enumerate(run.lines) if line.number == kill.event.number)[:1]


def _while_it_held_much(case: Case) -> Finding | None:
    """Nobody tells who sent SIGKILL, and no kernel log was read: to a process that takes much of the host's memory the
    kernel sends it when none is left."""
    run = case.run
    if run is None or run.root is not None or case.kernel is not None:
        return None
    dead = killed(run)
    if dead is None:
        return _by_rays_word(case, run)
    held = host_claims(case)
    if not any(claim.large for claim in held):
        return _while_it_grew(case, run, dead)
    return finding(
        RULE,
        title="A process was killed (SIGKILL) holding much of the host's memory",
        severity=Severity.WILL_FAIL_UNDER_LOAD if run.served(until=dead.index) else Severity.BLOCKS_START,
        confidence=Confidence.LIKELY,
        evidence=(case.line(dead.index),),
        arithmetic=tuple(claim.sum_ for claim in held if claim.sum_ is not None),
        changes=(
            *(claim.change for claim in held if claim.large),
            more_host_memory(None),
        ),
        refute="the kernel log of that minute (journalctl -k) shows no OOM kill",
    )


def _by_rays_word(case: Case, run: AnalysedRun) -> Finding | None:
    """Ray lost a worker and nobody tells why. Its own watch over the host's memory is off, or the weights of sleeping
    engines lie there, or weights were being read: then the kernel is the first to ask. A crash in native code would
    have left a dump."""
    gone = next((hit for hit in run.deaths if hit.id == "ray-actor-gone"), None)
    if gone is None or (run.deaths[0].index < gone.index and run.deaths[0].id != gone.id):
        return None
    unwatched = case.env("RAY_memory_monitor_refresh_ms") == "0"
    slept = next((hit for hit in run.all("sleep-freed") if hit.index < gone.index), None)
    loading = run.reached(gone.index) is StartupPhase.WEIGHTS
    if not (unwatched or loading or slept is not None):
        return None
    when = "with its memory watch off" if unwatched else "beside sleeping engines" if slept else "while loading weights"
    claims = host_claims(case)
    return finding(
        RULE,
        title=f"Ray lost a worker {when}: likely the host's memory",
        severity=Severity.WILL_FAIL_UNDER_LOAD if run.served(until=gone.index) else Severity.BLOCKS_START,
        confidence=Confidence.LIKELY,
        evidence=(case.line(gone.index), *((case.line(slept.index),) if slept is not None else ())),
        changes=(*(claim.change for claim in claims), more_host_memory(None) if slept else room_to_load()),
        refute="the kernel log of that minute (journalctl -k) shows no OOM kill",
        then=_ASK,
    )


def _while_it_grew(case: Case, run: AnalysedRun, dead: Hit) -> Finding | None:
    """A start that reads weights takes more of the host's memory every second, and a shell prints `Killed` of what
    nobody in it ended. Where the log counts twice the checkpoint as free, it was not that."""
    loading = run.reached(dead.index) is StartupPhase.WEIGHTS
    if not loading and dead.id not in _SHELL:
        return None
    served = run.served(until=dead.index)
    if (served and dead.id not in _SHELL) or dead.id in _ANY_REASON:
        return None
    if shares_memory(case) and case.weights_gib is not None:
        return None  # there the fraction decides (VD602)
    loaded = served or run.reached(dead.index) is StartupPhase.KV
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
        changes=_beside_weights(case) if loaded else (room_to_load(),),
        refute="the kernel log of that minute (journalctl -k) shows no OOM kill",
        then=_ASK,
    )


def _beside_weights(case: Case) -> tuple[Change | None, ...]:
    """The weights were read before: what a process takes of the host then are its pools."""
    return (*(claim.change for claim in host_claims(case)), more_host_memory(None))


def _grown(*, loading: bool, served: bool) -> str:
    if loading:
        return "Killed while loading weights"
    return "The server was killed" if served else "The start was killed"


def _title(kill: Kill | None) -> str:
    if kill is None:
        return RULE.title
    if kill.name == OOMD:
        return _BY_OOMD
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
    if hit.id in RAY:
        return "Ray killed a worker: the host's memory was used up"
    return {
        _STEP: "The job was killed at the memory that it asked Slurm for",
        _TASK: "The job was killed at the memory that it asked Slurm for",
        "container-oom-event": "The container was killed at its memory limit",
        "container-oom": "The container was killed at its memory limit (OOMKilled)",
        "oomd-killed": _BY_OOMD,
        _ASKS: "earlyoom ended a process of vLLM: the host had hardly any memory left",
        "platform-oom": "The platform ended the container at its memory limit",
        _IN_WORDS: "The server was killed for lack of host memory, as the text says",
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
    pressed = kill is not None and kill.name == OOMD
    limited = (
        by in _POD | _JOB | _OF_SLURM
        or (by == _IN_WORDS and _of_a_container(case, hit))
        or (kill is not None and kill.group is not None and not pressed)
    )
    if by in _JOB | _OF_SLURM:
        own = jobs_limit(by_slurm=by in _OF_SLURM)
    else:
        own = (
            launched_limit(case) or memory_limit(kill, ranks_of(case, kill))
            if kill is not None
            else containers_limit(case)
        )
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
        else _if_shared(case)
        if not limited
        else None,
        None if limited else more_host_memory(None if _driver_lacked(case) else kill, _peak(case)),
        spared_by_oomd() if by == "oomd-killed" or (kill is not None and kill.name == OOMD) else None,
    )


def _of_a_container(case: Case, hit: Hit | None) -> bool:
    """Does the sentence use the word that container runtimes have for it, or speak of a container and its limit?"""
    if hit is None or case.run is None:
        return False
    text = case.run.lines[hit.index].text
    return says(text, "container-oom-word") or (says(text, "told-container") and says(text, "told-limit"))


def _driver_lacked(case: Case) -> bool:
    """Did the NVIDIA driver find no page either? What a GPU took of the host's memory is in no process's account."""
    run = case.run
    return (run is not None and run.first("driver-no-memory") is not None) or bool(said_since(case, "driver-no-memory"))


def _if_shared(case: Case) -> Change | None:
    if not _driver_lacked(case) or is_named(case):
        return None
    why = "if GPU and host share memory (the driver found no page either): the host lacks the memory that vLLM takes"
    return lower_utilization(case, None, why)


RULE = rule(
    "VD603",
    reads=frozenset(
        {Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS, Signal.KERNEL, Signal.UNIT, Signal.CONTAINER}
    ),
    judge=judge,
)

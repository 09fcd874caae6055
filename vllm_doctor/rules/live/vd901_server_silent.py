"""VD901: the server takes connections and answers none: it is stopped by a signal, frozen, or hangs."""

import shlex

from vllm_doctor.log.match import read, says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.records.container import Container
from vllm_doctor.records.finding import Change, Evidence, Finding
from vllm_doctor.records.host import Kernel, Metrics, Probe, Process, Unit
from vllm_doctor.records.log import LogLine
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, thing

# /proc/PID/stat's letters that a process does not leave by itself.
_STUCK = {
    "T": "stopped by a signal (SIGSTOP)",
    "t": "stopped by a debugger",
    "D": "waiting in the kernel (driver or disk)",
}
# The counter of generated tokens, as releases have named it.
_MADE = frozenset({"vllm:generation_tokens_total", "vllm:generation_tokens"})


def judge(case: Case) -> Outcome:
    """Is a process of it stopped, its engine gone, or its port taken with nothing said on it?"""
    mine = _processes(case)
    if case.live and (held := _that_do_not_run(case, mine)) is not None:
        return held
    if case.probe is None:
        return Unseen(frozenset({Signal.PROBE}))
    if case.probe.health_status == 200 and case.probe.completion is False:
        return _trial_unanswered(case, case.probe)
    if case.unit is None or case.unit.main_pid is None:
        return NotHere("the unit has no running process")
    return _by_health(case, case.probe, case.unit, mine)


def _processes(case: Case) -> list[Process]:
    """Those of the unit, or all of the host where there is none."""
    unit = case.unit
    found = case.machine.processes if case.machine is not None else ()
    return [p for p in found if unit is None or p.unit == unit.name]


def _that_do_not_run(case: Case, mine: list[Process]) -> Finding | None:
    """A server that is frozen or stopped, or a process that the kernel saw wait in it."""
    name = case.unit.name if case.unit is not None else None
    serving = [p for p in mine if p.serves or name is not None]
    if frozen := [p for p in serving if p.frozen]:
        return _frozen(frozen, name)
    hung = _hung(case.kernel)
    held = [p for p in serving if p.state == "T"] or [p for p in mine if p.state == "D" and p.pid in hung]
    return _held(held, name or "this host", hung) if held else None


def _trial_unanswered(case: Case, probe: Probe) -> Outcome:
    """/health answers, and the trial request got no token."""
    if probe.advanced or _advances(case.metrics):
        return Clear("the engine works for others; the trial request waited in the queue longer than its time-out")
    return _no_token(case.unit.name, None) if case.unit is not None else _no_token("", case.container)


def _by_health(case: Case, probe: Probe, unit: Unit, mine: list[Process]) -> Outcome:
    """What /health said, or that it said nothing."""
    if probe.health_status == 200 and case.machine is not None and case.run is not None:
        gone = _engines_gone(case.run, {p.pid for p in mine})
        if gone:
            return _without_engine(case, unit.name, gone)
    if probe.health_status is not None:
        return Clear(f"/health answers {probe.health_status}")
    if not probe.silent:
        return NotHere("no process listens on the port")
    stuck = [p for p in mine if p.state in _STUCK and (p.pid == unit.main_pid or p.name.startswith("VLLM"))]
    evidence = [Evidence("probe", f"{unit.name}, /health", probe.health_error or "")]
    evidence += [Evidence("/proc", f"{p.pid}/stat", f"{p.name}: {_STUCK[p.state or '']}") for p in stuck]
    return finding(
        RULE,
        title=_title(stuck),
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.CONFIRMED if stuck else Confidence.LIKELY,
        evidence=tuple(evidence),
        changes=(_change(stuck, unit.name),),
        refute=f"curl -m 30 of /health answers 200 while `systemctl status {shlex.quote(unit.name)}` shows the same "
        "main process",
    )


def _hung(kernel: Kernel | None) -> dict[int, int]:
    """Seconds that the kernel saw a process wait in it, by its number."""
    found = (read("kernel-hung-task", event.text) for event in kernel.events) if kernel is not None else ()
    return {int(m["pid"]): int(m["seconds"]) for m in found if m is not None}


def _held(processes: list[Process], where: str, hung: dict[int, int]) -> Finding:
    """It is seen in /proc alone: no request is needed, and /health may answer all the while."""
    first = processes[0]
    blocked = f"blocked in the kernel for {hung[first.pid]} s" if first.state == "D" else ""
    what = blocked or _STUCK[first.state or ""]
    evidence = [
        Evidence("/proc", f"{p.pid}/stat", f"{p.name}: state {p.state}, {_STUCK[p.state or '']}") for p in processes
    ]
    evidence += [
        Evidence("kernel log", "this boot", f"process {p.pid}: {hung[p.pid]} s") for p in processes if p.pid in hung
    ]
    return finding(
        RULE,
        title=f"Process {first.pid} ({first.name}) is {what}: its requests wait",
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        evidence=tuple(evidence[:12]),
        changes=(_change(processes, where),),
        refute=f"ps -o pid,stat,cmd -p {first.pid} shows another state than {first.state} a moment later",
    )


def _frozen(processes: list[Process], unit: str | None) -> Finding:
    """The kernel runs none of them, and their state letters say nothing of it."""
    first = processes[0]
    command = None
    if unit is not None:
        command = f"systemctl thaw {shlex.quote(unit)}"
    elif first.container is not None and first.container[0] in {"docker", "podman"}:
        command = f"{first.container[0]} unpause {first.container[1]}"
    why = (
        "the server continues where it stopped, without the requests that clients gave up; find out who froze the unit"
    )
    group = ", ".join(str(p.pid) for p in processes[:12])
    return finding(
        RULE,
        title=f"{unit or f'Process {first.pid} ({first.name})'} is frozen: its processes do not run, and requests wait",
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        evidence=(Evidence("cgroup", "cgroup.events", f"frozen 1: the control group of process {group}"),),
        changes=(thing(ChangeKind.OS, unit or f"process {first.pid}", Direction.REPAIR, why, command=command),),
        refute="cgroup.events of its control group says frozen 0 a moment later",
    )


def _engines_gone(run: AnalysedRun, alive: set[int]) -> list[LogLine]:
    """The first line of each engine that this run's log names and that is no process any more. Only where the log's
    numbers are this host's: one of its servers is alive under its own."""
    signed = {line.pid: line for line in reversed(run.lines) if line.pid is not None and line.process is not None}
    if not any(pid in alive and (line.process or "").lower().startswith("apiserver") for pid, line in signed.items()):
        return []
    return [line for pid, line in signed.items() if pid not in alive and says(line.process or "", "process-of-engine")]


def _without_engine(case: Case, unit: str, gone: list[LogLine]) -> Finding:
    """/health of some releases asks the front end alone."""
    pids = ", ".join(str(line.pid) for line in gone)
    return finding(
        RULE,
        title=f"/health answers 200, but the engine process {pids} is gone",
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.LIKELY,
        evidence=(
            Evidence("probe", f"{unit}, /health", "200"),
            *(Evidence(case.line(0).source, f"line {x.number}", x.excerpt or x.text, x.at) for x in gone[:3]),
            Evidence("/proc", "", f"no process {pids} of {unit}"),
        ),
        changes=(_change([], unit),),
        refute="a completion comes back: vllm-doctor diagnose --canary",
    )


def _advances(metrics: Metrics | None) -> bool:
    """Did the counter of generated tokens rise between the two scrapes? A step can take longer than lies between."""
    if metrics is None or len(metrics.scrapes) < 2:
        return False
    made = [sum(one.value for one in scrape.samples if one.name in _MADE) for scrape in metrics.scrapes]
    return made[-1] > made[0]


def _no_token(unit: str, container: Container | None) -> Finding:
    """It was asked for one token and did not give it, though /health is content."""
    change = _change([], unit)
    if not unit:
        runs = container is not None and container.runtime in {"docker", "podman"}
        command = f"{container.runtime} restart {container.name}" if container is not None and runs else None
        why = "first keep the evidence: py-spy dump of the engine's process"
        change = thing(ChangeKind.OS, "server", Direction.REPAIR, why, command=command)
    where = ", ".join(filter(None, (unit or (container.name if container is not None else ""), "/v1/completions")))
    return finding(
        RULE,
        title="/health answers 200, but a completion of one token does not come back",
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.LIKELY,
        evidence=(Evidence("probe", where, "no completion of one token within the time given"),),
        changes=(change,),
        refute="the same request answers when the queue is empty (vllm:num_requests_waiting is 0)",
    )


def _title(stuck: list[Process]) -> str:
    if not stuck:
        return "The server accepts connections and answers none of them"
    first = stuck[0]
    return f"The server accepts connections and answers none: process {first.pid} is {_STUCK[first.state or '']}"


def _change(stuck: list[Process], unit: str) -> Change:
    stopped = " ".join(str(p.pid) for p in stuck if p.state == "T")
    if stopped:
        why = f"kill -CONT {stopped} resumes it; find out who stopped the process (a person, a debugger)"
        return thing(ChangeKind.OS, f"process {stopped}", Direction.REPAIR, why, command=f"kill -CONT {stopped}")
    if any(p.state == "D" for p in stuck):
        pid = next(p.pid for p in stuck if p.state == "D")
        why = (
            "no signal reaches the process: find out what the process waits for. A hung driver needs a "
            "reboot; a hung network disk needs its server back"
        )
        command = f"cat /proc/{pid}/stack /proc/{pid}/wchan; journalctl -k -b | grep -i -e nvrm -e nfs -e blocked"
        return thing(ChangeKind.OS, f"process {pid}", Direction.REPAIR, why, command=command)
    why = "first keep the evidence: vllm-doctor bundle, and py-spy dump of the main process"
    return thing(ChangeKind.OS, unit, Direction.REPAIR, why, command=f"systemctl restart {shlex.quote(unit)}")


RULE = rule(
    "VD901",
    reads=frozenset(
        {Signal.PROBE, Signal.UNIT, Signal.MACHINE, Signal.KERNEL, Signal.LOG, Signal.METRICS, Signal.CONTAINER}
    ),
    judge=judge,
)

"""VD901: the server takes connections and answers none: it is stopped by a signal, or hangs."""

import shlex

from vllm_doctor.records.finding import Change, Evidence
from vllm_doctor.records.host import Process
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Cause, ChangeKind, Confidence, Direction, Phase, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.registry import Clear, NotHere, Outcome, Rule, Unseen
from vllm_doctor.rules.say import finding, thing

# /proc/PID/stat's letters that a process does not leave by itself.
_STUCK = {"T": "stopped by a signal (SIGSTOP, or a debugger)", "D": "waiting in the kernel (driver or disk)"}


def judge(case: Case) -> Outcome:
    """Is the port taken by our process, and nothing said on it?"""
    probe, unit, machine = case.probe, case.unit, case.machine
    if probe is None:
        return Unseen(frozenset({Signal.PROBE}))
    if unit is None or unit.main_pid is None:
        return NotHere("the unit has no running process")
    if probe.health_status == 200 and probe.completion is False:
        return _no_token(unit.name)
    if probe.health_status is not None:
        return Clear(f"/health answers {probe.health_status}")
    if "sent nothing" not in (probe.health_error or ""):
        return NotHere("nobody listens on the port yet, or any more")
    processes = {p.pid: p for p in machine.processes} if machine is not None else {}
    stuck = [
        p for p in processes.values() if p.state in _STUCK and (p.pid == unit.main_pid or p.name.startswith("VLLM"))
    ]
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


def _no_token(unit: str) -> Outcome:
    """It was asked for one token (`--canary`) and did not give it, though /health is content."""
    return finding(
        RULE,
        title="/health answers 200, but a completion of one token does not come back",
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.LIKELY,
        evidence=(Evidence("probe", f"{unit}, /v1/completions", "no completion of one token within the time given"),),
        changes=(_change([], unit),),
        refute="the same request answers when the queue is empty (vllm:num_requests_waiting is 0)",
    )


def _title(stuck: list[Process]) -> str:
    if not stuck:
        return "The server takes connections and answers none of them"
    first = stuck[0]
    return f"The server takes connections and answers none: process {first.pid} is {_STUCK[first.state or '']}"


def _change(stuck: list[Process], unit: str) -> Change:
    stopped = next((p for p in stuck if p.state == "T"), None)
    if stopped is not None:
        why = f"kill -CONT {stopped.pid} lets it go on; find out who stopped it (a debugger, a frozen cgroup)"
        return thing(
            ChangeKind.OS, f"process {stopped.pid}", Direction.REPAIR, why, command=f"kill -CONT {stopped.pid}"
        )
    why = "first keep the evidence: vllm-doctor bundle, and py-spy dump of the main process"
    return thing(ChangeKind.OS, unit, Direction.REPAIR, why, command=f"systemctl restart {shlex.quote(unit)}")


RULE = Rule(
    code="VD901",
    slug="server-silent",
    title="The server takes connections and answers none of them",
    node="not-memory",
    cause=Cause.OTHER,
    phase=Phase.NOT_MEMORY,
    reads=frozenset({Signal.PROBE, Signal.UNIT, Signal.MACHINE}),
    judge=judge,
    rank=25,
)

"""VD902: an engine process lives on without the server that started it, and holds what it took."""

from vllm_doctor.records.finding import Evidence
from vllm_doctor.records.host import Machine, Process
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, gib, thing

_GIB = 1 << 30
# A process that has ended, of which only the exit code is left.
_ENDED = {"Z", "X"}


def judge(case: Case) -> Outcome:
    """Is there an engine or worker whose server is gone?"""
    machine, probe, gpus = case.machine, case.probe, case.gpus
    if machine is None:
        return Unseen(frozenset({Signal.MACHINE}))
    if probe is not None and probe.health_status == 503:
        return NotHere("the engine of the running server has just died; its workers are still ending")
    if case.unit is not None and case.unit.active_state == "deactivating":
        return NotHere("systemd is just ending the processes of the unit")
    orphans = _orphans(machine)
    if not orphans:
        return Clear("every engine process has the server that started it")
    held = {p.pid: p.used_bytes for gpu in gpus or () for p in gpu.processes}
    evidence = tuple(
        Evidence(
            "/proc",
            f"{p.pid}/stat",
            f"{p.name}, started by a process that is gone, of {p.unit or 'no unit'}, user {p.user}",
        )
        for p in orphans
    )
    sums = [gib(f"host memory of {p.pid}", (p.rss_bytes or 0) / _GIB, "resident", "/proc") for p in orphans]
    sums += [gib(f"GPU memory of {p.pid}", used / _GIB, "", "NVML") for p in orphans if (used := held.get(p.pid))]
    pids = " ".join(str(p.pid) for p in orphans)
    return finding(
        RULE,
        title=f"{len(orphans)} engine process(es) without a server: {pids}",
        severity=Severity.DEGRADED,
        evidence=evidence,
        arithmetic=tuple(sums),
        changes=(
            thing(
                ChangeKind.OS,
                "orphaned-engine",
                Direction.STOP,
                f"check these processes (ps -o pid,ppid,lstart,cmd -p {pids.replace(' ', ',')}), then kill {pids}. "
                "KillMode=mixed in the unit ends such processes with the server",
                command=f"ps -o pid,ppid,lstart,cmd -p {pids.replace(' ', ',')} && kill {pids}",
            ),
        ),
        refute="the parent of each is a running vLLM server, or they end by themselves within a minute",
    )


def _orphans(machine: Machine) -> list[Process]:
    """Engines and workers that were handed to PID 1; a server that is PID 1 itself (a container) is their parent."""
    servers = {p.pid for p in machine.processes if not _engine(p)}
    return [p for p in machine.processes if _engine(p) and p.ppid == 1 and 1 not in servers and p.state not in _ENDED]


def _engine(process: Process) -> bool:
    return process.name.startswith("VLLM::") and "APIServer" not in process.name


RULE = rule("VD902", reads=frozenset({Signal.MACHINE, Signal.PROBE, Signal.GPUS, Signal.UNIT}), judge=judge)

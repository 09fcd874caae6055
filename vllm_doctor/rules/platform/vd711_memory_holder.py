"""VD711: who holds the memory that this service was refused, by name: a unit, a person, or nobody that is listed."""

import shlex

from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.finding import Arithmetic, Change, Evidence
from vllm_doctor.records.host import Gpu, GpuProcess
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.device import maker_tool
from vllm_doctor.rules.gates.out_of_memory import EXHAUSTED
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, gib, thing

# Less than this is a desktop, an exporter, a driver context.
_WORTH = GIB // 2
_AT_START = frozenset({"free-below-wanted", "profile-free-rose"})
_EARLY = frozenset({StartupPhase.DEVICE, StartupPhase.WEIGHTS})


def judge(case: Case) -> Outcome:
    """Was memory refused, and does a process of somebody else hold some?"""
    run, gpus, unit = case.run, case.gpus, case.unit
    if gpus is None or run is None:
        return Unseen(frozenset({Signal.GPUS} if gpus is None else {Signal.LOG}))
    root = run.root
    if root is None or not (root.ids & _AT_START or (root.ids & EXHAUSTED and root.startup_phase in _EARLY)):
        return NotHere("this service did not lack memory at its start")
    own = unit.name if unit is not None else None
    held = [(g, p) for g in gpus for p in g.processes if (p.used_bytes or 0) >= _WORTH and _foreign(p, own)]
    hidden = [g for g in gpus if (_unlisted(g) or 0) >= max(GIB, (g.total_bytes or 0) // 50)]
    if not held and not hidden:
        return Clear("no process of another service is on the GPUs now")
    return finding(
        RULE,
        title="; ".join([*(_told(g, p) for g, p in held), *(_nobody(g) for g in hidden)][:3]),
        evidence=(
            case.line(root.hits[0].index),
            *(Evidence("NVML", f"GPU {g.index}", _told(g, p)) for g, p in held[:4]),
            *(Evidence("NVML", f"GPU {g.index}", _nobody(g)) for g in hidden[:4]),
        ),
        arithmetic=_sums(held, hidden),
        changes=(*(_stop(p) for _, p in held[:3]), _reset(case) if hidden and not held else None),
        refute="the other processes started after this service failed",
    )


def _foreign(process: GpuProcess, own: str | None) -> bool:
    """Of another service. Without systemd's word on both, a process that may be an engine may be our own."""
    if own is not None:
        return process.unit != own
    name = (process.name or "").lower()
    return process.unit is None and bool(name) and not any(word in name for word in ("vllm", "python", "ray::"))


def _unlisted(gpu: Gpu) -> int | None:
    """Memory that is gone and that no listed process has; None where that cannot be known."""
    if gpu.unified_memory or gpu.total_bytes is None or gpu.free_bytes is None or gpu.reserved_bytes is None:
        return None
    if any(p.used_bytes is None for p in gpu.processes):
        return None
    return gpu.total_bytes - gpu.free_bytes - gpu.reserved_bytes - sum(p.used_bytes or 0 for p in gpu.processes)


def _told(gpu: Gpu, process: GpuProcess) -> str:
    whose = process.unit or f"user {process.user}" if process.unit or process.user else "no unit known"
    size = (process.used_bytes or 0) / GIB
    since = f", since {process.started_at}" if process.started_at else ""
    return f"Process {process.pid} holds {size:.2f} GiB of GPU {gpu.index} ({process.name or '?'}, {whose}{since})"


def _nobody(gpu: Gpu) -> str:
    return f"No listed process holds {(_unlisted(gpu) or 0) / GIB:.2f} GiB of GPU {gpu.index} that are in use"


def _sums(held: list[tuple[Gpu, GpuProcess]], hidden: list[Gpu]) -> tuple[Arithmetic, ...]:
    listed = tuple(gib(f"held by {p.pid}", (p.used_bytes or 0) / GIB, f"GPU {g.index}", "NVML") for g, p in held[:4])
    return listed + tuple(
        gib("held by no listed process", (_unlisted(g) or 0) / GIB, "total − free − reserved − all processes", "NVML")
        for g in hidden[:4]
    )


def _stop(process: GpuProcess) -> Change:
    what = (
        f"systemctl stop {shlex.quote(process.unit)}"
        if process.unit
        else f"look first: ps -o user,lstart,cmd -p {process.pid}"
    )
    why = f"{what}; or give this service the rest of the GPU"
    stop = f"systemctl stop {shlex.quote(process.unit)}" if process.unit else f"kill {process.pid}"
    return thing(ChangeKind.OS, "other-gpu-processes", Direction.STOP, why, before=process.pid, command=stop)


def _reset(case: Case) -> Change:
    why = (
        "a process in another container, or the driver itself, holds the memory: look from the host; only "
        "if no process shows there, reset the GPU or reboot"
    )
    return thing(ChangeKind.HARDWARE, "gpu", Direction.REPAIR, why, command=maker_tool(case).holders)


RULE = rule("VD711", reads=frozenset({Signal.GPUS, Signal.LOG, Signal.UNIT}), judge=judge)

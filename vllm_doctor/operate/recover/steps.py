"""The steps of a recovery, in an order that a kill between any two of them leaves safe.

Before the unit is stopped, a timer of systemd's own is armed that starts it again where we are killed. Each step does
nothing where it was done before, so the whole may be run twice.
"""

import datetime
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from vllm_doctor.gather import journal, look, nvml, systemd
from vllm_doctor.gather.processes import run
from vllm_doctor.gather.unit_line import UnitLine
from vllm_doctor.operate.announce import announced
from vllm_doctor.operate.guard.restart import LOCK, alone
from vllm_doctor.operate.history import deeds
from vllm_doctor.operate.recover import conservative
from vllm_doctor.operate.recover.conservative import Less
from vllm_doctor.operate.recover.orphans import Holder, end, gpu_name, holders
from vllm_doctor.operate.temporary import Temporary, once_free, systemctl
from vllm_doctor.records.host import Gpu
from vllm_doctor.records.reading import Known

_STOP_S = 900.0
_PATIENCE_S = 10.0
_FREE_S = 60.0
_GIB = 1 << 30


class RecoveryPlan(msgspec.Struct, frozen=True):
    """What will be done. `line` is the command line that `less` changes, `gpus` are the unit's, `mine` what of its
    processes holds them, `others` who else does."""

    unit: str
    line: UnitLine | None
    active: str
    drained: bool
    processes: tuple[int, ...]
    gpus: tuple[Gpu, ...]
    gpus_unknown: str
    mine: tuple[Holder, ...]
    others: tuple[Holder, ...]
    less: Less
    hours: float


class Recovery(msgspec.Struct, frozen=True):
    """How it ended: `answers` says that a completion came back; `why` is what went wrong."""

    answers: bool
    why: str = ""
    seconds: float = 0.0


def seen(unit: str) -> tuple[tuple[Gpu, ...], str, tuple[Holder, ...]]:
    """The GPUs of the host, why they are not known, and who holds them, judged from `unit`."""
    gpus, _ = nvml.read()
    runs = journal.invocations(unit, 10)
    found = systemd.find(unit, 5)
    marks = {run.invocation for run in runs.value} if isinstance(runs, Known) else set()
    if isinstance(found, Known) and found.value[0].unit.invocation_id:
        marks.add(found.value[0].unit.invocation_id)
    if not isinstance(gpus, Known):
        return (), gpus.reason, ()
    return gpus.value, "", holders(gpus.value, unit, frozenset(marks))


def told(plan: RecoveryPlan) -> list[str]:
    """The plan as numbered lines."""
    lines = [
        f"stop {plan.unit}, which is {plan.active}, with all {len(plan.processes)} processes of its control group"
        if plan.processes or plan.active != "inactive"
        else f"{plan.unit} is already stopped"
    ]
    lines += [f"end what it left behind: {one.told}" for one in plan.mine if one.pid not in plan.processes]
    lines.append("read the GPUs' memory until it is free" if plan.gpus else f"GPUs: {plan.gpus_unknown}")
    if plan.less.changes:
        lower = " ".join(f"--{c.name} {c.after:g}" for c in plan.less.changes if isinstance(c.after, float | int))
        lines.append(f"start it with {lower}, for {plan.hours:g} h by a drop-in that expires ({plan.less.why})")
    else:
        lines.append(f"start it with its present launch ({plan.less.why})")
    lines.append("wait for a real completion")
    numbered = [f"{n}. {line}" for n, line in enumerate(lines, 1)]
    numbered += [f"   left alone: {one.told}: {one.why_not}" for one in plan.others]
    return numbered + list(_hardware(plan.gpus))


def _hardware(gpus: tuple[Gpu, ...]) -> Iterator[str]:
    """What NVIDIA's driver asks for, which is not done here."""
    for gpu in gpus:
        action = gpu.recovery_action
        if action is not None and action not in {"none", ""}:
            yield (
                f"   not done by recover: GPU {gpu.index} needs {action} (NVIDIA's recovery action): stop everything "
                "on it first"
            )


def done(plan: RecoveryPlan, ready_s: float, say: Callable[[str], None], now: datetime.datetime) -> Recovery:
    """Do it. Raises NotDone before anything was stopped; NotPermitted where another changes a service just now."""
    began = time.monotonic()
    with alone(), announced(f"vllm-doctor recover --unit {plan.unit}", plan.unit), _cut_off(plan.unit):
        deeds.record(plan.unit, deeds.RECOVERED, "begun: " + "; ".join(told(plan))[:1500])
        resume = f"vllm-doctor-resume-{plan.unit.removesuffix('.service')}"
        once_free(resume, LOCK, ["/bin/systemctl", "--no-block", "start", "--", plan.unit])
        say(f"stops {plan.unit}")
        systemctl("stop", "--", plan.unit, deadline_s=_STOP_S)
        problem = _freed(plan, say)
        drop_in = Temporary(plan.unit, "recover", restart=False)
        if plan.less.changes and plan.line is not None:
            file = drop_in.put(conservative.text(plan.line, plan.less.changes), int(plan.hours * 3600), now)
            say(f"writes {file}")
            end_at = now + datetime.timedelta(hours=plan.hours)
            deeds.record(plan.unit, deeds.RECOVERED, f"{deeds.UNTIL} {end_at.isoformat(timespec='seconds')}")
        say(f"starts {plan.unit}")
        _forget_failures(plan.unit)
        systemctl("start", "--", plan.unit, deadline_s=_STOP_S)
        run(["systemctl", "stop", f"{resume}.timer"], deadline_s=20)
        why = answers(plan.unit, ready_s)
        if why is not None and drop_in.take_away():
            say(f"{why}: starting the earlier launch again")
            _forget_failures(plan.unit)
            systemctl("restart", "--", plan.unit, deadline_s=_STOP_S)
            why = answers(plan.unit, ready_s)
        took = time.monotonic() - began
        end_of_it = f"a completion came back after {took:.0f} s" if why is None else why
        deeds.record(plan.unit, "recovered" if why is None else "not-recovered", end_of_it)
    if why is not None:
        return Recovery(answers=False, why=f"{why}{f'; {problem}' if problem else ''}", seconds=took)
    return Recovery(answers=True, why=problem, seconds=took)


@contextmanager
def _cut_off(unit: str) -> Iterator[None]:
    """Whoever ends us by Ctrl-C leaves a word of it; the timer that was armed first does the rest."""
    try:
        yield
    except KeyboardInterrupt:
        deeds.record(
            unit, "not-recovered", "interrupted: if the unit is stopped, a timer starts it within half a minute"
        )
        raise


def _forget_failures(unit: str) -> None:
    """So that the start limit does not refuse the start. systemd has no state of a stopped unit that nothing refers
    to, and then there is nothing to forget."""
    run(["systemctl", "reset-failed", "--", unit], deadline_s=60)


def _freed(plan: RecoveryPlan, say: Callable[[str], None]) -> str:
    """End what was left behind and read the memory until it is free; who holds it where it is not."""
    if not plan.gpus:
        return ""
    of_unit = {gpu_name(gpu) for gpu in plan.gpus}  # what another service's GPU holds is not waited for
    until = time.monotonic() + _FREE_S
    while True:
        gpus, why, found = seen(plan.unit)
        if why:
            return f"GPUs: {why}"
        gpus = tuple(gpu for gpu in gpus if gpu_name(gpu) in of_unit)
        mine = tuple(one for one in found if not one.why_not)
        if mine:
            for one in mine:
                say(f"ends {one.told}")
            for one in end(mine, _PATIENCE_S):
                say(f"{one.told}: does not end, even after SIGKILL: it waits in the driver; reboot the host")
        held = [line for gpu in gpus for line in _hidden(gpu)]
        if not mine and not held:
            for gpu in gpus:
                if gpu.free_bytes is not None and gpu.total_bytes is not None:
                    say(f"GPU {gpu.index}: {gpu.free_bytes / _GIB:.2f} of {gpu.total_bytes / _GIB:.2f} GiB free")
            return ""
        if time.monotonic() > until:
            return "; ".join((*held, *(one.told for one in mine)))
        time.sleep(2)


def _hidden(gpu: Gpu) -> Iterator[str]:
    """Memory that nobody in NVML's list holds: more than a GiB and two parts in a hundred."""
    if gpu.total_bytes is None or gpu.free_bytes is None or gpu.unified_memory:
        return
    listed = [p.used_bytes for p in gpu.processes]
    if any(used is None for used in listed):
        return
    rest = gpu.total_bytes - gpu.free_bytes - (gpu.reserved_bytes or 0) - sum(u for u in listed if u is not None)
    if rest > max(_GIB, 0.02 * gpu.total_bytes):
        yield f"GPU {gpu.index}: {rest / _GIB:.2f} GiB are held by no process that NVML lists"


def answers(unit: str, within_s: float) -> str | None:
    """Wait for a real completion; why none came, or None."""
    end_at = time.monotonic() + within_s
    last = "it did not listen on its port"
    while time.monotonic() < end_at:
        read = look.looks((unit,), cards=False, canaries={unit: 15.0})
        one = read.value[0] if isinstance(read, Known) and read.value else None
        if one is not None:
            if one.active == "failed":
                return "the service failed (vllm-doctor diagnose)"
            if one.health == 200 and one.canary is not False:
                return None
            said = "no answer from /health" if one.health is None else f"/health says {one.health}"
            last = "no completion came back" if one.health == 200 else said
        time.sleep(2)
    return f"{unit} does not answer within {within_s:.0f} s: {last}"

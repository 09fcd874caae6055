"""VD704: the GPU itself failed: a memory error that ECC could not correct, or an Xid of the hardware."""

import shlex

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import Hit, says
from vllm_doctor.records.finding import Change, Evidence, Finding
from vllm_doctor.records.host import Gpu
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.xid import ACTIONS, Xid, card, recovery, xids
from vllm_doctor.rules.outcome import Clear, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, thing

_NONE = frozenset({"none", "unknown", ""})
_OFF_THE_BUS = 79


def judge(case: Case) -> Outcome:
    """Do the kernel log, the driver or the log itself show a fault of the hardware?"""
    run, kernel, gpus = case.run, case.kernel, case.gpus
    if kernel is None and gpus is None and run is None:
        return Unseen(frozenset({Signal.KERNEL, Signal.GPUS, Signal.LOG}))
    found = xids(kernel, run)
    bad = tuple(x for x in found if x.hardware)
    root = case.root
    said = root is not None and bool(root.ids & {"ecc", "gpu-lost"})
    sick = next((g for g in gpus or () if _asks(g)), None)
    if not (bad or said or sick is not None):
        if (hung := _hung(case)) is not None:
            return hung
        if root is not None and run is not None and (mute := run.first("smi-unreadable")) is not None:
            return _mute(case, root, mute)
        return Clear("no hardware fault is recorded" + (f"; {len(found)} Xid of applications" if found else ""))
    source = "kernel log" if kernel is not None else "log"
    evidence = tuple(Evidence(source, f"line {x.event.number}", x.event.text, x.event.at) for x in bad[:3])
    if root is not None and said:
        evidence += (case.line(next(h.index for h in root.hits if h.id in {"ecc", "gpu-lost"})),)
    if sick is not None:
        evidence += (Evidence("NVML", f"GPU {sick.index}", _state(sick)),)
    action = recovery(found) or _named(sick)
    return finding(
        RULE,
        title=_title(bad, sick, gpus),
        severity=_severity(case),
        evidence=evidence,
        changes=(_reboot(action, bad), _recover(action, bad)),
        refute="the same lines are from before the last reset or reboot",
    )


def _hung(case: Case) -> Finding | None:
    """AMD's driver gave a card up that did not answer, or its runtime says so: of a run that failed or ended there."""
    run, root = case.run, case.root
    if run is None:
        return None
    told = [hit.index for hit in run.all("amdgpu-reset")[:2]]
    said = [hit.index for hit in run.all("rocm-gpu-hang")[:1]]
    if not said and not (told and (root is not None or run.deaths or run.stalled)):
        return None
    why = (
        "the card did not answer and was reset: restart the service, and the host where the reset failed. Such hangs "
        "are fixed in the card's firmware (linux-firmware: MES, SMU) and in the kernel's amdgpu: install newer ones"
    )
    return finding(
        RULE,
        title="The AMD GPU hung, and its driver reset it",
        severity=_severity(case),
        confidence=Confidence.LIKELY,
        evidence=tuple(case.line(index) for index in (*told, *said)),
        changes=(
            thing(
                ChangeKind.OS,
                "gpu-driver",
                Direction.REPAIR,
                why,
                command="dmesg | grep -iE 'amdgpu.*(reset|timeout|MES|ras)' | tail; rocm-smi --showhw",
            ),
        ),
        refute="the same lines are from before the last start",
    )


def _mute(case: Case, root: Fault, mute: Hit) -> Finding:
    """A run that failed, and nvidia-smi's table beside it, in which the driver has no answer for a card."""
    return finding(
        RULE,
        title="nvidia-smi has no answer (ERR!) for a GPU: the card or its driver hangs",
        severity=_severity(case),
        confidence=Confidence.LIKELY,
        evidence=(case.line(mute.index), case.line(root.index)),
        changes=(_recover(None, ()),),
        refute="nvidia-smi shows the card's power again, without a reset",
    )


def _asks(gpu: Gpu) -> bool:
    lost = says(gpu.error or "", "nvml-lost")
    return lost or (gpu.recovery_action or "").lower() not in _NONE or bool(gpu.remap_failed)


def _named(gpu: Gpu | None) -> str | None:
    action = gpu.recovery_action if gpu is not None else None
    return action if action is not None and action.lower() not in _NONE else None


def _state(gpu: Gpu) -> str:
    parts = [f"recovery action: {gpu.recovery_action}"] if _named(gpu) else []
    parts += ["a memory row could not be replaced"] if gpu.remap_failed else []
    parts += [gpu.error] if gpu.error else []
    return "; ".join(parts)


def _title(bad: tuple[Xid, ...], sick: Gpu | None, gpus: tuple[Gpu, ...] | None) -> str:
    if bad:
        return f"Xid {bad[0].code} on {card(bad[0].bus, gpus)}: {bad[0].meaning}"
    return f"GPU {sick.index}: {_state(sick)}" if sick is not None else RULE.title


def _severity(case: Case) -> Severity:
    """A service that still serves beside a sick card is degraded; otherwise the card is why it does not."""
    run = case.run
    if run is None or run.root is not None or run.deaths:
        return Severity.BLOCKS_START
    return Severity.DEGRADED if run.served() else Severity.BLOCKS_START


def _recover(action: str | None, bad: tuple[Xid, ...]) -> Change:
    ours = ACTIONS.get(bad[0].code) if bad else None
    why = (
        f"the driver requests this action: {action}"
        if action
        else ours or "drain the GPU, then reset the GPU; replace the GPU if the fault comes back"
    )
    which = bad[0].bus if bad and bad[0].bus else "INDEX"
    gone = any(x.code == _OFF_THE_BUS for x in bad)
    command = "systemctl reboot" if gone else f"systemctl stop UNIT && nvidia-smi --gpu-reset -i {shlex.quote(which)}"
    return thing(ChangeKind.HARDWARE, "gpu", Direction.RESET, why, to=action, command=command)


def _reboot(action: str | None, bad: tuple[Xid, ...]) -> Change | None:
    """A card that left the bus, or whose driver asks for it, comes back with the host alone."""
    if not (any(x.code == _OFF_THE_BUS for x in bad) or "reboot" in (action or "").lower()):
        return None
    why = "a card that is off the bus cannot be reset from the host"
    return thing(ChangeKind.OS, "host", Direction.REBOOT, why, command="systemctl reboot")


RULE = rule("VD704", reads=frozenset({Signal.LOG, Signal.KERNEL, Signal.GPUS}), judge=judge)

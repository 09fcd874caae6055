"""VD532: systemd could not set up the unit's process, so its program never ran."""

import shlex
from typing import NamedTuple

from vllm_doctor.knowledge.systemd_statuses import SystemdStatus, of_step, systemd_statuses
from vllm_doctor.records.finding import Evidence
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, thing


class _Told(NamedTuple):
    """Who tells of which step of which unit; `said` is systemd's own reason, empty where only the number is known."""

    step: SystemdStatus
    unit: str
    evidence: tuple[Evidence, ...]
    said: str = ""


def judge(case: Case) -> Outcome:
    """Did a step fail that systemd does before it runs the program?"""
    if case.run is None and case.unit is None:
        return Unseen(frozenset({Signal.LOG, Signal.UNIT}))
    told = _by_log(case) or _by_unit(case)
    if told is None:
        return Clear("systemd reports no step that failed before the program ran")
    if case.run is not None and case.run.by_vllm and case.run.stopped is None and not told.said:
        return NotHere("vLLM wrote lines, so the program ran: the status is its own")
    word = shlex.quote(told.unit)
    return finding(
        RULE,
        title=f"systemd could not apply {told.step.setting}=: the program did not run",
        detail=f"{told.unit}: step {told.step.name}{f', {told.said}' if told.said else ''}",
        confidence=Confidence.CONFIRMED if told.said else Confidence.LIKELY,
        evidence=told.evidence,
        changes=(
            thing(
                ChangeKind.OS,
                "unit-setting",
                Direction.REPAIR,
                told.step.why,
                to=f"{told.step.setting}=",
                command=f"systemctl cat {word}; journalctl -u {word} -n 20",
            ),
        ),
        refute=f"`systemctl start {word}` gets past this step, or the program itself ends with this status",
    )


def _by_log(case: Case) -> _Told | None:
    """What systemd's last words about a step are: its reason, and the status with which the process ended."""
    run = case.run
    if run is None:
        return None
    failed, ended = run.last("unit-step-failed"), run.last("unit-step-status")
    for hit in (failed, ended):
        step = None if hit is None or hit.index < run.worked else of_step(hit.fields["step"])
        if hit is None or step is None:
            continue
        shown = tuple(case.line(one.index) for one in (failed, ended) if one is not None)
        return _Told(step, hit.fields["unit"], shown, hit.fields.get("why", ""))
    return None


def _by_unit(case: Case) -> _Told | None:
    """What systemd keeps of the last end of the unit's main process."""
    unit = case.unit
    if unit is None or unit.exit_code != "exited" or unit.active_state == "active":
        return None
    step = systemd_statuses().get(unit.exit_status or 0)
    if step is None:
        return None
    seen = f"ExecMainStatus={unit.exit_status}/{step.name} Result={unit.result}"
    return _Told(step, unit.name, (Evidence("systemd", unit.name, seen),))


RULE = rule("VD532", reads=frozenset({Signal.LOG, Signal.UNIT}), judge=judge)

"""VD904: the unit starts again and again, and no rule knows why."""

import shlex

from vllm_doctor.records.finding import Evidence
from vllm_doctor.records.log import EARLIER_RUN
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, thing

MANY = 3


def judge(case: Case) -> Outcome:
    """Has systemd restarted it several times, and does it still not serve?"""
    unit, probe, run = case.unit, case.probe, case.run
    if unit is None:
        return Unseen(frozenset({Signal.UNIT}))
    if probe is not None and probe.health_status == 200:
        return Clear("it serves")
    gave_up = unit.result == "start-limit-hit" or unit.active_state == "failed"
    if (unit.restarts or 0) < MANY and not gave_up:
        return Clear(f"systemd restarted it {unit.restarts or 0} times")
    if unit.active_state == "inactive":
        return NotHere("the unit is stopped")
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    evidence = [
        Evidence(
            "systemd", unit.name, f"NRestarts={unit.restarts} Result={unit.result} ActiveState={unit.active_state}"
        )
    ]
    evidence += [Evidence("journal", unit.name, note) for note in run.log.notes if note.startswith(EARLIER_RUN)]
    evidence += [case.line(len(run.lines) - 1)] if run.lines else []
    word = shlex.quote(unit.name)
    return finding(
        RULE,
        title=(
            f"systemd restarted {unit.name} {unit.restarts or 0} times{' and gave up' if gave_up else ''}; the "
            "cause is unknown"
        ),
        severity=Severity.BLOCKS_START,
        evidence=tuple(evidence),
        changes=(
            thing(
                ChangeKind.OS,
                unit.name,
                Direction.STOP,
                f"systemctl stop {word} ends the loop; then start it by hand and read: journalctl -fu {word}",
                command=f"systemctl stop {word}",
            ),
        ),
        refute=f"systemctl show -p NRestarts {unit.name} stays the same and /health answers 200",
    )


RULE = rule("VD904", reads=frozenset({Signal.UNIT, Signal.PROBE, Signal.LOG}), judge=judge)

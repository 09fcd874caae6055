"""VD910: a drop-in of `recover` or `debug` holds: the service does not run as the inventory says."""

import shlex

from vllm_doctor.records.finding import Evidence
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.temporary import purpose, until
from vllm_doctor.records.verdict import ChangeKind, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, thing

_WHAT = {"recover": "the smaller launch of `recover`", "debug": "variables of `debug`"}


_AFTER = {
    "recover": "or wait: the drop-in expires; its lower numbers stay in force until the next restart after that",
    "debug": "or wait: the drop-in expires, and the service restarts without it",
}


def judge(case: Case) -> Outcome:
    """Is one of the unit's drop-ins one that expires?"""
    unit = case.unit
    if unit is None:
        return Unseen(frozenset({Signal.UNIT})) if case.live else NotHere("a file has no drop-ins")
    held = [(path, end) for path in unit.drop_ins if (end := until(path)) is not None]
    if not held:
        return Clear("there is no drop-in of recover or debug")
    path, end = held[0]
    word = shlex.quote(unit.name)
    shown = end.strftime("%Y-%m-%d %H:%M UTC")
    command = (
        f"vllm-doctor debug off --unit {word}"
        if purpose(path) == "debug"
        else f"rm {shlex.quote(path)} && systemctl daemon-reload && systemctl restart {word}"
    )
    return finding(
        RULE,
        title=f"The service has {_WHAT[purpose(path)]} until {shown}",
        severity=Severity.ADVICE,
        evidence=tuple(Evidence("systemd", unit.name, one) for one, _ in held),
        changes=(
            thing(
                ChangeKind.OS,
                path.rpartition("/")[2],
                Direction.REMOVE,
                _AFTER[purpose(path)],
                command=command,
            ),
        ),
        refute=f"systemctl show -p DropInPaths {word} names no such file",
    )


RULE = rule("VD910", reads=frozenset({Signal.UNIT}), judge=judge)

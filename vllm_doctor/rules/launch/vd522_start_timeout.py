"""VD522: the API server gave up waiting for an engine that was still starting."""

from vllm_doctor.knowledge import versions
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.named_fault import named, shown
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import environment, finding

_ID = "engine-start-timeout"
_VARIABLE = "VLLM_ENGINE_READY_TIMEOUT_S"
# Three times what was waited; a start that takes longer hangs.
_LONGER = 3
_SLOW = {
    StartupPhase.DEVICE: "; the ranks had not yet found each other",
    StartupPhase.WEIGHTS: "; the weights were still being read",
    StartupPhase.PROFILE: "; the profile run or its compilation was running",
    StartupPhase.GRAPHS: "; graphs were being captured",
}


def judge(case: Case) -> Outcome:
    """Did nothing fail but the patience of the API server?"""
    fault = named(case, _ID)
    if isinstance(fault, NotHere | Unseen):
        return fault
    run = case.run
    reached = run.reached(fault.index) if run is not None else None
    waited = fault.fields(_ID).get("seconds")
    fact = versions.env(_VARIABLE, case.release)
    to = int(waited) * _LONGER if waited is not None else None
    return finding(
        RULE,
        title=RULE.title + (_SLOW.get(reached, "") if reached is not None else ""),
        evidence=shown(case, fault, _ID),
        changes=(
            environment(
                _VARIABLE,
                Direction.RAISE,
                "the start takes longer than this; set TimeoutStartSec of the unit even higher",
                to=to,
                before=int(waited) if waited is not None else None,
            )
            if fact is not None and fact.exists
            else None,
        ),
        refute=(
            "the log gains no line even with three times the limit: then the start hangs (run py-spy "
            "dump on each worker)"
        ),
    )


RULE = rule("VD522", reads=frozenset({Signal.LOG, Signal.VERSION}), judge=judge)

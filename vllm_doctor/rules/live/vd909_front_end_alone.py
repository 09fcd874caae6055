"""VD909: the server goes on answering, but its engine is dead: health checks and statistics outlive it."""

from vllm_doctor.log.match import says
from vllm_doctor.records.finding import Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, thing

# What only a server says whose engine had started and is gone.
_DEAD = frozenset({"engine-core-fatal", "engine-dead", "output-handler", "engine-loop", "background-loop"})


def judge(case: Case) -> Outcome:
    """Does the server still speak of requests, or of its statistics, after its engine is dead?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    dead = next((h.index for h in run.deaths if h.id in _DEAD), None)
    if dead is None:
        return Clear("no line reports an engine that died while it served")
    if run.stopped is not None and run.stopped < dead:
        return NotHere("the server was being stopped")
    if any(
        h.index > dead for name in ("app-stopped", "uvicorn-finished", "engine-already-dead") for h in run.all(name)
    ):
        return NotHere("the server ended with its engine")
    if run.served(dead):
        return NotHere("the server generated tokens after that")
    later = next(
        (i for i in range(len(run.lines) - 1, dead, -1) if says(run.lines[i].text, "access-line", "throughput")), None
    )
    if later is None:
        return NotHere("the server says nothing after it")
    restart: Change | None = thing(
        ChangeKind.OS,
        "server",
        Direction.REPAIR,
        ("only a restart brings the engine back; let health checks ask for a completion, not only for /health"),
    )
    return finding(
        RULE,
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.LIKELY,
        evidence=(case.line(dead), case.line(later)),
        changes=(restart,),
        refute="a completion is answered",
    )


RULE = rule("VD909", reads=frozenset({Signal.LOG}), judge=judge)

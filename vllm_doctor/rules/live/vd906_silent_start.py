"""VD906: a start that neither failed nor goes on: its last line is older than its step ever takes."""

import shlex
from collections.abc import Sequence

from vllm_doctor.log import silence
from vllm_doctor.log.clock import minute_of_day
from vllm_doctor.log.match import Hit
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.finding import Arithmetic, Evidence, Finding
from vllm_doctor.records.host import Probe
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Phase
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.last_wait import DAY, final_run, minutes_of, unbroken
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.rank_wait import known, ways_out
from vllm_doctor.rules.say import environment, finding, thing

# Minutes within which an engine announces itself: within one; on a slow share within three.
_SPEAKS = 5
_TRACE = "VLLM_TRACE_FUNCTION"


def judge(case: Case) -> Outcome:
    """Has the engine, or the unit, said nothing for longer than its step of the start takes?"""
    unit, run, probe = case.unit, case.run, case.probe
    if run is not None and (traced := _traced(run)) is not None:
        return _slowed(case, *traced)
    if run is not None and (waits := _awaits_engine(run)):
        return _engine(case, waits, minutes_of(run, waits))
    missing = frozenset({Signal.UNIT} if unit is None else ()) | frozenset({Signal.LOG} if run is None else ())
    if unit is None or run is None:
        return Unseen(missing)
    if not case.live:
        return NotHere("a file does not show how much time has passed")
    if run.served() or (probe is not None and probe.health_status == 200):
        return Clear("the server became ready")
    if case.root is not None or unit.active_state not in {"activating", "active"}:
        return NotHere("the server failed, or does not run")
    reached = silence.current(run)
    step, silent = silence.usual(run), silence.minutes(run, case.taken_at)
    if silent < step.minutes:
        return Clear(f"its last line is {max(silent, 0):.0f} minutes old")
    if reached is None and not _nobody_listens(probe):
        return NotHere("no line of vLLM reports a start, and no evidence shows that its port is closed")
    name = f"the phase {reached.value}" if reached is not None else "its first line"
    ranks = reached is StartupPhase.DEVICE and (case.count("tensor-parallel-size") or 1) > 1
    stuck = [p for p in (case.machine.processes if case.machine is not None else ()) if p.state == "D"]
    last = max(i for i, line in enumerate(run.lines) if line.at)
    return finding(
        RULE,
        phase=Phase.NCCL_OR_MULTIGPU if ranks else Phase.NOT_MEMORY,
        title=f"The start is silent for {silent:.0f} min; {name} takes {step.usual}",
        confidence=Confidence.LIKELY,
        evidence=(
            case.line(last),
            *(Evidence("/proc", f"{p.pid}/stat", f"{p.name} waits in the kernel (driver or disk)") for p in stuck[:3]),
        ),
        arithmetic=(
            Arithmetic("silent", round(silent), "min", "now − the last line's time", "the journal"),
            Arithmetic("a fault from", step.minutes, "min", f"before the end of {name}", "measured over 120 starts"),
        ),
        changes=(
            thing(
                ChangeKind.OS,
                unit.name,
                Direction.REPAIR,
                f"{step.look}; save the output of this command, then restart the service",
                command=f"systemctl restart {shlex.quote(unit.name)}",
            ),
            *known(case, silence.wait(run)),
            *(ways_out(case) if ranks else ()),
        ),
        refute="another line follows while you look, or the worker's GPU and disk are busy all the time",
    )


def _traced(run: AnalysedRun) -> tuple[Hit, int] | None:
    """vLLM's warning that it records every call, and the minutes for which the start has gone on since."""
    hit = run.first("calls-traced")
    if hit is None or run.root is not None or run.served():
        return None
    first = minute_of_day(run.lines[hit.index].at)
    last = next((m for line in reversed(run.lines) if (m := minute_of_day(line.at)) is not None), None)
    minutes = (last - first) % DAY if first is not None and last is not None else 0
    return (hit, minutes) if minutes >= _SPEAKS else None


def _slowed(case: Case, hit: Hit, minutes: int) -> Finding:
    why = "every call of Python is written to a file: a start takes hours; it is meant for a hang, not for service"
    return finding(
        RULE,
        title=f"VLLM_TRACE_FUNCTION slows the start: {minutes} min, and it is not ready",
        phase=Phase.NOT_MEMORY,
        confidence=Confidence.LIKELY,
        evidence=(case.line(hit.index),),
        changes=(environment(_TRACE, Direction.REMOVE, why, before=case.env(_TRACE)),),
        refute="without the variable the start takes as long",
    )


def _awaits_engine(run: AnalysedRun) -> tuple[Hit, ...]:
    """The lines in which the server asks for its engine, where the run ends in them and the engine never spoke."""
    if run.root is not None or run.first("engine-config") is not None:
        return ()
    asked = unbroken(run, final_run(run, run.all("engine-awaited")))
    return asked if len(asked) > 1 and minutes_of(run, asked) >= _SPEAKS else ()


def _engine(case: Case, waits: Sequence[Hit], minutes: int) -> Finding:
    """The server asks every few seconds for its engine process, which has not written its first line."""
    why = (
        "shows where the engine's process waits: most often for a slow share, the hub, a proxy or CUDA; if the "
        "process is missing, something outside ended it"
    )
    command = "for p in $(pgrep -f 'EngineCore|multiprocessing.spawn'); do py-spy dump --pid $p; done"
    return finding(
        RULE,
        title=f"The engine's process has said nothing for {minutes} minutes",
        phase=Phase.NOT_MEMORY,
        confidence=Confidence.LIKELY,
        evidence=(case.line(waits[0].index), case.line(waits[-1].index)),
        changes=(thing(ChangeKind.OS, "engine-process", Direction.REPAIR, why, command=command),),
        refute="the engine's first line (Initializing a V1 LLM engine) follows",
    )


def _nobody_listens(probe: Probe | None) -> bool:
    """A busy host may not ask, or be answered, in time: that is no start."""
    return probe is not None and probe.refused


RULE = rule(
    "VD906",
    reads=frozenset({Signal.UNIT, Signal.LOG, Signal.PROBE, Signal.LAUNCH, Signal.MACHINE, Signal.VERSION}),
    judge=judge,
)

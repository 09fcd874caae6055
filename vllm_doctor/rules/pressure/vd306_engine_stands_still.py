"""VD306: requests run, and line after line of statistics shows that nothing moves."""

from vllm_doctor.log.match import says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.records.finding import Arithmetic, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.statistics import STANDS, lines_still, still, with_statistics
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.rank_wait import ways_out
from vllm_doctor.rules.say import finding

# Fewer will do where the engine itself says that one process waits for another.
_OF_A_WAIT = 3
# Each is said after a minute; one may be a compiler's. An engine that has made tokens has compiled what it needs.
_WAITS = 2
_LOOK = (
    "before a restart: py-spy dump --pid of the engine and of each worker names the call in which it stands (a "
    "collective, a grammar, a kernel); nvidia-smi shows whether the GPU computes"
)


def judge(case: Case) -> Outcome:
    """Are the last lines of statistics all the same, with requests that run and no token?"""
    run = with_statistics(case)
    if isinstance(run, Unseen | NotHere):
        return run
    if (waiting := _waiting(case, run)) is not None:
        return waiting
    told = run.all("stats")[-_OF_A_WAIT:]
    needed = _OF_A_WAIT if run.waits and told and run.waits[-1].index > told[0].index else STANDS
    count = _since_an_answer(run)
    last = run.stats[-needed:]
    queue = [s.waiting for s in last]
    if len(last) < needed or not all(still(s, last[-1]) for s in last) or queue != sorted(queue):
        return Clear("in the last statistics no running request stands still")
    if run.stopped is not None or run.root is not None:
        return Clear("the service was ended")
    # a request that was given up leaves its figures behind; new ones would be served then, and these only queue
    grew = queue[-1] > queue[0]
    if count < needed:
        return Clear("clients got answers or gave up meanwhile, so the last statistics are stale")
    hits = run.all("stats")[-count:]
    return finding(
        RULE,
        title=f"{_running(last[-1].running)}, but {count} lines of statistics show no token and no change",
        detail=f"requests that come are not taken: {queue[0]} waited, then {queue[-1]}" if grew else "",
        severity=Severity.DEGRADED,
        confidence=Confidence.LIKELY if needed < STANDS or grew else Confidence.POSSIBLE,
        evidence=(case.line(hits[0].index), case.line(hits[-1].index)),
        arithmetic=(Arithmetic("lines without a token", count, "", "identical statistics in a row", run.log.source),),
        changes=ways_out(case) if needed < STANDS and case.count("tensor-parallel-size") != 1 else (),
        refute="the server answers a new short request: then the statistics are stale",
        then=_LOOK if grew else "",
    )


def _since_an_answer(run: AnalysedRun) -> int:
    """The last lines of statistics in which nothing moved, after the last answer that a client got among them."""
    hits = run.all("stats")[-lines_still(run) :] if run.stats else []
    answered = max((i for i, line in enumerate(run.lines) if _moved(line.text)), default=-1)
    return sum(hit.index > answered for hit in hits)


def _waiting(case: Case, run: AnalysedRun) -> Finding | None:
    """From 0.9.2 on no statistics come without tokens: the last ones show none, after tokens, and the engine waits."""
    last = run.all("stats")[-1].index if run.all("stats") else -1
    waits = [hit for hit in run.waits if hit.index > last]
    made = any(stats.generation for stats in run.stats[:-1])
    if len(waits) < _WAITS or not run.stalled or not made or run.stopped is not None or run.root is not None:
        return None
    if any(_moved(line.text) for line in run.lines[last:]):
        return None
    return finding(
        RULE,
        title=f"{_running(run.stalled)}, no token comes, and one process waits for another",
        severity=Severity.DEGRADED,
        confidence=Confidence.LIKELY,
        evidence=(case.line(last), case.line(waits[-1].index)),
        arithmetic=(Arithmetic("minutes of waiting", len(waits), "", "one line a minute", run.log.source),),
        changes=ways_out(case) if case.count("tensor-parallel-size") != 1 else (),
        refute="the server answers a new short request: then the statistics are stale",
    )


def _running(count: int) -> str:
    return f"{count} requests run" if count > 1 else "A request runs"


def _moved(text: str) -> bool:
    """/health and /metrics are answered without the engine."""
    return says(text, "request-went-on") and not says(text, "request-of-get")


RULE = rule("VD306", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)

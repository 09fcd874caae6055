"""VD309: requests wait although nothing runs and the KV cache has room: they wait for something else than memory."""

from vllm_doctor.records.finding import Arithmetic
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.statistics import with_statistics
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding

# Lines of statistics in a row (ten seconds each), and the use of the pool, in percent, that leaves room for anything.
_LINES, _ROOM = 4, 50.0
_NEXT = (
    "check what the waiting request needs: a grammar of structured output (vLLM compiles the grammar before "
    "the first token; `top` shows a thread of the engine at 100 %), an adapter that is still loading, or KV "
    "cache from another server; then send one request without that feature"
)


def judge(case: Case) -> Outcome:
    """Do the last statistics show requests that wait, none that runs, and an empty pool?"""
    run = with_statistics(case)
    if isinstance(run, Unseen | NotHere):
        return run
    last = run.stats[-_LINES:]
    waits = all(s.waiting > 0 and s.running == 0 and s.generation == 0 and s.prompt == 0 for s in last)
    room = all(s.kv is not None and s.kv < _ROOM for s in last)
    if len(last) < _LINES or not waits or not room:
        return Clear("no request waits while nothing runs and the KV cache has room")
    if run.root is not None or run.stopped is not None:
        return Clear("the service was ended")
    hits = run.all("stats")[-_LINES:]
    return finding(
        RULE,
        title=f"{last[-1].waiting} requests wait, though nothing runs and the KV cache has room",
        severity=Severity.DEGRADED,
        confidence=Confidence.LIKELY,
        evidence=(case.line(hits[0].index), case.line(hits[-1].index)),
        arithmetic=(Arithmetic("KV cache in use", last[-1].kv or 0.0, "%", "the last statistics", run.log.source),),
        refute="the next statistics show requests that run",
        then=_NEXT,
    )


RULE = rule("VD309", reads=frozenset({Signal.LOG}), judge=judge)

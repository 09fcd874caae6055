"""VD309: requests wait although nothing runs and the KV cache has room: they wait for something else than memory.

Or for more of it than there is at all: from 0.19 on a request starts only where its whole prompt finds room
(scheduler_reserve_full_isl), and models with several kinds of layers start with a KV cache below max_model_len.
"""

from vllm_doctor.records.finding import Arithmetic, Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.statistics import with_statistics
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, set_flag

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
    holds, length = run.number("kv-size", "tokens"), case.number("max-model-len")
    above = holds is not None and length is not None and holds < length
    return finding(
        RULE,
        title="A request waits that may need more than the whole KV cache" if above else _title(last[-1].waiting),
        severity=Severity.DEGRADED,
        confidence=Confidence.LIKELY,
        evidence=(case.line(hits[0].index), case.line(hits[-1].index)),
        arithmetic=(Arithmetic("KV cache in use", last[-1].kv or 0.0, "%", "the last statistics", run.log.source),),
        changes=(_shorter(case, int(holds)),) if above and holds is not None else (),
        refute="the next statistics show requests that run",
        then=_NEXT,
    )


def _title(waiting: int) -> str:
    return f"{waiting} requests wait, though nothing runs and the KV cache has room"


def _shorter(case: Case, holds: int) -> Change | None:
    why = f"the KV cache holds {holds:,} tokens: a longer prompt would wait for ever, and is then refused instead"
    return set_flag(case, "max-model-len", holds, Direction.LOWER, why)


RULE = rule("VD309", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)

"""VD309: requests wait although nothing runs and the KV cache has room: they wait for something else than memory.

Or though some run, fewer than a step may have: then an adapter, a grammar or another server's cache is awaited.
Or for more of it than there is at all: from 0.19 on a request starts only where its whole prompt finds room
(scheduler_reserve_full_isl), and models with several kinds of layers start with a KV cache below max_model_len.
"""

from collections.abc import Sequence

from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.stats import Stats
from vllm_doctor.records.finding import Arithmetic, Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.statistics import with_statistics
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, set_flag

# Lines of statistics in a row (ten seconds each), and the use of the pool, in percent, that leaves room for anything.
_LINES, _ROOM = 4, 50.0
# Fewer where the log says that a request may be larger than the whole pool.
_LINES_ABOVE = 2
# The same where some run: more lines, since a queue of a second is none, and a pool that is nearly empty. No release
# gives a step fewer seats than this where the launch names no number (EngineArgs.max_num_seqs).
_LONG, _EMPTY, _FEWEST = 5, 20.0, 64
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
    holds, length = run.number("kv-size", "tokens"), _longest(case, run)
    above = holds is not None and length is not None and holds < length
    lines = _LINES_ABOVE if above else _LINES
    last = run.stats[-lines:]
    waits = all(s.waiting > 0 and s.running == 0 and s.generation == 0 and s.prompt == 0 for s in last)
    room = all(s.kv is not None and s.kv < _ROOM for s in last)
    beside = waits or _beside_few(case, run.stats[-_LONG:])
    if len(last) < lines or not beside or not room:
        return Clear("no request waits while few or none run and the KV cache has room")
    if run.root is not None or run.stopped is not None:
        return Clear("the service was ended")
    if not waits:
        return _held_back(case, run)
    hits = run.all("stats")[-lines:]
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


def _longest(case: Case, run: AnalysedRun) -> float | None:
    """The tokens that one request may have: of the launch, else of the line on how many such requests fit."""
    return case.number("max-model-len") or run.number("concurrency", "length")


def _beside_few(case: Case, last: Sequence[Stats]) -> bool:
    """Do the same few requests decode, below the limit of a step, and none of those that wait joins them?"""
    limit = case.number("max-num-seqs")
    same = len({s.running for s in last}) == 1 and all(s.waiting > 0 and s.generation > 0 for s in last)
    few = len(last) == _LONG and 0 < last[-1].running < (limit if limit is not None else _FEWEST)
    free = all(s.kv is not None and s.kv < _EMPTY and not s.preemptions for s in last)
    return same and few and free and all(s.prompt == 0 for s in last) and case.shows_launch


def _held_back(case: Case, run: AnalysedRun) -> Finding:
    """A step takes every waiting request for which it has a seat, tokens and room, and leaves out one whose adapter
    has no slot, whose grammar is not ready, or whose KV cache has not come (core/scheduler.py, v1/core/sched)."""
    last = run.stats[-1]
    hits = run.all("stats")[-_LONG:]
    slots = case.number("max-loras") or 1
    why = (
        "a step serves so many adapters at once: requests for another one wait until those of the first are done; each "
        "slot takes memory of the size of an adapter"
    )
    adapters = set_flag(case, "max-loras", int(slots) * 4, Direction.RAISE, why)
    return finding(
        RULE,
        title=f"{last.waiting} requests wait beside {last.running} that run, and the KV cache has room",
        severity=Severity.DEGRADED,
        confidence=Confidence.LIKELY,
        evidence=(case.line(hits[0].index), case.line(hits[-1].index)),
        arithmetic=(Arithmetic("KV cache in use", last.kv or 0.0, "%", "the last statistics", run.log.source),),
        changes=(adapters,) if case.has_flag("enable-lora") is not None and case.flag("enable-lora") else (),
        refute="all requests that wait came within the last seconds",
        then=_NEXT,
    )


def _title(waiting: int) -> str:
    return f"{waiting} requests wait, though nothing runs and the KV cache has room"


def _shorter(case: Case, holds: int) -> Change | None:
    why = f"the KV cache holds {holds:,} tokens: a longer prompt would wait for ever, and is then refused instead"
    return set_flag(case, "max-model-len", holds, Direction.LOWER, why)


RULE = rule("VD309", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)

"""VD302: the pool is full, requests wait, and nothing is generated any more."""

from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.statistics import STANDS, lines_still, with_statistics
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, set_flag

_LINES = 3
_FULL = 97.0


def judge(case: Case) -> Outcome:
    """Do the last lines of statistics show a full pool, a queue and no token?"""
    run = with_statistics(case)
    if isinstance(run, Unseen | NotHere):
        return run
    last = run.stats[-_LINES:]
    stuck = [
        s
        for s in last
        if s.generation == 0 and s.prompt == 0 and (s.kv or 0) >= _FULL and s.waiting + s.swapped + s.running > 0
    ]
    if len(stuck) < _LINES or run.stopped is not None:
        return Clear("the last statistics do not show a full KV cache without progress")
    if last[-1].running > 1 and lines_still(run) >= STANDS:
        return Clear("nothing that runs has changed for five lines: a scheduler that works would take blocks from it")
    hits = run.all("stats")[-_LINES:]
    # a scheduler that finds no block takes one from another request: where nothing changes at all, it may not run
    frozen = len({(s.running, s.swapped, s.kv) for s in stuck}) == 1
    length = case.number("max-model-len")
    return finding(
        RULE,
        severity=Severity.DEGRADED,
        confidence=Confidence.LIKELY if frozen else Confidence.CONFIRMED,
        evidence=tuple(case.line(h.index) for h in hits),
        changes=(
            set_flag(
                case,
                "max-model-len",
                int(length) // 2,
                Direction.LOWER,
                "limits one request to what the KV cache holds",
            )
            if length
            else None,
            set_flag(
                case,
                "max-num-seqs",
                max(1, (last[-1].running or 2) // 2),
                Direction.LOWER,
                "fewer requests then use the KV cache at once",
            ),
        ),
        refute="the server generates tokens again without a restart"
        + (", or py-spy dump of the engine stands in another call than the scheduler's" if frozen else ""),
    )


RULE = rule("VD302", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)

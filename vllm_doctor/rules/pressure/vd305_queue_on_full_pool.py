"""VD305: the KV cache is full and requests queue up for it; nothing is thrown out, nothing fails, everybody waits."""

from vllm_doctor.knowledge.serving import (
    GENERATED,
    KV_USE,
    PREEMPTIONS,
    PROMPT_TOKENS,
    RUNNING,
    WAITING,
    highest,
    rate,
    total,
)
from vllm_doctor.records.finding import Arithmetic, Change, Evidence
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.statistics import STANDS, lines_still
from vllm_doctor.rules.outcome import Clear, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.step import sequences
from vllm_doctor.rules.remedies.utilization import raise_utilization
from vllm_doctor.rules.remedies.weights import more_gpus
from vllm_doctor.rules.say import finding, set_flag

_FULL = 0.95
_MORE_GIB = 1.0
# More waiting than running means that a new request waits as long as one takes.
_QUEUE = 1.0
# Lines of statistics at the end of a log, where no metrics were given. One that somebody quotes alone may be a moment.
_LINES = 2
_QUEUED = "waiting for each that runs"


def judge(case: Case) -> Outcome:
    """Was the pool full and the queue long in both scrapes?"""
    metrics = case.metrics
    if metrics is None:
        return _of_the_log(case)
    if len(metrics.scrapes) < 2:
        return Clear("one scrape does not show whether the queue lasts")
    usage = [highest(s, KV_USE) for s in metrics.scrapes]
    waiting = [total(s, WAITING) or 0.0 for s in metrics.scrapes]
    running = [total(s, RUNNING) or 0.0 for s in metrics.scrapes]
    decodes = bool(rate(metrics, GENERATED)) and not rate(metrics, PROMPT_TOKENS)
    full = all(u is not None and _is_full(case, u, r, decodes=decodes) for u, r in zip(usage, running, strict=True))
    long = all(r > 0 and w > _QUEUE * r for w, r in zip(waiting, running, strict=True))
    if not full or not long or rate(metrics, PREEMPTIONS):
        return Clear("the KV cache is not full, the queue is short, or requests are preempted")
    shown = Evidence(metrics.url, "vllm:num_requests_waiting", f"{waiting[-1]:.0f} wait, {running[-1]:.0f} run")
    use = Arithmetic("KV cache in use", _percent(usage[-1] or 0.0), "%", "vllm:kv_cache_usage_perc", metrics.url)
    queue = Arithmetic(_QUEUED, round(waiting[-1] / running[-1], 1), "", "waiting / running", metrics.url)
    return _found(case, (shown,), (use, queue))


def _of_the_log(case: Case) -> Outcome:
    """Do the statistics end with a full pool and a queue that does not get shorter?

    A load that was sent all at once is a queue as well, but one that is worked off.
    """
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.METRICS}))
    last = run.stats[-_LINES:]
    use = [s.kv / 100 for s in last if s.kv is not None]
    decodes = all(s.generation > 0 and s.prompt == 0 for s in last)
    full = use and all(s.kv is not None and _is_full(case, s.kv / 100, s.running, decodes=decodes) for s in last)
    long = all(s.waiting > _QUEUE * s.running > 0 for s in last) and last[-1:] and last[-1].waiting >= last[0].waiting
    if not full or not long or run.is_script:
        return Clear("the last statistics do not show a full KV cache with a lasting queue")
    if lines_still(run) >= STANDS:
        return Clear("no token is made: the engine's steps stand still, and the queue with them")
    if run.stopped is not None or run.root is not None:
        return Clear("the queue ended because the service ended")
    source, ratio = run.log.source, last[-1].waiting / last[-1].running
    return _found(
        case,
        tuple(case.line(h.index) for h in run.all("stats")[-_LINES:]),
        (
            Arithmetic("KV cache in use", _percent(use[-1]), "%", "KV cache usage", source),
            Arithmetic(_QUEUED, round(ratio, 1), "", "Waiting / Running", source),
        ),
        Confidence.LIKELY if len(last) == _LINES else Confidence.POSSIBLE,
    )


def _is_full(case: Case, use: float, running: float, *, decodes: bool) -> bool:
    """Is there no room for the next request?

    vLLM takes the first of the queue as soon as its blocks are free, a sequence is, and the step has tokens left
    (v1/core/sched/scheduler.py). Where fewer run than may and every one of them decodes, so that nothing but blocks can
    be lacking, the pool is full for the next one: what is left is less than what one of those that run holds.
    """
    most, _ = sequences(case)
    return use >= _FULL or (decodes and 0 < running < most and use * (1 + 1 / running) > 1)


def _percent(share: float) -> float:
    return round(share * 100, 1)


def _found(
    case: Case,
    evidence: tuple[Evidence, ...],
    sums: tuple[Arithmetic, ...],
    confidence: Confidence = Confidence.LIKELY,
) -> Outcome:
    """What is said and offered, whoever told of the queue."""
    used = sums[0].value
    return finding(
        RULE,
        title="" if used >= 100 * _FULL else f"The KV cache, {used:g} % in use, has no room for the next request",
        severity=Severity.DEGRADED,
        confidence=confidence,
        evidence=evidence,
        arithmetic=sums,
        changes=(_smaller(case), _larger(case), more_gpus(case) if case.gpus is not None else None),
        refute="the queue is empty a minute later under the same load",
    )


def _smaller(case: Case) -> Change | None:
    if case.effective("kv-cache-dtype") not in {None, "auto", "bfloat16", "float16"}:
        return None
    why = (
        "one byte per element: the same KV cache holds twice the tokens, so twice the requests; "
        "check the quality of answers"
    )
    return set_flag(case, "kv-cache-dtype", "fp8", Direction.SET, why)


def _larger(case: Case) -> Change | None:
    """A GiB more of the card for the pool, as far as the fraction goes; what is free is known on the host alone."""
    return raise_utilization(case, _MORE_GIB)


RULE = rule(
    "VD305", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS, Signal.METRICS}), judge=judge
)

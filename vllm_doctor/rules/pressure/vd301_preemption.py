"""VD301: requests are preempted again and again, because the KV cache is too small for so many of them."""

import msgspec

from vllm_doctor.knowledge.serving import FINISHED, KV_USE, PREEMPTIONS, RUNNING, WAITING, highest, rate, total
from vllm_doctor.log.clock import seconds_between
from vllm_doctor.records.finding import Arithmetic, Change, Evidence
from vllm_doctor.records.host import Scrape
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.outcome import Clear, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.step import sequences
from vllm_doctor.rules.remedies.utilization import raise_utilization
from vllm_doctor.rules.remedies.weights import more_gpus
from vllm_doctor.rules.say import finding, set_flag

# V0 writes the first and every fiftieth preemption; the second line is the fifty-first.
_STORM_V0 = 51
# Lines of a message that is quoted alone, broken or whole.
_QUOTED = 4
# A preemption in ten seconds is one request in the time of one line of statistics.
_RATE = 0.1
_LINES = 3
# Fewer preemptions than this, or a smaller share of the requests, is an ordinary busy hour.
_COUNTED = 10
_SHARE = 0.1
_FULL = 90.0
_MORE_GIB = 1.0
# Half of the card, that nothing uses.
_SMALL = 0.5


class _Storm(msgspec.Struct, frozen=True):
    evidence: tuple[Evidence, ...]
    sums: tuple[Arithmetic, ...]
    running: float | None
    confidence: Confidence


def judge(case: Case) -> Outcome:
    """Do preemptions go on while the pool is full?"""
    run, metrics = case.run, case.metrics
    if run is None and metrics is None:
        return Unseen(frozenset({Signal.LOG, Signal.METRICS}))
    storm = _of_metrics(case) or _since_start(case) or _of_log_v0(case) or _of_log_v1(case) or _quoted(case)
    if storm is None:
        return Clear("the log shows no series of preemptions")
    return finding(
        RULE,
        severity=Severity.DEGRADED,
        confidence=storm.confidence,
        evidence=storm.evidence,
        arithmetic=storm.sums,
        changes=(_fewer(case, storm), *_more_memory(case), _larger_pool(case), _split(case)),
        refute="the counter vllm:num_preemptions_total stands still over a minute of the same load",
    )


def _of_metrics(case: Case) -> _Storm | None:
    metrics = case.metrics
    if metrics is None:
        return None
    each, last = rate(metrics, PREEMPTIONS), metrics.scrapes[-1]
    usage = highest(last, KV_USE)
    if len(metrics.scrapes) == 1:
        return _of_one_scrape(metrics.url, last, usage)
    if each is None or each < _RATE or (usage is not None and usage * 100 < _FULL and not total(last, WAITING)):
        return None
    sums = [
        Arithmetic("preemptions", round(each, 2), "a second", "vllm:num_preemptions_total, two scrapes", metrics.url)
    ]
    if usage is not None:
        sums.append(Arithmetic("KV cache in use", round(usage * 100, 1), "%", "vllm:kv_cache_usage_perc", metrics.url))
    seen = Evidence(metrics.url, "vllm:num_preemptions_total", f"{each:.2f} a second")
    return _Storm((seen,), tuple(sums), total(last, RUNNING), confidence=Confidence.CONFIRMED)


def _of_one_scrape(url: str, last: Scrape, usage: float | None) -> _Storm | None:
    """One scrape has no rate: many preemptions since the start, a full pool and a queue make it likely."""
    count = total(last, PREEMPTIONS)
    if count is None or count < _STORM_V0 or usage is None or usage * 100 < _FULL or not total(last, WAITING):
        return None
    sums = (
        Arithmetic("preemptions since the start", count, "", "vllm:num_preemptions_total", url),
        Arithmetic("KV cache in use", round(usage * 100, 1), "%", "vllm:kv_cache_usage_perc", url),
    )
    seen = Evidence(url, "vllm:num_preemptions_total", f"{count:.0f} since the start")
    return _Storm((seen,), sums, total(last, RUNNING), confidence=Confidence.LIKELY)


def _since_start(case: Case) -> _Storm | None:
    """vLLM counts a preemption when the request runs again, so the counter moves in jumps that two scrapes may miss:
    a pool that is full now and threw out one request in ten since the start is the same storm, less surely."""
    metrics = case.metrics
    if metrics is None:
        return None
    last = metrics.scrapes[-1]
    count, finished, usage = total(last, PREEMPTIONS), total(last, FINISHED), highest(last, KV_USE)
    if count is None or usage is None or count < _COUNTED or usage * 100 < _FULL:
        return None
    if finished is not None and count < _SHARE * finished:
        return None
    sums = (
        Arithmetic("preemptions since the start", count, "", "vllm:num_preemptions_total", metrics.url),
        Arithmetic("requests finished", finished or 0, "", "vllm:request_success_total", metrics.url),
        Arithmetic("KV cache in use", round(usage * 100, 1), "%", "vllm:kv_cache_usage_perc", metrics.url),
    )
    seen = Evidence(
        metrics.url, "vllm:num_preemptions_total", f"{count:.0f} since the start, with the KV cache {usage:.0%} full"
    )
    return _Storm((seen,), sums, total(last, RUNNING), confidence=Confidence.LIKELY)


def _of_log_v0(case: Case) -> _Storm | None:
    run = case.run
    hits = run.all("preempted") if run is not None else ()
    counts = [int(h.fields["count"]) for h in hits if "count" in h.fields]
    if not counts or (max(counts) < _STORM_V0 and not _alone(case)):
        return None
    first, last = (case.line(h.index).observed_at for h in (hits[0], hits[-1]))
    passed = seconds_between(first, last)
    if passed and (max(counts) - min(counts)) / passed < _RATE:
        return None  # an hour's batch, say: the pool was full now and then
    sums = (Arithmetic("preemptions in this series", max(counts), "", "total_num_cumulative_preemption", "the log"),)
    confidence = Confidence.CONFIRMED if max(counts) >= _STORM_V0 else Confidence.LIKELY
    return _Storm(tuple(case.line(h.index) for h in hits[-2:]), sums, _running(case), confidence=confidence)


def _quoted(case: Case) -> _Storm | None:
    """Somebody asks about this line alone: it is what they see, and how often it comes they do not say.
    Where a launch was given, the whole log can be."""
    run = case.run
    told = [line for line in run.lines if line.text.strip()] if run is not None else []
    if run is None or case.launched or len(told) > _QUOTED or run.miles or not run.all("preempted"):
        return None
    hit = run.all("preempted")[-1]
    return _Storm((case.line(hit.index),), (), None, confidence=Confidence.POSSIBLE)


def _alone(case: Case) -> bool:
    """Is it all that was given of the log, with a fraction far below the default? Then the rest of the card is idle."""
    run = case.run
    return run is not None and not run.miles and case.launched and case.utilization[0] <= _SMALL


def _of_log_v1(case: Case) -> _Storm | None:
    run = case.run
    if run is None:
        return None
    hits = [(h, s) for h, s in zip(run.all("stats"), run.stats, strict=False) if s.preemptions and (s.kv or 0) >= _FULL]
    if len(hits) < _LINES:
        return None
    count = sum(s.preemptions or 0 for _, s in hits)
    sums = (
        Arithmetic(
            "preemptions", count, "", f"the Preemptions field of {len(hits)} lines at {_FULL:.0f} % and more", "the log"
        ),
    )
    return _Storm(tuple(case.line(h.index) for h, _ in hits[-2:]), sums, _running(case), confidence=Confidence.LIKELY)


def _running(case: Case) -> float | None:
    run = case.run
    busy = [s.running for s in run.stats if (s.kv or 0) >= _FULL] if run is not None else []
    return sum(busy) / len(busy) if busy else None


def _fewer(case: Case, storm: _Storm) -> Change | None:
    now = sequences(case)[0]
    if not storm.running or storm.running >= now * 0.9:
        to = now // 2
        why = f"half of {now}: requests then wait in the queue, and vLLM preempts none"
    else:
        to = max(1, int(storm.running * 0.9))
        ran = f"{storm.running:.0f} requests ran when the KV cache was full"
        why = f"{ran}; a tenth fewer leaves each request room to grow"
    return set_flag(case, "max-num-seqs", to, Direction.LOWER, why) if 0 < to < now else None


def _more_memory(case: Case) -> tuple[Change | None, ...]:
    if case.effective("kv-cache-dtype") not in {None, "auto", "bfloat16", "float16"}:
        return ()
    return (
        set_flag(
            case,
            "kv-cache-dtype",
            "fp8",
            Direction.SET,
            "one byte per element: the same KV cache holds twice the tokens; check the quality of answers",
        ),
    )


def _larger_pool(case: Case) -> Change | None:
    """One GiB more for the pool, as far as the fraction can go; what is free is known on the host alone."""
    return raise_utilization(case, _MORE_GIB)


def _split(case: Case) -> Change | None:
    """Weights split over more GPUs leave each more room; only where more of them are known to be here."""
    return more_gpus(case) if case.gpus is not None else None


RULE = rule(
    "VD301", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS, Signal.METRICS}), judge=judge
)

"""VD402: KV offload stores blocks and never finds one again."""

from vllm_doctor.knowledge.serving import EXTERNAL_HITS, EXTERNAL_QUERIES, PREFIX_HITS, PREFIX_QUERIES
from vllm_doctor.records.finding import Arithmetic, Evidence
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.prefix_queries import ENOUGH, counted_queries
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, upgrade


def judge(case: Case) -> Outcome:
    """Is the external cache asked often, without a hit, while the local one has some?"""
    metrics = case.metrics
    if metrics is None:
        return Unseen(frozenset({Signal.METRICS}))
    got = counted_queries(metrics, EXTERNAL_QUERIES, EXTERNAL_HITS)
    if got is None or got[0] == 0:
        return NotHere("no external cache is asked")
    queries, hits = got
    local = counted_queries(metrics, PREFIX_QUERIES, PREFIX_HITS)
    if queries < ENOUGH or hits > 0:
        return Clear(f"{hits:.0f} hits of {queries:.0f} queried tokens")
    if local is not None and local[0] > 0 and local[1] == 0:
        return Clear("the local cache has no hit either: the prompts share nothing")
    return finding(
        RULE,
        severity=Severity.DEGRADED,
        confidence=Confidence.LIKELY,
        evidence=(
            Evidence(
                metrics.url, "vllm:external_prefix_cache_hits", f"{hits:.0f} hits of {queries:.0f} queried tokens"
            ),
        ),
        arithmetic=(Arithmetic("external hit rate", 0.0, "%", f"0 / {queries:.0f} tokens", metrics.url),),
        changes=(upgrade(case, "look-ups that never match are a defect of the connector in this release"),),
        refute="the external hits rise when a prompt that the GPU evicted is sent again",
    )


RULE = rule("VD402", reads=frozenset({Signal.LOG, Signal.VERSION, Signal.METRICS}), judge=judge)

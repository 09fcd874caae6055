"""VD401: the prefix cache is asked often enough and never has anything."""

from vllm_doctor.knowledge.serving import PREFIX_HITS, PREFIX_QUERIES, cache_config, count_of_label
from vllm_doctor.records.finding import Arithmetic, Change, Evidence
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Applicability, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.prefix_queries import ENOUGH, counted_queries
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, set_flag

_NEVER = 0.001
# From this block size on, ordinary shared prefixes end before the first whole block does.
_LARGE_BLOCK = 256


def judge(case: Case) -> Outcome:
    """Were there enough queries to mean something, and no hits?"""
    metrics = case.metrics
    if metrics is None:
        return Unseen(frozenset({Signal.METRICS}))
    if case.effective("enable-prefix-caching") is False:
        return NotHere("prefix caching is off")
    got = counted_queries(metrics, PREFIX_QUERIES, PREFIX_HITS)
    if got is None:
        return NotHere("this server exports no prefix cache counters")
    queries, hits = got
    if queries < ENOUGH:
        return Clear(f"{queries:.0f} queried tokens are too few to judge")
    if hits / queries >= _NEVER:
        return Clear(f"{hits / queries:.1%} of {queries:.0f} queried tokens were hits")
    block = count_of_label(cache_config(metrics.scrapes[-1]).get("block_size")) or 0
    return finding(
        RULE,
        severity=Severity.ADVICE,
        evidence=(Evidence(metrics.url, "vllm:prefix_cache_hits", f"{hits:.0f} hits of {queries:.0f} queried tokens"),),
        arithmetic=(
            Arithmetic(
                "hit rate", round(hits / queries * 100, 2), "%", f"{hits:.0f} / {queries:.0f} tokens", metrics.url
            ),
            *(
                (
                    Arithmetic(
                        "smallest prefix that can hit", block, "tokens", "one whole block", "vllm:cache_config_info"
                    ),
                )
                if block
                else ()
            ),
        ),
        changes=(_off(case, block),),
        refute="the hits rise when the same prompt is sent twice in a row",
    )


def _off(case: Case, block: int) -> Change | None:
    if block < _LARGE_BLOCK:
        return None  # it costs nothing: unused blocks are evicted before anything else is refused
    return set_flag(
        case,
        "enable-prefix-caching",
        False,
        Direction.REMOVE,
        f"blocks of {block} tokens never hit here, and the cache keeps whole blocks for them",
        applicability=Applicability.NEEDS_REVIEW,
    )


RULE = rule("VD401", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.METRICS}), judge=judge)

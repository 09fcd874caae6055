"""What two scrapes of /metrics say of serving, under the names that each version gives its metrics.

A counter that went down was reset by a restart between the scrapes: there is no rate then, neither 0 nor negative.
"""

import math
import re
from collections.abc import Iterator

import msgspec

from vllm_doctor.records.host import Metrics, Scrape

# Newest name first; the older ones are of V1 up to 0.11 and of V0 (history/metrics.json has the releases). Counters
# also stand here without the `_total` that the client library adds, as some collectors take it away again.
KV_USE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
RUNNING = ("vllm:num_requests_running",)
WAITING = ("vllm:num_requests_waiting",)
SWAPPED = ("vllm:num_requests_swapped",)
PREEMPTIONS = ("vllm:num_preemptions_total", "vllm:num_preemptions")
FINISHED = ("vllm:request_success_total", "vllm:request_success")
PROMPT_TOKENS = ("vllm:prompt_tokens_total", "vllm:prompt_tokens")
GENERATED = ("vllm:generation_tokens_total", "vllm:generation_tokens")
SLEEP = ("vllm:engine_sleep_state",)
TO_FIRST = "vllm:time_to_first_token_seconds"
BETWEEN = ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
PREFIX_QUERIES = (
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_queries",
    "vllm:gpu_prefix_cache_queries_total",
    "vllm:gpu_prefix_cache_queries",
)
PREFIX_HITS = (
    "vllm:prefix_cache_hits_total",
    "vllm:prefix_cache_hits",
    "vllm:gpu_prefix_cache_hits_total",
    "vllm:gpu_prefix_cache_hits",
)
EXTERNAL_QUERIES = ("vllm:external_prefix_cache_queries_total", "vllm:external_prefix_cache_queries")
EXTERNAL_HITS = ("vllm:external_prefix_cache_hits_total", "vllm:external_prefix_cache_hits")
PROMPT_LENGTHS = "vllm:request_prompt_tokens"
OUTPUT_LENGTHS = "vllm:request_generation_tokens"
CACHE_CONFIG = "vllm:cache_config_info"


class Histogram(msgspec.Struct, frozen=True):
    """Cumulative buckets (upper bound, count), the number of observations and their sum."""

    buckets: tuple[tuple[float, float], ...]
    count: float
    total: float

    @property
    def mean(self) -> float | None:
        """The mean observation; None before the first."""
        return self.total / self.count if self.count else None


def gauges(scrape: Scrape, names: tuple[str, ...]) -> tuple[float, ...]:
    """The values of a gauge, one an engine (data-parallel rank), by the first of `names` that is there."""
    for name in names:
        found = tuple(s.value for s in scrape.samples if _same(s.name, name))
        if found:
            return found
    return ()


def total(scrape: Scrape, names: tuple[str, ...]) -> float | None:
    """A gauge or counter summed over engines; None where this server does not tell it."""
    found = gauges(scrape, names)
    return sum(found) if found else None


def highest(scrape: Scrape, names: tuple[str, ...]) -> float | None:
    """The highest value over engines: one full KV cache is not helped by an empty one beside it."""
    return max(gauges(scrape, names), default=None)


def increase(metrics: Metrics, names: tuple[str, ...]) -> float | None:
    """By how much a counter grew between the two scrapes; None with one scrape, a missing counter or a reset."""
    if len(metrics.scrapes) < 2:
        return None
    before, after = (gauges(scrape, names) for scrape in (metrics.scrapes[0], metrics.scrapes[-1]))
    if not before or len(before) != len(after) or any(b > a for b, a in zip(before, after, strict=True)):
        return None
    return sum(after) - sum(before)


def rate(metrics: Metrics, names: tuple[str, ...]) -> float | None:
    """The counter's growth a second; None for the reasons of `increase`, or where no time passed."""
    grown = increase(metrics, names)
    if grown is None:
        return None
    seconds = metrics.scrapes[-1].at - metrics.scrapes[0].at
    return grown / seconds if seconds > 0 else None


def histogram(scrape: Scrape, name: str) -> Histogram | None:
    """A histogram summed over engines; None where it is not told."""
    buckets: dict[float, float] = {}
    count = total_ = 0.0
    for sample in scrape.samples:
        if _same(sample.name, f"{name}_bucket"):
            bound = _bound(sample.labels.get("le", "+Inf"))
            if bound is not None:
                buckets[bound] = buckets.get(bound, 0.0) + sample.value
        elif _same(sample.name, f"{name}_count"):
            count += sample.value
        elif _same(sample.name, f"{name}_sum"):
            total_ += sample.value
    return Histogram(tuple(sorted(buckets.items())), count, total_) if buckets else None


def _bound(text: str) -> float | None:
    """A bucket's upper bound; None for what is no length."""
    if text in {"+Inf", "inf"}:
        return math.inf
    return float(text) if re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?(e\+?[0-9]{1,2})?", text) else None


def cache_config(scrape: Scrape) -> dict[str, str]:
    """The labels of `vllm:cache_config_info`: block_size, num_gpu_blocks and what else this version puts there."""
    return next((dict(s.labels) for s in scrape.samples if _same(s.name, CACHE_CONFIG)), {})


def count_of_label(text: str | None) -> int | None:
    """A label's value as a count above 0; None for `None`, `auto` and what is no count."""
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,12}", text) and int(text) > 0 else None


def engines(scrape: Scrape) -> Iterator[str]:
    """The engines (data-parallel ranks) that a scrape tells of."""
    yield from sorted({s.labels["engine"] for s in scrape.samples if "engine" in s.labels})


def _same(found: str, name: str) -> bool:
    """Some collectors write an underscore for the colon."""
    return found == name or found == name.replace(":", "_", 1)

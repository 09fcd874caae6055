"""Hits and queries of the prefix cache, in tokens, by the names of every version."""

from vllm_doctor.records.host import Metrics
from vllm_doctor.rules.pressure._load import total

QUERIES = (
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_queries",
    "vllm:gpu_prefix_cache_queries_total",
    "vllm:gpu_prefix_cache_queries",
)
HITS = (
    "vllm:prefix_cache_hits_total",
    "vllm:prefix_cache_hits",
    "vllm:gpu_prefix_cache_hits_total",
    "vllm:gpu_prefix_cache_hits",
)
EXTERNAL_QUERIES = ("vllm:external_prefix_cache_queries_total", "vllm:external_prefix_cache_queries")
EXTERNAL_HITS = ("vllm:external_prefix_cache_hits_total", "vllm:external_prefix_cache_hits")

# Fewer queried tokens than this say nothing about a hit rate: some dozens of prompts.
ENOUGH = 200_000.0


def counted(metrics: Metrics, queries: tuple[str, ...], hits: tuple[str, ...]) -> tuple[float, float] | None:
    """(queries, hits) of the last scrape; None where either is not exported."""
    asked, found = total(metrics.scrapes[-1], queries), total(metrics.scrapes[-1], hits)
    return (asked, found) if asked is not None and found is not None else None

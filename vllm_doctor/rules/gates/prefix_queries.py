"""Enough hits and queries of a prefix cache to mean something, in tokens."""

from vllm_doctor.knowledge.serving import total
from vllm_doctor.records.host import Metrics

# Fewer queried tokens than this say nothing about a hit rate: some dozens of prompts.
ENOUGH = 200_000.0


def counted_queries(metrics: Metrics, queries: tuple[str, ...], hits: tuple[str, ...]) -> tuple[float, float] | None:
    """(queries, hits) of the last scrape; None where either is not exported."""
    asked, found = total(metrics.scrapes[-1], queries), total(metrics.scrapes[-1], hits)
    return (asked, found) if asked is not None and found is not None else None

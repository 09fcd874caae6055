"""When preemptions are a storm: their rate, or their number, and how full the KV cache is, from both sides."""

import pytest

from vllm_doctor.records.finding import Finding
from vllm_doctor.records.host import Metrics, Sample, Scrape
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Confidence
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.engine import ask
from vllm_doctor.rules.registry import loaded

SURE, LIKELY = Confidence.CONFIRMED, Confidence.LIKELY


def found(counts: tuple[float, ...], used: float | None, waiting: int, finished: int | None = None) -> Finding | None:
    """The answer; None where there is no storm. The scrapes are 10 s apart."""

    def page(count: float) -> tuple[Sample, ...]:
        given = {"num_preemptions_total": count, "kv_cache_usage_perc": used, "num_requests_waiting": waiting}
        given["request_success_total"] = finished
        return tuple(Sample(f"vllm:{name}", {}, float(told)) for name, told in given.items() if told is not None)

    scrapes = tuple(Scrape(at * 10.0, page(count)) for at, count in enumerate(counts))
    told = ask(loaded("VD301"), Case(Snapshot("2026-03-14T09:00:00Z", metrics=Known(Metrics("url", scrapes), "url"))))
    return told if isinstance(told, Finding) else None


def storm(counts: tuple[float, ...], used: float | None, waiting: int, finished: int | None = None) -> object:
    """How sure the answer is."""
    told = found(counts, used, waiting, finished)
    return told.confidence if told is not None else None


@pytest.mark.parametrize(
    ("grown", "used", "waiting", "answer"),
    [
        (1.0, 0.90, 0, SURE),  # one in ten seconds
        (0.9, 0.90, 0, None),
        (1.0, 0.899, 0, None),  # room, and nobody waits
        (1.0, 0.899, 1, SURE),
        (1.0, None, 0, SURE),  # nobody says how full it is
    ],
)
def test_a_rate_of_preemptions_counts_where_the_pool_is_full_or_requests_wait(
    grown: float, used: float | None, waiting: int, answer: Confidence | None
) -> None:
    assert storm((0, grown), used, waiting) == answer


@pytest.mark.parametrize(
    ("count", "used", "finished", "answer"),
    [
        (10, 0.90, None, LIKELY),
        (9, 0.90, None, None),
        (10, 0.899, None, None),
        (10, None, None, None),
        (10, 0.90, 100, LIKELY),  # one request in ten
        (10, 0.90, 101, None),
        (100, 0.90, 1001, None),
    ],
)
def test_a_counter_that_stands_still_counts_where_the_pool_is_full_and_one_request_in_ten_was_thrown_out(
    count: int, used: float | None, finished: int | None, answer: Confidence | None
) -> None:
    assert storm((count, count), used, 1, finished) == answer


@pytest.mark.parametrize(
    ("count", "used", "waiting", "answer"),
    [(51, 0.90, 1, LIKELY), (50, 0.90, 1, None), (51, 0.899, 1, None), (51, 0.90, 0, None), (51, None, 1, None)],
)
def test_one_scrape_needs_many_preemptions_a_full_pool_and_a_queue(
    count: int, used: float | None, waiting: int, answer: Confidence | None
) -> None:
    assert storm((count,), used, waiting, 10_000) == answer


@pytest.mark.parametrize(
    ("counts", "finished", "figures", "seen"),
    [
        ((0, 12.34), None, {"preemptions": 1.23, "KV cache in use": 95.7}, "1.23 a second"),
        ((60, 60), 500, {"preemptions since the start": 60, "requests finished": 500, "KV cache in use": 95.7}, None),
        ((60,), 9000, {"preemptions since the start": 60, "KV cache in use": 95.7}, "60 since the start"),
    ],
)
def test_the_figures_of_a_storm_are_those_of_the_page(
    counts: tuple[float, ...], finished: int | None, figures: dict[str, float], seen: str | None
) -> None:
    told = found(counts, 0.9567, 3, finished)
    assert told is not None
    assert {one.name: one.value for one in told.arithmetic} == figures
    assert (told.evidence[0].source, told.evidence[0].locator) == ("url", "vllm:num_preemptions_total")
    assert told.evidence[0].excerpt == (seen or "60 since the start, with the KV cache 96% full")

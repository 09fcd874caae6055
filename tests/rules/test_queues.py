"""When a queue stands before a full KV cache: how full, how long and in which scrapes, from both sides."""

import pytest

from vllm_doctor.launch.command import parse_line
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.host import Metrics, Sample, Scrape
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.engine import ask
from vllm_doctor.rules.registry import loaded


def found(*pages: tuple[float, int, int], generated: int = 0, prompts: int = 0) -> Finding | None:
    """The answer of VD305 to pages of (use, waiting, running), 10 s apart, with 16 sequences allowed."""
    scrapes = tuple(
        Scrape(
            at * 10.0,
            (
                Sample("vllm:kv_cache_usage_perc", {}, use),
                Sample("vllm:num_requests_waiting", {}, waiting),
                Sample("vllm:num_requests_running", {}, running),
                Sample("vllm:generation_tokens_total", {}, at * generated),
                Sample("vllm:prompt_tokens_total", {}, at * prompts),
            ),
        )
        for at, (use, waiting, running) in enumerate(pages)
    )
    launch = Known(parse_line("vllm serve m --max-num-seqs 16"), "given")
    case = Case(Snapshot("2026-03-14T09:00:00Z", launch=launch, metrics=Known(Metrics("url", scrapes), "url")))
    told = ask(loaded("VD305"), case)
    return told if isinstance(told, Finding) else None


@pytest.mark.parametrize(
    ("pages", "stands"),
    [
        (((0.95, 9, 8), (0.95, 9, 8)), True),
        (((0.95, 9, 8),), False),  # one scrape does not show whether it lasts
        (((0.949, 9, 8), (0.95, 9, 8)), False),
        (((0.95, 9, 8), (0.949, 9, 8)), False),
        (((0.95, 8, 8), (0.95, 9, 8)), False),  # no more wait than run
        (((0.95, 9, 8), (0.95, 8, 8)), False),
        (((0.95, 9, 0), (0.95, 9, 8)), False),  # nothing runs: another fault
    ],
)
def test_a_queue_is_longer_than_what_runs_in_each_scrape(
    pages: tuple[tuple[float, int, int], ...], *, stands: bool
) -> None:
    assert (found(*pages) is not None) is stands


@pytest.mark.parametrize(
    ("use", "running", "generated", "prompts", "stands"),
    [
        (0.85, 4, 100, 0, True),  # what is left is less than one of the four holds
        (0.80, 4, 100, 0, False),
        (0.85, 4, 0, 0, False),  # nothing decodes
        (0.85, 4, 100, 1, False),  # a prompt is read: tokens of the step may be what lacks
        (0.94, 16, 100, 0, False),  # as many run as may
        (0.945, 15, 100, 0, True),
    ],
)
def test_a_pool_without_room_for_one_more_is_full(
    use: float, running: int, generated: int, prompts: int, *, stands: bool
) -> None:
    page = (use, 40, running)
    told = found(page, page, generated=generated, prompts=prompts)
    assert (told is not None) is stands
    assert told is None or told.title.startswith(f"The KV cache, {use * 100:g} % in use, has no room")


def test_the_figures_of_a_queue_are_those_of_the_last_page() -> None:
    told = found((0.96, 30, 8), (0.98765, 27, 8))
    assert told is not None
    assert [one.value for one in told.arithmetic] == [98.8, 3.4]
    assert told.evidence[0].excerpt == "27 wait, 8 run"
    assert "no room" not in told.title

"""A server whose own figures show that nobody is served is not ok."""

import pytest

from vllm_doctor.records.host import Metrics, Sample, Scrape
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.rules.engine import diagnose


def scrape(running: float, waiting: float, asleep: float = 0, **ended: float) -> Scrape:
    found = [
        Sample("vllm:num_requests_running", {}, running),
        Sample("vllm:num_requests_waiting", {}, waiting),
        Sample("vllm:engine_sleep_state", {}, asleep),
    ]
    found += [Sample("vllm:request_success_total", {"finished_reason": reason}, n) for reason, n in ended.items()]
    return Scrape(0, tuple(found))


@pytest.mark.parametrize(
    ("scrapes", "says"),
    [
        ((scrape(0, 900),), "900 requests wait and none runs"),
        ((scrape(0, 2), scrape(0, 3)), "3 requests wait and none runs"),
        ((scrape(0, 0, error=3, stop=0),), "all 3 requests that the server has ended"),
        ((scrape(0, 1),), ""),
        ((scrape(4, 900),), ""),
        ((scrape(0, 900, asleep=1),), ""),
        ((scrape(0, 900), scrape(1, 900)), ""),
        ((scrape(0, 0, error=3, length=1),), ""),
        ((scrape(0, 0, abort=90),), ""),
    ],
)
def test_metrics_alone(scrapes: tuple[Scrape, ...], says: str) -> None:
    told = diagnose(Snapshot(taken_at="2026-01-01", metrics=Known(Metrics("page", scrapes), "page")))
    assert told.verdict is (Verdict.UNKNOWN if says else Verdict.OK)
    assert says in told.path[-1].because

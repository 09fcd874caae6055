"""The last figures of a server that goes on may stand against an ok, where no rule has enough of them for a finding."""

import pytest

from tests.cli.test_diagnose import HEALTHY
from tests.rules.test_ends import diagnosed
from vllm_doctor.records.verdict import Verdict

ANSWER = '(APIServer pid=1) INFO:     10.0.0.7:4 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'


def stats(running: int, waiting: int = 0, *, tokens: float = 0.0, prompt: float = 0.0, used: float = 4.0) -> str:
    return (
        f"(APIServer pid=1) INFO 05-21 10:20:12 [loggers.py:9] Engine 000: Avg prompt throughput: {prompt} tokens/s, "
        f"Avg generation throughput: {tokens} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache "
        f"usage: {used}%, Prefix cache hit rate: 0.0%\n"
    )


WORKS = stats(3, tokens=90.0)
TAKEN = "(APIServer pid=1) INFO 05-21 10:2{}:00 [logger.py:63] Received request chatcmpl-{}: params: None.\n"
ENGINES = stats(3, tokens=90.0) + stats(5, used=12.0).replace("Engine 000", "Engine 002")


def fell(*each: float, used: tuple[float, ...] = (4.0,) * 9) -> str:
    return "".join(stats(4, tokens=4 * one, prompt=80.0, used=kv) for one, kv in zip(each, used, strict=False))


@pytest.mark.parametrize(
    ("end", "says"),
    [
        (stats(2) + stats(2), "2 running requests and not one token"),
        (stats(2) + stats(3) + stats(4), "4 running requests and not one token"),  # they come, and none is taken
        (5 * stats(1, 3, tokens=45.0), "3 requests wait beside 1 that run"),
        (3 * ENGINES, "3 lines of statistics of engine 002 count 5 running requests, not one token"),
        (3 * (stats(7, used=33.0) + WORKS), "3 lines of statistics count 7 running requests, not one token"),
        (TAKEN.format(1, 1) + TAKEN.format(4, 2), "a request was taken, and for 180 s"),
        (fell(40, 33, 26, 19, 12, 5), "each request got fewer tokens, 40.0 a second and then 5.0"),
        (WORKS.replace("GPU KV", "Corrupted: 2 reqs, GPU KV"), "count 2 corrupted requests"),
    ],
)
def test_what_runs_or_waits_in_vain_is_not_ok(end: str, says: str) -> None:
    told = diagnosed(HEALTHY + ANSWER + WORKS + WORKS + end)
    assert told.verdict is Verdict.UNKNOWN
    assert says in told.path[-1].because


@pytest.mark.parametrize(
    "end",
    [
        stats(2) + stats(3),  # a long prompt, and one more request
        stats(1, used=4.0) + stats(1, used=9.0) + stats(1, used=14.0),  # a long prompt fills the pool
        stats(2) + stats(2) + WORKS + ANSWER,
        5 * stats(1, 3, tokens=45.0, prompt=900.0),  # prompts are read
        4 * stats(1, 3, tokens=45.0) + stats(1, 2, tokens=45.0),  # the queue gets shorter
        5 * stats(1, 3, tokens=45.0, used=88.0) + stats(4, tokens=90.0),
        2 * ENGINES,
        3 * ENGINES + 2 * WORKS.replace("Engine 000", "Engine 002"),
        "".join(stats(1, used=0.1).replace("10:20:12", f"1{hour}:20:12") + WORKS for hour in range(3)),  # V0, once idle
        TAKEN.format(1, 1) + ANSWER + TAKEN.format(4, 2),
        TAKEN.format(1, 1) + TAKEN.format(1, 2),
        fell(40, 33, 26, 27, 12, 5),
        fell(40, 33, 26, 19, 15, 12),
        fell(40, 33, 26, 19, 12, 5, used=(4, 9, 14, 19, 24, 29)),  # contexts grow
    ],
)
def test_what_may_be_a_long_prompt_or_a_short_queue_stays_ok(end: str) -> None:
    assert diagnosed(HEALTHY + ANSWER + WORKS + WORKS + end).verdict is Verdict.OK


def test_requests_that_are_taken_and_never_counted_are_not_ok() -> None:
    """A side that decodes waits for the blocks of the other one: no line of statistics counts such requests."""
    empty = stats(0, used=11.0)
    taken = "".join(TAKEN.format(minute, minute) + empty for minute in (1, 2, 3))
    told = diagnosed(HEALTHY + ANSWER + WORKS + WORKS + taken)
    assert "3 requests were taken, and 3 lines of statistics count none that runs" in told.path[-1].because
    assert diagnosed(HEALTHY + ANSWER + WORKS + WORKS + taken + ANSWER + WORKS).verdict is Verdict.OK
    assert diagnosed(HEALTHY + ANSWER + WORKS + WORKS + empty + TAKEN.format(1, 1)).verdict is Verdict.OK


def test_a_queue_at_one_engine_of_several_that_runs_none_is_not_ok() -> None:
    queue = "".join(WORKS + stats(0, 9 + n, used=0.0).replace("Engine 000", "Engine 003") for n in range(3))
    told = diagnosed(HEALTHY + ANSWER + WORKS + queue)
    assert "of engine 003 count 11 requests that wait, not one token" in told.path[-1].because


@pytest.mark.parametrize(("each", "verdict"), [(2101.33, Verdict.UNKNOWN), (14.02, Verdict.OK)])
def test_whoever_measures_a_second_a_token_measures_a_slow_server(each: float, verdict: Verdict) -> None:
    measured = (
        "============ Serving Benchmark Result ============\n"
        "Successful requests:                     20\n"
        "Failed requests:                         0\n"
        f"Mean TPOT (ms):                          {each}\n"
    )
    assert diagnosed(HEALTHY + ANSWER + WORKS + WORKS + measured).verdict is verdict

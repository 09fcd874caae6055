"""A start that never served, and a server that ends inside another one's log, are not ok."""

import pytest

from tests.log.judging import judged_text
from vllm_doctor.records.verdict import Verdict

BEGUN = """\
INFO 11-20 10:00:00 [api_server.py:1212] vLLM API server version 0.11.0
INFO 11-20 10:00:00 [utils.py:233] non-default args: {'model': 'Qwen/Qwen3-8B'}
INFO 11-20 10:00:31 [kv_cache_utils.py:1087] GPU KV cache size: 364,800 tokens
"""
MADE = "INFO 11-20 10:00:39 [core.py:210] init engine (profile, create kv cache, warmup model) took 20.1 seconds\n"
BOUND = "INFO 11-20 10:00:40 [api_server.py:1912] Starting vLLM API server 0 on http://0.0.0.0:8000\n"
ROUTES = """\
INFO 11-20 10:00:40 [launcher.py:34] Available routes are:
INFO 11-20 10:00:40 [launcher.py:42] Route: /v1/chat/completions, Methods: POST
"""
STARTED = "INFO:     Started server process [17]\nINFO:     Waiting for application startup.\n"
COMPLETE = "INFO:     Application startup complete.\n"
ANSWERS = 'INFO:     10.0.0.1:5000 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
COUNTS = (
    "INFO 11-20 10:05:00 [loggers.py:127] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: "
    "3.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%\n"
)
WHOLE = BEGUN + MADE + BOUND + ROUTES + STARTED + COMPLETE + ANSWERS


@pytest.mark.parametrize(
    "last", [MADE, MADE + BOUND, MADE + BOUND + ROUTES, MADE + BOUND + ROUTES + STARTED], ids=lambda t: t[-40:]
)
def test_a_start_that_ends_before_it_serves_is_unknown(last: str) -> None:
    told = judged_text(BEGUN + last)
    assert told.verdict is Verdict.UNKNOWN
    assert "the log ends during the start (last step seen: ready)" in told.path[-1].because


def test_an_error_of_the_start_that_no_rule_knows_is_told() -> None:
    error = "ERROR 11-20 10:00:40 [loader.py:248] Failed to create the thing: TypeError: make() got no 'x'\n"
    told = judged_text(BEGUN + error + BOUND)
    assert told.verdict is Verdict.UNKNOWN
    assert told.path[-1].because.endswith(
        "and line 4 is an error that no rule knows: Failed to create the thing: TypeError: make() got no 'x'"
    )
    assert "without an error" not in told.path[-1].because
    assert "without an error" in judged_text(BEGUN + error.replace("ERROR", "INFO") + BOUND).path[-1].because


def test_a_benchmark_below_a_server_is_no_end_of_it() -> None:
    report = "============ Serving Benchmark Result ============\nSuccessful requests:                     500\n"
    assert judged_text(WHOLE + COUNTS + report).verdict is Verdict.OK
    assert judged_text(WHOLE + COUNTS + "============ The other program ============\n").verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("last", [COMPLETE, STARTED + COMPLETE, COUNTS, ANSWERS], ids=lambda t: t[-40:])
def test_one_that_serves_is_ok_also_where_uvicorn_tells_little(last: str) -> None:
    assert judged_text(BEGUN + MADE + BOUND + ROUTES + last).verdict is Verdict.OK


@pytest.mark.parametrize("end", ["", MADE + BOUND + ROUTES], ids=["in its start", "at its routes"])
@pytest.mark.parametrize("goes_on", [COUNTS + ANSWERS, ANSWERS], ids=["statistics", "answers"])
def test_service_below_a_start_that_did_not_come_so_far_is_another_servers(end: str, goes_on: str) -> None:
    told = judged_text(WHOLE + BEGUN + end + goes_on)
    assert told.verdict is Verdict.UNKNOWN
    assert "another server writes into the same text" in told.path[-1].because


def test_a_server_that_begins_while_another_answers_is_not_judged_by_its_answers() -> None:
    told = judged_text(WHOLE + BEGUN + ANSWERS + MADE + BOUND + STARTED + COMPLETE)
    assert told.verdict is Verdict.UNKNOWN


def test_a_restart_that_serves_is_ok() -> None:
    assert judged_text(WHOLE * 2).verdict is Verdict.OK


def test_where_uvicorn_never_tells_of_its_start_its_answers_are_enough() -> None:
    quiet = BEGUN + MADE + BOUND + ROUTES + ANSWERS
    assert judged_text(quiet * 2).verdict is Verdict.OK


@pytest.mark.parametrize(("served", "verdict"), [("11:30:00", Verdict.OK), ("10:00:09", Verdict.UNKNOWN)])
def test_where_somebody_left_out_the_start_the_clock_tells_whose_service_it_is(served: str, verdict: Verdict) -> None:
    """No step of it stands between the lines, and no server is made within seconds."""
    announced = "".join(BEGUN.splitlines(keepends=True)[:2])
    counts = COUNTS.replace("10:05:00", served)
    assert judged_text(announced + counts * 2 + ANSWERS).verdict is verdict


def test_another_front_end_that_serves_below_a_start_that_failed_is_another_server() -> None:
    """Each line that uvicorn writes is signed with the process that answers: who begins again announces itself."""
    first, second = "(APIServer pid=30694) ", "(APIServer pid=1) "
    engine = "(EngineCore_DP0 pid=30811) ERROR 11-20 10:00:33 [core.py:708] "
    begun = f"{first}INFO 11-20 10:00:00 [api_server.py:1839] vLLM API server version 0.11.0\n"
    failed = f"{engine}Traceback (most recent call last):\n{engine}ModuleNotFoundError: No module named 'a.b'\n"
    serves = f"{second}{ANSWERS}{second}{COUNTS}{second}{ANSWERS}"
    assert [finding.code for finding in judged_text(begun + failed + serves).findings] == ["VD514"]
    again = begun.replace(first, second).replace("10:00:00", "10:01:00") + second + COMPLETE
    assert judged_text(begun + failed + again + serves).verdict is Verdict.OK

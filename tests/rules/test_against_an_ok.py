"""What stands against an ok though requests are answered with 200: errors that the engine repeats, an end that is told
above a start, a program that watches the server, an answer that is no text."""

import pytest

from tests.cli.test_diagnose import HEALTHY
from tests.rules.test_ends import diagnosed
from vllm_doctor.records.verdict import Verdict

ANSWER = '(APIServer pid=1) INFO:     10.0.0.7:4 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
FAILS = (
    "(EngineCore pid=2) ERROR 05-21 10:2{}:01 [scheduler.py:2604] Failing 3 request(s) due to KV load failure "
    "(failure_policy=fail, 8192 tokens affected). Request IDs: {{'chatcmpl-{}'}}\n"
)


def because(text: str) -> str:
    told = diagnosed(text)
    return told.path[-1].because if told.verdict is Verdict.UNKNOWN else ""


def test_an_error_that_the_engine_repeats_is_told_until_requests_are_answered_again() -> None:
    often = "".join(FAILS.format(i, i) + ANSWER for i in range(3))
    assert "has reported this error 3 times" in because(HEALTHY + ANSWER + often)
    assert diagnosed(HEALTHY + ANSWER + often + 2 * ANSWER).verdict is Verdict.OK


def test_an_end_above_the_start_that_took_up_again_is_told_until_it_answers() -> None:
    end = "(ServeController pid=9) WARNING 2026-05-21 10:30:00,100 controller 9 -- marking the replica unhealthy.\n"
    again = "(APIServer pid=1) INFO:     Application startup complete.\n"
    assert "answered no request" in because(HEALTHY + ANSWER + end + again)
    assert diagnosed(HEALTHY + ANSWER + end + again + ANSWER).verdict is Verdict.OK


@pytest.mark.parametrize("host", ["vllm-0", "vllm"])
def test_who_watches_the_server_by_its_name_tells_of_its_end(host: str) -> None:
    log = "".join(f"vllm-0  | {line}\n" for line in (HEALTHY + ANSWER).splitlines())
    told = "router  | WARNING: backend http://{}:8000 failed 3 health checks, marking unhealthy\n"
    assert "marking unhealthy" in because(log + told.format(host))
    assert diagnosed(log + told.format("another")).verdict is Verdict.OK
    assert "no server available" in because(
        log + f"haproxy | [ALERT] (8) : backend '{host}' has no server available!\n"
    )


def test_tables_of_containers_that_run_tell_of_no_end() -> None:
    pods = "NAME     READY   STATUS    RESTARTS   AGE\nvllm-0   1/1     Running   {}          3h\n"
    assert diagnosed(HEALTHY + ANSWER + pods.format(0)).verdict is Verdict.OK
    assert diagnosed(HEALTHY + ANSWER + pods.format(6)).verdict is Verdict.UNKNOWN


def test_the_answer_of_nan_is_no_sign_of_health() -> None:
    asked = "$ curl -s localhost:8000/v1/chat/completions -d @q.json | jq -r .choices[0].message.content\n"
    assert "!!!!!!!!" in because(HEALTHY + ANSWER + asked + 20 * "!" + "\n")
    assert diagnosed(
        HEALTHY + ANSWER + "$ curl -s localhost:8000/health -o /dev/null -w '%{http_code}'\n200\n"
    ).verdict is (Verdict.OK)


def test_ranks_that_wait_below_a_ready_engine_show_no_end_in_order() -> None:
    ready = (
        "INFO 03-19 14:15:01 [core.py:53] Initializing a V1 LLM engine (v0.8.0) with config: model='m', dtype=x\n"
        "INFO 03-19 14:16:01 [core.py:138] init engine (profile, create kv cache, warmup model) took 51.10 seconds\n"
    )
    waits = (
        "(VllmWorker rank=1 pid=7) DEBUG 03-19 14:21:55 [shm_broadcast.py:417] No available block found in 60 second.\n"
    )
    assert diagnosed(ready).verdict is Verdict.OK
    assert diagnosed(ready + 2 * waits).verdict is Verdict.UNKNOWN


def test_half_of_the_requests_fail_to_the_end() -> None:
    failed = ANSWER.replace("200 OK", "500 Internal Server Error")
    assert "5 of the last 10 requests were answered with 500" in because(HEALTHY + 5 * (ANSWER + failed))
    assert "5 of the last 10" in because(HEALTHY + 5 * (ANSWER + failed) + ANSWER)  # one more answer settles nothing
    assert diagnosed(HEALTHY + 5 * (ANSWER + failed) + 2 * ANSWER).verdict is Verdict.OK
    assert diagnosed(HEALTHY + 9 * ANSWER + failed).verdict is Verdict.OK


def test_a_container_of_the_same_pod_asks_by_its_own_host() -> None:
    log = "".join(f"[pod/vllm-0/vllm] {line}\n" for line in (HEALTHY + ANSWER).splitlines())
    told = "[pod/{}/adapter] ERROR engine http://localhost:8000 is not reachable\n"
    assert "not reachable" in because(log + told.format("vllm-0"))
    assert diagnosed(log + told.format("proxy-5d7c9b8f4-x2x7q")).verdict is Verdict.OK


@pytest.mark.parametrize(
    "said",
    [
        "(Worker_TP1 pid=3) [ERROR] 2026-05-21-10:25:01 (PID:3, Device:1, RankID:1) DIST call hccl api failed.\n",
        "(EngineCore pid=2) [2026-05-21 10:25:00.112] [critical] [driver.cc:81] cuCtxSynchronize returned 719\n",
        "[rank1]:[E ProcessGroupNCCL.cpp:1316] [PG 2 Rank 1] Heartbeat monitor timed out! Process will end.\n",
    ],
)
def test_a_runtime_below_python_tells_of_the_engine_though_no_logger_of_vllm_s_has_a_level_for_it(said: str) -> None:
    health = '(APIServer pid=1) INFO:     10.0.0.1:3 - "GET /health HTTP/1.1" 200 OK\n'
    assert diagnosed(HEALTHY + ANSWER + said + 2 * health).verdict is not Verdict.OK
    assert diagnosed(HEALTHY + said + ANSWER).verdict is Verdict.OK


def test_requests_that_are_aborted_one_after_the_other_were_not_answered() -> None:
    aborted = "(APIServer pid=1) INFO 05-21 10:2{}:{} [async_llm.py:345] Aborted request chatcmpl-{}.\n"
    one_by_one = "".join(aborted.format(n, "01", n) for n in range(3))
    at_once = "".join(aborted.format(2, "01", n) for n in range(9))
    assert "3 requests were aborted and none was answered" in because(HEALTHY + ANSWER + one_by_one)
    assert diagnosed(HEALTHY + ANSWER + at_once).verdict is Verdict.OK  # a client was stopped
    assert diagnosed(HEALTHY + ANSWER + one_by_one + ANSWER).verdict is Verdict.OK


@pytest.mark.parametrize(("minutes", "verdict"), [("08", Verdict.OK), ("31", Verdict.UNKNOWN)])
def test_a_start_that_its_user_gives_up_after_minutes_of_silence_may_have_stood_still(
    minutes: str, verdict: Verdict
) -> None:
    log = (
        "(APIServer pid=1) INFO 05-21 10:05:00 [api_server.py:1043] vLLM API server version 0.11.0\n"
        "(EngineCore pid=2) INFO 05-21 10:05:09 [pynccl.py:69] vLLM is using nccl==2.27.3\n"
        f"^C\n(APIServer pid=1) INFO 05-21 10:{minutes}:00 [launcher.py:110] Shutting down FastAPI HTTP server.\n"
    )
    assert diagnosed(log).verdict is verdict

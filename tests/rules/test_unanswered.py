"""A server that goes on while nobody is served is not ok, though nothing in its log is a failure that has a name."""

import pytest

from tests.cli.test_diagnose import HEALTHY
from tests.rules.test_ends import diagnosed, verdict
from vllm_doctor.records.verdict import Verdict

API, ENGINE = "(APIServer pid=1) ", "(EngineCore pid=2) "
OK = f'{API}INFO:     10.0.0.7:4 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
FAILED = f'{API}INFO:     10.0.0.7:4 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error\n'
BUSY = FAILED.replace("500 Internal Server Error", "503 Service Unavailable")
ALIVE, DEAD = (f'{API}INFO:     10.0.0.7:4 - "GET /health HTTP/1.1" {told}\n' for told in ("200 OK", "503 Unavailable"))
WAITS = f"{ENGINE}INFO 05-21 10:20:12 [shm.py:9] No available shared memory broadcast block found in 60 seconds.\n"
CLOSING = f"{API}INFO:     Shutting down\n{API}INFO:     Waiting for connections to close. (CTRL+C to force quit)\n"


@pytest.mark.parametrize(
    ("end", "says"),
    [
        (3 * BUSY, "3 requests were answered with 503, and no request with 200"),
        (OK + 2 * BUSY + ALIVE + BUSY, "3 requests were answered with 503"),
        (DEAD, "/health was answered with 503, and not with 200 after it"),
        (OK + ALIVE + DEAD, "/health was answered with 503"),
        (2 * WAITS, "the engine said 2 times that one process waits for another"),
        (CLOSING, "a stop waits for open connections"),
        (f"{ENGINE}CRITICAL 05-21 10:20:12 [core.py:9] giving up on this card\n", "giving up on this card"),
        (f"{ENGINE}ERROR 05-21 10:20:12 [dump_input.py:9] Dumping input data for V1 LLM engine\n", "Dumping input"),
    ],
)
def test_the_end_is_unknown_and_says_why(end: str, says: str) -> None:
    told = diagnosed(HEALTHY + end)
    assert told.verdict is Verdict.UNKNOWN
    assert says in told.path[-1].because


def test_where_nobody_has_the_key_nobody_is_served() -> None:
    refused = OK.replace("200 OK", "401 Unauthorized")
    told = diagnosed(HEALTHY + 3 * refused)
    assert told.verdict is Verdict.UNKNOWN
    assert "they bear no key" in told.path[-1].because
    assert verdict(HEALTHY + OK + 3 * refused) is Verdict.OK


def test_the_last_word_of_a_proxy_in_a_stream_of_its_own_tells_of_no_end() -> None:
    said = "".join(f"vllm-1   | {line}\n" for line in (HEALTHY + OK).splitlines())
    proxy = f"proxy-1  | {OK.removeprefix(API)}proxy-1  | 10:05:00 - Proxy: all models are there\n"
    assert verdict(said + proxy) is Verdict.OK


def test_a_wait_that_is_all_of_a_log_is_told_as_a_wait() -> None:
    assert "the engine said once that one process waits for another" in diagnosed(WAITS).path[-1].because


@pytest.mark.parametrize(
    ("told", "command"),
    [
        ("Back-off restarting failed container vllm in pod vllm-0_default\n", "kubectl logs POD --previous"),
        ("Nov 29 08:00:00 gpu1 systemd[1]: vllm@chat.service: Failed with result 'exit-code'.\n", "journalctl -u UNIT"),
        ("vllm-1 exited with code 1\n", "docker compose logs SERVICE"),
    ],
)
def test_who_tells_of_an_end_keeps_the_log_of_what_ended(told: str, command: str) -> None:
    assert command in diagnosed(told).path[-1].because


@pytest.mark.parametrize("end", [2 * FAILED, 3 * FAILED, OK + 2 * FAILED + ALIVE + FAILED])
def test_errors_of_the_server_itself_in_a_row_are_a_finding(end: str) -> None:
    assert [f.code for f in diagnosed(HEALTHY + end).findings] == ["VD529"]


@pytest.mark.parametrize(
    "end",
    [
        FAILED,
        5 * FAILED + OK,
        DEAD + ALIVE,
        WAITS,
        2 * WAITS + OK,
        f"{ENGINE}ERROR 05-21 10:20:12 [core.py:9] one request was dropped\n" + OK,
        CLOSING + f"{API}INFO:     Application shutdown complete.\n",
    ],
)
def test_one_good_answer_after_it_or_a_stop_that_ended_is_ok(end: str) -> None:
    assert verdict(HEALTHY + end) is Verdict.OK


def test_a_program_that_only_imports_vllm_is_not_vouched_for() -> None:
    told = diagnosed(
        "INFO 05-21 10:20:12 [__init__.py:216] Automatically detected platform cuda.\n"
        "INFO:     Application startup complete.\n"
        'INFO:     10.0.0.7:4 - "GET /health HTTP/1.1" 200 OK\n'
        'INFO:     10.0.0.7:5 - "POST /summarise HTTP/1.1" 200 OK\n'
    )
    assert told.verdict is Verdict.UNKNOWN


HEALTH, ANSWER = (
    f'INFO:     10.0.0.7:4 - "{asked} HTTP/1.1" 200 OK\n' for asked in ("GET /health", "POST /v1/completions")
)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (HEALTH + 2 * ANSWER, Verdict.OK),
        (ANSWER + ANSWER.replace("200 OK", "500 Internal Server Error"), Verdict.UNKNOWN),
        (2 * ANSWER + "[ERROR] connection to backend lost\n", Verdict.UNKNOWN),
        (2 * ANSWER + "the worker is gone\n", Verdict.UNKNOWN),
        (HEALTH + ANSWER.replace("v1/completions", "summarise"), Verdict.UNKNOWN),
    ],
)
def test_answers_to_a_model_s_requests_are_well_though_no_line_names_the_server(lines: str, expected: Verdict) -> None:
    """`docker logs --tail 20` of a server under load has nothing else."""
    assert verdict(lines) is expected


def test_a_program_that_configured_an_engine_and_answers_is_well() -> None:
    """KServe writes uvicorn's lines under its logger's name; vLLM's own line is of the options of its engine."""
    told = diagnosed(
        "INFO 05-21 10:20:12 [__init__.py:216] Automatically detected platform cpu.\n"
        "WARNING 05-21 10:20:19 [arg_utils.py:1765] device type=cpu is not supported by the V1 Engine.\n"
        "2025-05-21 10:21:41.800 uvicorn.error INFO:     Application startup complete.\n"
        "2025-05-21 10:22:02.113 uvicorn.access INFO:     10.0.0.7:4 77 - "
        '"POST /openai/v1/completions HTTP/1.1" 200 OK\n'
    )
    assert told.verdict is Verdict.OK


@pytest.mark.parametrize(("prompt", "told"), [(9.0, ["VD308"]), (40.0, [])])
def test_a_short_prompt_beside_it_does_not_excuse_an_engine_below_any_gpu(prompt: float, told: list[str]) -> None:
    def line(at: int, read: float) -> str:
        return (
            f"{API}INFO 05-21 10:20:{at} [loggers.py:9] Engine 000: Avg prompt throughput: {read} tokens/s, Avg "
            "generation throughput: 0.4 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.1%, "
            "Prefix cache hit rate: 0.0%\n"
        )

    text = line(10, prompt) + "".join(line(10 * n, 0.0) for n in range(2, 6))
    assert [f.code for f in diagnosed(text).findings] == told


def pace(tokens: float, *, lines: int = 3, read: float = 0.0, used: float = 0.1, running: int = 1) -> str:
    return "".join(
        f"INFO 05-21 10:2{n // 6}:{n % 6}0 [loggers.py:9] Engine 000: Avg prompt throughput: {read} tokens/s, Avg "
        f"generation throughput: {tokens} tokens/s, Running: {running} reqs, Waiting: 0 reqs, GPU KV cache usage: "
        f"{used}%, Prefix cache hit rate: 0.0%\n"
        for n in range(lines)
    )


WEIGHTS = f"{ENGINE}INFO 05-21 10:11:14 [gpu_model_runner.py:1] Model loading took {{}} GiB and 3.1 seconds\n"


@pytest.mark.parametrize(
    ("tokens", "weights", "expected"),
    [
        (4.0, "", Verdict.UNKNOWN),
        (6.0, "", Verdict.OK),
        (3.7, WEIGHTS.format("57.91"), Verdict.OK),
        (3.1, WEIGHTS.format("14.25"), Verdict.UNKNOWN),
    ],
)
def test_a_pace_that_only_the_card_can_judge_is_never_ok(tokens: float, weights: str, expected: Verdict) -> None:
    """4 tokens/s are a processor's, or those of a fast card that something holds back; the log names neither. To read
    58 GiB of weights 3.7 times a second is what an integrated GPU does."""
    start, ready = HEALTHY.rsplit("(APIServer", 1)
    got = diagnosed(f"{start}{weights}(APIServer{ready}{pace(tokens)}")
    assert got.verdict is expected
    assert ("--gpu NAME" in got.path[-1].because) is (expected is Verdict.UNKNOWN)


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (pace(9.0, lines=4, read=12.0, used=5.0, running=2), ["VD308"]),
        (pace(9.0, lines=3, read=12.0, used=5.0, running=2), []),
        (pace(29.0, lines=4, read=12.0, used=5.0, running=2), []),
        (pace(29.0, lines=6, read=12.0, used=5.0, running=2), ["VD308"]),
        (pace(9.0, lines=2, used=5.0, running=2) + pace(9.0, lines=2, used=7.0, running=2), []),
    ],
)
def test_a_thirteenth_of_the_tokens_is_told_in_40_seconds_and_a_quarter_in_a_minute(now: str, told: list[str]) -> None:
    """Where the pool fills meanwhile, a long prompt is read, whose tokens are counted when it is through."""
    before = (("120.0", 30.0), ("118.0", 300.0), ("122.0", 5.0), ("119.0", 90.0))
    best = "".join(pace(float(tokens), lines=1, read=read, used=6.0, running=2) for tokens, read in before)
    assert [f.code for f in diagnosed(HEALTHY + best + now).findings] == told


def test_one_wait_below_which_the_front_end_goes_on_alone_is_not_ok() -> None:
    polls = f'{API}INFO:     10.0.0.7:4 - "GET /v1/videos/a HTTP/1.1" 200 OK\n'
    assert verdict(HEALTHY + OK + WAITS + polls) is Verdict.UNKNOWN
    assert verdict(HEALTHY + OK + WAITS + polls + OK) is Verdict.OK


@pytest.mark.parametrize(("level", "expected"), [("DEBUG", Verdict.OK), ("INFO", Verdict.FINDING)])
def test_the_ranks_of_an_idle_engine_wait_at_the_level_debug(level: str, expected: Verdict) -> None:
    """Until 0.10.2 whoever has nothing to read says so each minute (shm_broadcast.py, `acquire_read`)."""
    idle = "".join(WAITS.replace("INFO", level).replace("10:20", f"10:2{n}") for n in range(6))
    last = pace(40.0).replace("Running: 1", "Running: 0")
    assert verdict(HEALTHY + OK + pace(40.0) + OK + last + idle) is expected


BENCH = "============ Serving Benchmark Result ============\nSuccessful requests:                     {}\n"
ASKED = "Traffic request rate: inf\n100%|##########| 128/128 [00:09<00:00, 13.97it/s]\n"


@pytest.mark.parametrize(
    ("below", "expected"),
    [
        ("vllm bench serve --model m\n" + BENCH.format(128), Verdict.OK),
        (ASKED + BENCH.format(128), Verdict.OK),
        (ASKED + BENCH.format(30), Verdict.UNKNOWN),
        (BENCH.format(128) + "Failed requests:                         3\n", Verdict.UNKNOWN),
        ("9a8b7c  vllm/vllm-openai:v0.12.0  Restarting (137) 4 seconds ago  vllm-1\n", Verdict.UNKNOWN),
        ("| Succeed requests | 100 |\n| Failed requests  | 0   |\n", Verdict.OK),
        ("| Succeed requests | 100 |\n| Failed requests  | 4   |\n", Verdict.UNKNOWN),
        ('{"logger": "cog.server", "severity": "INFO", "message": "prediction succeeded"}\n', Verdict.OK),
        ("##[endgroup]\n", Verdict.OK),
        ("##[error]Process completed with exit code 1.\n", Verdict.UNKNOWN),
        ('# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name="m"} 0.0\n', Verdict.OK),
    ],
)
def test_who_measures_a_server_or_folds_its_log_may_have_the_last_word(below: str, expected: Verdict) -> None:
    assert verdict(HEALTHY + OK + below) is expected


def test_of_a_script_s_last_batch_no_step_is_shown() -> None:
    bar = "Processed prompts: {}%|#| {}/5 [00:01<00:00,  5.0it/s, est. speed input: 1.0 toks/s, output: 1.0 toks/s]\n"
    engine = "INFO 05-21 10:11:13 [core.py:1] Initializing a V1 LLM engine (v0.11.0) with config: model='m'\n"
    assert verdict(engine + bar.format(100, 5)) is Verdict.OK
    told = diagnosed(engine + bar.format(100, 5) + bar.format(0, 0))
    assert told.verdict is Verdict.UNKNOWN
    assert "before the first answer of a batch" in told.path[-1].because
    assert verdict(engine + bar.format(100, 5) + bar.format(0, 0) + "Prompt: 'a', Generated text: 'b'\n") is Verdict.OK


STATISTICS = (
    "INFO 03-14 09:0{minute}:10 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation "
    "throughput: {tokens} tokens/s, Running: 12 reqs, Waiting: {minute} reqs, GPU KV cache usage: {used}%, "
    "Prefix cache hit rate: 0.0%"
)


@pytest.mark.parametrize(
    ("tokens", "used", "verdict"),
    [
        (("0.0", "0.0"), ("31.5", "31.5"), Verdict.UNKNOWN),
        (("0.0", "0.0"), ("31.5", "32.5"), Verdict.OK),  # a long prompt fills the pool
        (("80.1", "0.0"), ("31.5", "31.5"), Verdict.OK),  # one line tells of ten seconds
        (("0.0", "80.1"), ("31.5", "31.5"), Verdict.OK),
    ],
)
def test_requests_that_run_without_a_token_are_not_called_well(
    tokens: tuple[str, ...], used: tuple[str, ...], verdict: Verdict
) -> None:
    both = enumerate(zip(tokens, used, strict=True))
    text = "\n".join(STATISTICS.format(minute=minute, tokens=made, used=share) for minute, (made, share) in both)
    assert diagnosed(text).verdict is verdict


def test_a_server_that_was_told_to_stop_may_answer_503() -> None:
    shutdown = f"{API}INFO 05-21 10:20:12 [launcher.py:100] [shutdown] API server: shutdown triggered\n"
    assert verdict(HEALTHY + OK + shutdown + DEAD + 3 * BUSY) is Verdict.OK
    assert verdict(HEALTHY + OK + DEAD + shutdown) is Verdict.UNKNOWN


LOAD = (API + 'INFO:     10.0.0.7:4 - "POST /v1/{}load_lora_adapter HTTP/1.1" {}\n').format


def test_an_adapter_that_one_request_did_not_find_is_told_until_another_is_found() -> None:
    missing = LOAD("", "404 Not Found")
    assert "not switched on" in diagnosed(HEALTHY + missing).findings[0].title
    on = f"{API}INFO 05-21 10:20:12 [serving_models.py:180] Loaded new LoRA adapter: name 'sql', path '/srv/sql'\n"
    told = diagnosed(HEALTHY + on + missing).findings[0]
    assert (told.title, told.changes[0].name) == ("An adapter that a request names is not found", "adapter-path")
    assert verdict(HEALTHY + on + missing + LOAD("un", "200 OK")) is Verdict.OK

"""Every way in which vLLM's own words come to a file, from 0.2 to 0.33, and what is left when the prefixes are gone."""

import json

import pytest

from vllm_doctor.log.read.prefix import Stripper
from vllm_doctor.log.read.printable import LINE_LIMIT, printable_text
from vllm_doctor.records.log import LogLine

WORDS = "Available KV cache memory: 5.31 GiB"


def one(raw: str) -> LogLine:
    (line,) = Stripper().lines(raw, 7)
    return line


@pytest.mark.parametrize(
    ("raw", "process", "pid", "level", "module"),
    [
        (f"INFO 05-21 10:11:12 worker.py:241] {WORDS}", None, None, "INFO", "worker.py:241"),
        (f"INFO 05-21 10:11:12 [worker.py:241] {WORDS}", None, None, "INFO", "worker.py:241"),
        (
            f"INFO 05-21 10:11:12 [v1/worker/gpu_worker.py:241] {WORDS}",
            None,
            None,
            "INFO",
            "v1/worker/gpu_worker.py:241",
        ),
        (f"(EngineCore_0 pid=12) INFO 05-21 10:11:12 [w.py:1] {WORDS}", "EngineCore_0", 12, "INFO", "w.py:1"),
        (f"(EngineCore_DP0 pid=12) ERROR 05-21 10:11:12 [w.py:1] {WORDS}", "EngineCore_DP0", 12, "ERROR", "w.py:1"),
        (f"(Worker_TP1 pid=13) INFO 05-21 10:11:12 [w.py:1] {WORDS}", "Worker_TP1", 13, "INFO", "w.py:1"),
        (f"(VllmWorkerProcess pid=14) INFO 05-21 10:11:12 w.py:1] {WORDS}", "VllmWorkerProcess", 14, "INFO", "w.py:1"),
        (f"(VllmWorker rank=1 pid=254) INFO 05-21 10:11:12 [w.py:1] {WORDS}", "VllmWorker_1", 254, "INFO", "w.py:1"),
        (
            f"(RayWorkerWrapper pid=9, ip=10.0.0.7) INFO 05-21 10:11:12 [w.py:1] {WORDS}",
            "RayWorkerWrapper",
            9,
            "INFO",
            "w.py:1",
        ),
        # As people shorten it
        (f"(EngineCore pid=...) ERROR [w.py:1] {WORDS}", "EngineCore", None, "ERROR", "w.py:1"),
        (f"(Worker_TP0 pid=XXX) {WORDS}", "Worker_TP0", None, None, None),
        (f"(EngineCore_DP0) ERROR [w.py:1] {WORDS}", "EngineCore_DP0", None, "ERROR", "w.py:1"),
        (f"(APIServer) INFO 05-21 10:11:12 [w.py:1] {WORDS}", "APIServer", None, "INFO", "w.py:1"),
        (f"(RayWorkerWrapper pid=9) [repeated 3x across cluster] {WORDS}", "RayWorkerWrapper", 9, None, None),
        # Ray's worker, before it knows what it is to run
        (f"(pid=9) {WORDS}", None, 9, None, None),
        (f"(pid=9, ip=10.0.0.7) {WORDS}", None, 9, None, None),
        (
            f"(EngineCore pid=1) (Worker_TP0 pid=2) INFO 05-21 10:11:12 [w.py:1] {WORDS}",
            "Worker_TP0",
            2,
            "INFO",
            "w.py:1",
        ),
        (f"[rank0]: {WORDS}", "rank0", None, None, None),
        (f"[address=0.0.0.0:46149, pid=156] [address=0.0.0.0:9, pid=7] {WORDS}", None, None, None, None),
        (f"(APIServer pid=5) INFO:     {WORDS}", "APIServer", 5, "INFO", "uvicorn"),
        (f"May 21 10:11:12 gpu01 vllm[4242]: INFO 05-21 10:11:12 [w.py:1] {WORDS}", None, 4242, "INFO", "w.py:1"),
        (f"May  1 10:11:12.123456 gpu01 vllm[4242]: (EngineCore pid=7) {WORDS}", "EngineCore", 7, None, None),
        (
            f"2026-05-21T10:11:12+0200 gpu01 vllm[4242]: INFO 05-21 10:11:12 [w.py:1] {WORDS}",
            None,
            4242,
            "INFO",
            "w.py:1",
        ),
        (f"[12345.678901] gpu01 vllm[4242]: {WORDS}", None, None, None, None),
        (f"vllm-1  | INFO 05-21 10:11:12 [w.py:1] {WORDS}", None, None, "INFO", "w.py:1"),
        (f"[pod/chat-0/vllm] INFO 05-21 10:11:12 [w.py:1] {WORDS}", None, None, "INFO", "w.py:1"),
        (f"2026-05-21T10:11:12.123456789Z INFO 05-21 10:11:12 [w.py:1] {WORDS}", None, None, "INFO", "w.py:1"),
        (f"2026-05-21T10:11:12.123456789Z stderr F {WORDS}", None, None, None, None),
        (
            f"[2026-05-21 10:11:12] (EngineCore pid=7) INFO 05-21 10:11:12 [w.py:1] {WORDS}",
            "EngineCore",
            7,
            "INFO",
            "w.py:1",
        ),
        (f"2026-05-21 10:11:12.041 uvicorn.error INFO:     {WORDS}", None, None, "INFO", "uvicorn"),
        (
            f"\x1b[0;36m(EngineCore pid=3)\x1b[0;0m INFO 05-21 10:11:12 [w.py:1] {WORDS}",
            "EngineCore",
            3,
            "INFO",
            "w.py:1",
        ),
        (f"[0;36m(EngineCore pid=3)[0;0m INFO 05-21 10:11:12 [w.py:1] {WORDS}", "EngineCore", 3, "INFO", "w.py:1"),
    ],
)
def test_the_words_are_found_behind_any_prefix(
    raw: str, process: str | None, pid: int | None, level: str | None, module: str | None
) -> None:
    line = one(raw)
    assert (line.text, line.process, line.pid, line.level, line.module) == (WORDS, process, pid, level, module)
    assert line.number == 7


@pytest.mark.parametrize(
    "row",
    [
        {"MESSAGE": WORDS, "_PID": "4242", "__REALTIME_TIMESTAMP": "1700000000000000"},
        {"MESSAGE": list(WORDS.encode()), "_PID": "4242"},
        {"log": WORDS + "\n", "stream": "stderr", "time": "2026-05-21T10:11:12Z"},
        {"level": "info", "message": WORDS},
    ],
)
def test_json_lines_of_journald_docker_and_loggers(row: dict[str, object]) -> None:
    assert one(json.dumps(row)).text == WORDS


def test_journald_export_format() -> None:
    stripper = Stripper()
    raw = ["__CURSOR=s=1", "__REALTIME_TIMESTAMP=1700000000000000", "_PID=4242", f"MESSAGE={WORDS}", "PRIORITY=6"]
    assert [line.text for text in raw for line in stripper.lines(text, 1)] == [WORDS]


def test_a_prefix_of_the_operator_is_learned() -> None:
    stripper = Stripper()
    lines = [line for n in range(3) for line in stripper.lines(f"prod-a INFO 05-21 10:11:12 [w.py:1] {WORDS} {n}", n)]
    assert [line.text for line in lines][-2:] == [f"{WORDS} 1", f"{WORDS} 2"]
    assert all(line.level == "INFO" for line in lines[-2:])


def test_a_torn_line_is_two_lines() -> None:
    raw = f"Capturing CUDA graphs:  34%|###  | 12/35(EngineCore pid=8) INFO 05-21 10:11:12 [w.py:1] {WORDS}"
    first, second = Stripper().lines(raw, 1)
    assert first.text.startswith("Capturing")
    assert (second.process, second.text) == ("EngineCore", WORDS)


@pytest.mark.parametrize(
    "raw",
    [
        "(EngineCore pid=1) x " * 3000,
        "INFO 05-21 10:11:12 [w.py:1] y " * 3000,
        '{"a":' * 5000,
        "(EngineCore pid=" + "9" * 9000 + ") z",
        "May 21 10:11:12 gpu01 vllm[" + "9" * 9000 + "]: z",
        "[rank" + "9" * 9000 + "]: z",
        "[" * 20000,
    ],
    ids=lambda raw: raw[:16],
)
def test_a_hostile_line_is_only_a_line(raw: str) -> None:
    assert Stripper().lines(raw, 1)


def test_a_progress_bar_keeps_its_last_state() -> None:
    raw = "Loading:   0%|   | 0/4\rLoading:  50%|##  | 2/4\rLoading: 100%|####| 4/4"
    assert [line.text for line in Stripper().lines(raw, 1)] == ["Loading: 100%|####| 4/4"]


def test_the_indentation_of_a_traceback_stays() -> None:
    assert one('(EngineCore pid=3) ERROR 05-21 10:11:12 [core.py:1]   File "x.py", line 1, in f').text.startswith(
        "  File"
    )


@pytest.mark.parametrize(
    "hostile", ["\x1b]0;title\x07", "\x1b[2J\x1b[H", "\x9b31m", "\x07", "\u202e", "\x1bP1;2|\x1b\\"]
)
def test_nothing_that_acts_on_a_terminal_gets_through(hostile: str) -> None:
    line = one(f"model {hostile} name")
    assert all(c.isprintable() or c in "\ufffd\t" for c in line.text + line.excerpt)
    assert printable_text(hostile).isprintable()


def test_a_line_without_end_is_cut_in_its_middle() -> None:
    line = one("x" * 1_000_000 + " the end")
    assert len(line.text) < LINE_LIMIT + 100
    assert line.text.endswith(" the end")
    assert "characters left out" in line.text


@pytest.mark.parametrize(
    "head",
    [
        "2026-05-21 10:11:12 | ERROR | stderr | ",
        "2026-05-21 10:11:12,921 - INFO - vLLM: ",
        "2026-05-21 10:11:12.921 | INFO     | app.engine:run:12 - ",
        "2026-05-21T10:11:12.921Z [ERROR] ",
        "2026-05-21 10:11:12,921 - relay - INFO - ",
    ],
)
def test_what_a_formatter_of_somebody_writes_in_front_goes_and_the_indentation_stays(head: str) -> None:
    line = one(f"{head}  {WORDS}")
    assert line.text == f"  {WORDS}"
    assert line.level is None
    assert line.at is not None


def test_an_exception_is_no_loggers_name() -> None:
    assert one("2026-05-21 10:11:12,921 - ERROR - RuntimeError: CUDA out of memory.").text.startswith("RuntimeError: ")


def test_the_level_of_vllms_own_logger_counts() -> None:
    assert one(f"2026-05-21 10:11:12,921 - vllm.worker - WARNING - {WORDS}").level == "WARNING"


def test_a_logger_that_is_named_as_vllm_itself_passes_lines_on() -> None:
    """vLLM's loggers are named after its modules (`vllm.worker`); `vllm` alone is a program that reads its output."""
    passed = one(f"2026-05-21 10:11:12,921 - vllm - INFO - (EngineCore_DP0 pid=131) {WORDS}")
    assert (passed.level, passed.process, passed.text) == (None, "EngineCore_DP0", WORDS)


@pytest.mark.parametrize("row", [{"textPayload": "{}"}, {"jsonPayload": {"message": "{}"}}, {"LogEntry": "{}"}])
def test_an_entry_of_a_cloud_holds_a_whole_traceback(row: dict[str, object]) -> None:
    text = '(EngineCore pid=4) ERROR 05-21 10:11:20 [core.py:515] EngineCore failed\n  File "/x.py", line 3, in f'
    entry = json.dumps(row).replace('"{}"', json.dumps(text))
    lines = Stripper().lines(entry, 1)
    assert [line.text for line in lines] == ["EngineCore failed", '  File "/x.py", line 3, in f']


@pytest.mark.parametrize("level", ["I", "W", "E", "F"])
def test_the_head_of_glog_is_taken_off_and_what_klog_quotes_is_parted(level: str) -> None:
    head = f"{level}0314 09:26:53.120034 179 model_lifecycle.cc:654] "
    assert one(f"{head}{WORDS}").text == WORDS
    assert [line.text for line in Stripper().lines(f'{head}"first\\nsecond\\n"', 7)] == ["first", "second"]
    assert one(f'{head}"Error syncing pod" err="x"').text == '"Error syncing pod" err="x"'


@pytest.mark.parametrize(
    "head",
    [
        "WARN  PyProcess W-252-model-stderr: ",
        "INFO  PyProcess W-98-example-8b-stdout: ",
        "[WARN ] PyProcess - W-252-model-stderr: ",
        "2026-03-14 09:26:53,120 [INFO ] W-9000-example_1.0-stdout MODEL_LOG - ",
        "2026-03-14T09:26:53,120 [WARN ] W-9000-example_1.0-stderr MODEL_LOG - ",
    ],
)
def test_what_a_java_server_passes_on_of_its_worker_is_the_workers_own_line(head: str) -> None:
    assert one(f"{head}{WORDS}").text == WORDS
    call = '  File "/opt/v/vllm/worker/worker.py", line 125, in warm_up_model'
    assert one(f"{head}{call}").text == call
    assert one("INFO  PyProcess - Start process: 19000").text == "INFO  PyProcess - Start process: 19000"


def test_an_actor_may_have_an_argument_and_no_address() -> None:
    assert one("(ActorWorker(row-1) pid=77, ) " + WORDS).text == WORDS


def test_a_header_of_a_module_alone_is_taken_off() -> None:
    assert (one(f"[core.py:710] {WORDS}").module, one(f"[core.py:710] {WORDS}").text) == ("core.py:710", WORDS)
    assert one("[core.py:710]").text == "[core.py:710]"


@pytest.mark.parametrize(
    ("told", "read"),
    [
        ("API Error: 400 max_rows must be even", "400 - max_rows must be even"),
        ("Error: 404 the model does not exist", "404 - the model does not exist"),
        ("400 this model takes no rows at all", "400 - this model takes no rows at all"),
    ],
)
def test_a_client_in_javascript_tells_of_the_same_refusal(told: str, read: str) -> None:
    assert one(told).text == f"openai.APIStatusError: Error code: {read}"


@pytest.mark.parametrize(
    "other", ["400 rows were read", "404 Client Error: Not Found for url: x y z", "4001 a b c d e f"]
)
def test_a_number_is_no_refusal(other: str) -> None:
    assert one(other).text == other


@pytest.mark.parametrize(
    ("raw", "at"),
    [
        (f"(EngineCore pid=12) INFO [w.py:1] {WORDS}", None),
        (f"INFO w.py:1] {WORDS}", None),
        (f"[INFO] 2026-05-21 10:11:12 [w.py:1] {WORDS}", "05-21 10:11:12"),
        (f"INFO 2026-05-21 10:11:12,345 [w.py:1] {WORDS}", "05-21 10:11:12,345"),
    ],
)
def test_a_header_without_its_time_or_with_the_year(raw: str, at: str | None) -> None:
    line = one(raw)
    assert (line.level, line.module, line.at, line.text) == ("INFO", "w.py:1", at, WORDS)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ('10.0.0.7:4 - "POST /v1/chat/completions HTTP/1.1" 200', "200 OK"),
        ('INFO:     10.0.0.7:4 - "GET /health HTTP/1.1" 503', "503 Service Unavailable"),
        ('10.0.0.7:4 - "GET /health HTTP/1.1" 200 OK', "200 OK"),
        ('10.0.0.7:4 - "GET /health HTTP/1.1" 299', "299"),  # no status that has a phrase
        ('he wrote "GET /health" 200', "200"),
    ],
)
def test_a_status_without_its_phrase_has_it(raw: str, text: str) -> None:
    assert one(raw).text.rpartition('" ')[2] == text


def test_xinference_s_loggers_name_their_process() -> None:
    line = one('2026-02-27 10:02:20,871 uvicorn.access 10363 INFO     10.0.0.7:4 - "POST /v1/completions HTTP/1.1" 200')
    assert (line.at, line.text) == ("2026-02-27 10:02:20,871", '10.0.0.7:4 - "POST /v1/completions HTTP/1.1" 200 OK')

"""Two servers in one text, of which no name stands before any line: what one serves is no cure of what the other failed
of. So is a server that was started again and has not served as long as the one that died."""

import json

import pytest

from tests.rules import log_material as material
from tests.rules.test_ends import diagnosed as of_lines
from vllm_doctor.log.read.assemble import cut, parse_lines
from vllm_doctor.log.read.pieces import stream
from vllm_doctor.records.finding import Diagnosis
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.rules.engine import diagnose

ANSWER = 'INFO:     127.0.0.1:40000 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
SITE = "/usr/local/lib/python3.12/dist-packages"
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 462.00 MiB. GPU 0 has a total capacity of 23.69 GiB "
    "of which 301.75 MiB is free."
)
WEIGHTS = [
    "Traceback (most recent call last):",
    f'  File "{SITE}/vllm/v1/worker/gpu_model_runner.py", line 1820, in load_model',
    "    self.model = get_model(vllm_config=self.vllm_config)",
    f'  File "{SITE}/vllm/model_executor/layers/linear.py", line 387, in create_weights',
    "    weight = Parameter(torch.empty(output_size,",
    OOM,
]
START_FAILED = [f"ERROR 01-02 10:05:00 [core.py:586] {told}" for told in ("EngineCore failed to start.", *WEIGHTS)]
NO_PORT = [
    "Traceback (most recent call last):",
    '  File "/usr/local/bin/vllm", line 10, in <module>',
    "    sys.exit(main())",
    f'  File "{SITE}/vllm/entrypoints/openai/api_server.py", line 1008, in run_server',
    "    sock = create_server_socket(sock_addr)",
    "OSError: [Errno 98] Address already in use",
]
NO_DEVICE = ["RuntimeError: Failed to infer device type, please set the environment variable"]
NO_KERNELS = ["ERROR 01-02 10:05:00 [config.py:29] Failed to import Triton. Error: No module named 'triton_kernels.x'"]
DIED = [
    "ERROR 01-02 10:06:00 [core.py:710] EngineCore encountered a fatal error.",
    "ERROR 01-02 10:06:00 [core.py:710] Traceback (most recent call last):",
    f'ERROR 01-02 10:06:00 [core.py:710]   File "{SITE}/vllm/v1/engine/core.py", line 700, in run_engine_core',
    "ERROR 01-02 10:06:00 [core.py:710] torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
]


def _of_text(text: str) -> Diagnosis:
    read = stream(iter([text.encode()]))
    return diagnose(Snapshot(taken_at="2026-01-01", log=Known(cut(parse_lines(read), "log", 0, ()), "log")))


def _code(told: Diagnosis) -> str | None:
    return told.findings[0].code if told.findings else None


@pytest.mark.parametrize(
    ("failed", "code"), [(START_FAILED, "VD110"), (WEIGHTS, "VD110"), (NO_PORT, "VD510")], ids=["v1", "raw", "port"]
)
def test_a_start_that_failed_is_the_answer_whoever_serves_below_it(failed: list[str], code: str) -> None:
    assert _code(of_lines("\n".join([*material.run_0_9(), *failed, ANSWER, ANSWER]))) == code


def test_a_server_that_began_again_below_the_failure_is_well() -> None:
    assert of_lines("\n".join([*WEIGHTS, *material.run_0_9(), ANSWER])).verdict is Verdict.OK


@pytest.mark.parametrize(("said", "verdict"), [(NO_DEVICE, Verdict.UNKNOWN), (NO_KERNELS, Verdict.OK)])
def test_what_no_request_brings_about_stands_against_an_ok_unless_a_logger_tells_of_an_import(
    said: list[str], verdict: Verdict
) -> None:
    assert of_lines("\n".join([*material.run_0_9(), *said, ANSWER, ANSWER])).verdict is verdict


def _later(lines: list[str], minutes: int) -> list[str]:
    return [line.replace(" 10:0", f" 10:{minutes // 10}") for line in lines]


def test_of_two_pods_one_below_the_other_each_is_judged() -> None:
    failing = [*material.run_0_9()[:4], *START_FAILED]
    told = _of_text("\n".join([*failing, *material.run_0_9(), ANSWER]))
    assert (_code(told), [other.verdict for other in told.others]) == ("VD110", [Verdict.OK])


def test_one_text_over_and_over_is_no_hundred_pods() -> None:
    assert _of_text("\n".join(material.run_0_9() * 100)).others == ()


def test_of_two_runs_one_after_the_other_the_last_counts() -> None:
    told = _of_text("\n".join([*material.run_0_9()[:4], *START_FAILED, *_later(material.run_0_9(), 10), ANSWER]))
    assert (told.verdict, told.others) == (Verdict.OK, ())


@pytest.mark.parametrize(("answers", "code"), [(0, "VD705"), (4, None)])
def test_a_server_that_was_started_again_is_well_when_it_served_longer_than_the_one_that_died(
    answers: int, code: str | None
) -> None:
    again = [*_later(material.run_0_9(), 10)[:-1], *[ANSWER] * answers]
    assert _code(_of_text("\n".join([*material.run_0_9(), ANSWER, *DIED, *again]))) == code


def test_so_is_one_of_v0_whose_engine_logs_the_error_that_ended_it() -> None:
    died = [
        "ERROR 01-02 10:06:00 engine.py:158] RuntimeError('CUDA error: an illegal memory access was encountered')",
        "ERROR 01-02 10:06:00 engine.py:158] Traceback (most recent call last):",
        f'ERROR 01-02 10:06:00 engine.py:158]   File "{SITE}/vllm/engine/multiprocessing/engine.py", line 9, in start',
        "ERROR 01-02 10:06:00 engine.py:158]     self.run_engine_loop()",
        "ERROR 01-02 10:06:00 engine.py:158] RuntimeError: CUDA error: an illegal memory access was encountered",
    ]
    assert _code(_of_text("\n".join([*material.run_0_6(), *died, *_later(material.run_0_6(), 10)[:-1]]))) == "VD705"


@pytest.mark.parametrize(("last", "verdict"), [([], Verdict.UNKNOWN), ([ANSWER], Verdict.OK)])
def test_starts_that_follow_one_another_without_a_word_are_not_ok_before_a_request_is_answered(
    last: list[str], verdict: Verdict
) -> None:
    silent = [line for line in material.run_0_9() if line != ANSWER]
    told = _of_text("\n".join([*silent, *_later(silent, 10), *_later(silent, 20), *last]))
    assert told.verdict is verdict


def test_two_entries_of_many_lines_newest_first_are_read_from_the_oldest() -> None:
    entries = [
        {"timestamp": "2026-01-02T10:06:00Z", "message": "\n".join(DIED)},
        {"timestamp": "2026-01-02T10:00:00Z", "message": "\n".join(material.run_0_9())},
    ]
    for text in (json.dumps(entries), "\n".join(map(json.dumps, entries))):
        assert _code(_of_text(text)) == "VD705"

"""Whose ERROR, and whose traceback, tells of the engine."""

import pytest

from tests.log.judging import judged_text
from vllm_doctor.records.verdict import Verdict

SERVED = """(APIServer pid=1) INFO 11-20 10:00:03 [api_server.py:1839] vLLM API server version 0.11.0
(APIServer pid=1) INFO:     Application startup complete.
(APIServer pid=1) INFO:     127.0.0.1:40000 - "POST /v1/completions HTTP/1.1" 200 OK
"""


@pytest.mark.parametrize("module", ["core_client.py:564", "async_llm.py:480", "v1/engine/core_client.py:564"])
def test_an_error_of_who_speaks_with_the_engine_is_never_ok_however_it_was_cut(module: str) -> None:
    line = f"(APIServer pid=1) ERROR 11-20 10:30:05 [{module}] Engine core proc EngineCore_DP0 died une"
    assert judged_text(SERVED + line).verdict is not Verdict.OK
    works = '\n(APIServer pid=1) INFO:     127.0.0.1:40000 - "POST /v1/completions HTTP/1.1" 200 OK'
    assert judged_text(SERVED + line + works).verdict is Verdict.OK


def test_an_error_of_a_requests_handler_is_the_requests() -> None:
    line = "(APIServer pid=1) ERROR 11-20 10:30:05 [serving_chat.py:240] Error in preprocessing prompt inputs\n"
    assert judged_text(
        SERVED + line + '(APIServer pid=1) INFO:     127.0.0.1:4 - "GET /health HTTP/1.1" 200 OK'
    ).verdict is (Verdict.OK)


def test_a_process_that_python_says_to_have_ended_has_whatever_level_it_was_passed_on_with() -> None:
    head = "2026-11-20 10:00:00.123 | INFO     | vllm.uvicorn:run:1 - (EngineCore_DP0 pid=272) "
    told = [
        "Process EngineCore_DP0:",
        "Traceback (most recent call last):",
        '  File "/usr/lib/python3.12/site-packages/vllm/v1/engine/core.py", line 701, in run_engine_core',
        "    engine_core.run_busy_loop()",
        "ValueError: something odd",
    ]
    found = judged_text(SERVED + "\n".join(head + line for line in told))
    assert [f.code for f in found.findings] == ["VD599"]
    handled = judged_text(SERVED + "\n".join(head + line for line in told[1:]))
    assert handled.verdict is not Verdict.FINDING


@pytest.mark.parametrize(
    "end",
    [
        "(EngineCore_DP0 pid=272) Process EngineCore_DP0:",
        "(EngineCore_DP0 pid=272) Traceback (most recent c",
        '(EngineCore_DP0 pid=272) Traceback (most recent call last):\n(EngineCore_DP0 pid=272)   File "/u',
        '(APIServer pid=1) Traceback (most recent call last):\n(APIServer pid=1)   File "/usr/x.py", line 7, in run',
        "(EngineCore_DP0 pid=272) triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 1310",
        "(EngineCore_DP0 pid=272) INFO 11-20 10:31:00 [multiproc_executor.py:558] Parent process exited, terminating w",
    ],
)
def test_an_end_that_was_cut_anywhere_is_never_ok(end: str) -> None:
    assert judged_text(SERVED + end).verdict is not Verdict.OK


def test_an_engine_of_another_node_that_ended_is_a_finding_though_this_one_serves_on() -> None:
    tag = "(EngineCore_DP1 pid=999, ip=10.0.0.2) "
    told = [
        "Process EngineCore_DP1:",
        "Traceback (most recent call last):",
        '  File "/usr/lib/python3.12/site-packages/vllm/v1/engine/core.py", line 701, in run_engine_core',
        "    engine_core.run_busy_loop()",
        "ValueError: something odd",
    ]
    text = SERVED + "".join(f"{tag}{line}\n" for line in told) + SERVED.splitlines()[-1]
    assert [f.code for f in judged_text(text).findings] == ["VD599"]


UNCAUGHT = """[rank0]: Traceback (most recent call last):
[rank0]:   File "/srv/batch.py", line 8, in <module>
[rank0]:     llm = LLM("example/model-8b")
[rank0]: KeyError: 'layers.7.scale'
"""


def test_what_torch_s_hook_wrote_of_a_rank_ended_its_process_whoever_serves_on() -> None:
    head, _, tail = SERVED.partition("\n")
    told = judged_text(f"{head}\n{UNCAUGHT}{tail}")
    assert "KeyError: 'layers.7.scale'" in told.findings[0].evidence[0].excerpt


LOAD = "[LOADGEN] sample {} is done\n"
STATS = (
    "INFO 11-20 10:00:{} metrics.py:345] Avg prompt throughput: 294.0 tokens/s, Avg generation throughput: 36.2 "
    "tokens/s, Running: 1 reqs, Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 5.7%, CPU KV cache usage: 0.0%.\n"
)


def test_who_spoke_while_the_engine_served_may_go_on_after_it() -> None:
    served = STATS.format(10) + LOAD.format(1) + STATS.format(20)
    assert judged_text(served + LOAD.format(2)).verdict is Verdict.OK
    assert judged_text(STATS.format(10) + STATS.format(20) + LOAD.format(2)).verdict is Verdict.UNKNOWN
    assert judged_text(LOAD.format(1) + STATS.format(10) + STATS.format(20) + LOAD.format(2)).verdict is Verdict.UNKNOWN
    assert judged_text(served + "[LOADGEN] the server was killed\n").verdict is Verdict.UNKNOWN

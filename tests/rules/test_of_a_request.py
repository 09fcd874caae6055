"""A log that begins at a request that failed: only a server that is up takes one, so nothing is said of its start."""

import pytest

from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Severity
from vllm_doctor.render.vocabulary import effect, failed_while_serving
from vllm_doctor.rules.engine import diagnose

SITE = "/opt/v/lib/python3.12/site-packages"


@pytest.mark.parametrize(
    ("file", "function", "served"),
    [
        ("starlette/routing.py", "app", True),
        ("vllm/v1/engine/core.py", "_process_engine_step", True),
        ("vllm/entrypoints/openai/tool_parsers/hermes_tool_parser.py", "extract_tool_calls", True),
        ("vllm/model_executor/guided_decoding/xgrammar_decoding.py", "__call__", True),
        ("vllm/entrypoints/openai/tool_parsers/hermes_tool_parser.py", "<module>", False),
        ("vllm/entrypoints/openai/serving_chat.py", "__init__", False),
        ("vllm/entrypoints/openai/api_server.py", "app", False),
    ],
)
def test_what_fails_in_a_request_or_a_step_kept_nothing_from_starting(file: str, function: str, served: bool) -> None:
    lines = [
        "ERROR:    Exception in ASGI application" if "starlette" in file else "",
        "Traceback (most recent call last):",
        f'  File "{SITE}/{file}", line 76, in {function}',
        "    await run(request)",
        f'  File "{SITE}/vllm/engine/async_llm_engine.py", line 148, in generate',
        "    self.given.get(key)",
        "AttributeError: 'NoneType' object has no attribute 'get'",
    ]
    judged = diagnose(Snapshot(taken_at="", log=Known(log_of_lines(lines, "log"), "log")))
    told = (judged.findings[0].severity, effect(judged.findings[0], served=failed_while_serving(judged)))
    up, down = (Severity.WILL_FAIL_UNDER_LOAD, "failed while it served"), (Severity.BLOCKS_START, "does not start")
    assert told == (up if served else down)


def test_the_answer_of_a_stream_whose_parser_failed_is_no_sign_that_it_was_served() -> None:
    """A stream begins with 200; where the excerpt begins at the failure nothing else shows that the server was up."""
    call = f'  File "{SITE}/vllm/tool_parsers/hermes_tool_parser.py", line 280, in extract_tool_calls_streaming'
    lines = [
        "ERROR 03-04 10:10:10 [serving_chat.py:1103] Error in chat completion stream generator.",
        "ERROR 03-04 10:10:10 [serving_chat.py:1103] Traceback (most recent call last):",
        f"ERROR 03-04 10:10:10 [serving_chat.py:1103] {call}",
        'ERROR 03-04 10:10:10 [serving_chat.py:1103]     name = current.get("name")',
        "ERROR 03-04 10:10:10 [serving_chat.py:1103] AttributeError: 'str' object has no attribute 'get'",
        'INFO:     10.0.0.4:4100 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    ]
    judged = diagnose(Snapshot(taken_at="", log=Known(log_of_lines(lines, "log"), "log")))
    assert [(f.code, f.severity) for f in judged.findings] == [("VD529", Severity.DEGRADED)]


def test_where_the_clients_request_is_to_change_the_server_had_one() -> None:
    lines = [
        "INFO 06-01 10:00:00 [api_server.py:1351] vLLM API server version 0.13.0",
        "Traceback (most recent call last):",
        f'  File "{SITE}/xgrammar/grammar.py", line 214, in _get_structural_tag_str_from_args',
        "    raise TypeError(",
        "TypeError: Invalid arguments for from_structural_tag",
    ]
    judged = diagnose(Snapshot(taken_at="", log=Known(log_of_lines(lines, "log"), "log")))
    assert judged.findings[0].changes[0].name == "client-input"
    assert failed_while_serving(judged)

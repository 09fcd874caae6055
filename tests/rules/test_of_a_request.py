"""A log that begins at a request that failed: only a server that is up takes one, so nothing is said of its start."""

import pytest

from vllm_doctor.log.read.lines import log_of_lines
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Severity
from vllm_doctor.render.words import effect, failed_while_serving
from vllm_doctor.rules.engine import diagnose

SITE = "/opt/v/lib/python3.12/site-packages"


@pytest.mark.parametrize(
    ("file", "severity", "told"),
    [
        ("starlette/routing.py", Severity.WILL_FAIL_UNDER_LOAD, "failed while it served"),
        ("vllm/entrypoints/openai/api_server.py", Severity.BLOCKS_START, "does not start"),
    ],
)
def test_what_fails_below_the_servers_routes_kept_nothing_from_starting(
    file: str, severity: Severity, told: str
) -> None:
    lines = [
        "ERROR:    Exception in ASGI application" if "starlette" in file else "",
        "Traceback (most recent call last):",
        f'  File "{SITE}/{file}", line 76, in app',
        "    await run(request)",
        f'  File "{SITE}/vllm/engine/async_llm_engine.py", line 148, in generate',
        "    self.given.get(key)",
        "AttributeError: 'NoneType' object has no attribute 'get'",
    ]
    judged = diagnose(Snapshot(taken_at="", log=Known(log_of_lines(lines, "log"), "log")))
    assert judged.findings[0].severity is severity
    assert effect(judged.findings[0], served=failed_while_serving(judged)) == told

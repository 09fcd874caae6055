"""A log of several pods: the one that failed is named, and each other one has its line."""

import json
from pathlib import Path

import pytest

from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.main import run

SAID = "INFO 03-01 10:00:12 [api_server.py:1839] vLLM API server version 0.11.0"
READY = ("INFO:     Application startup complete.", 'INFO:     10.0.0.1:4 - "POST /v1/completions HTTP/1.1" 200 OK')
FAILED = "vllm: error: unrecognized arguments: --swap-space 4"


@pytest.fixture
def log(tmp_path: Path) -> str:
    good, bad = "[pod/vllm-7d9f6bcd54-x2kvb/vllm]", "[pod/vllm-7d9f6bcd54-m4nzc/vllm]"
    path = tmp_path / "two.log"
    said = ((good, SAID), (bad, SAID), (good, READY[0]), (bad, FAILED), (good, READY[1]))
    path.write_text("".join(f"{pod} {line}\n" for pod, line in said))
    return str(path)


def test_the_pod_that_failed_is_named_and_the_other_one_has_a_line(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diagnose", log]) == Exit.FINDINGS
    told = capsys.readouterr().out
    assert told.startswith("FINDING  pod/vllm-7d9f6bcd54-m4nzc/vllm does not start\n")
    assert "Other servers in this log\n  pod/vllm-7d9f6bcd54-x2kvb/vllm: no fault found" in told


def test_programs_are_told_of_both(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(["diagnose", "--format", "json", log])
    told = json.loads(capsys.readouterr().out)
    assert told["subject"]["place"] == "pod/vllm-7d9f6bcd54-m4nzc/vllm"
    (other,) = told["others"]
    assert (other["verdict"], other["subject"]["place"]) == ("ok", "pod/vllm-7d9f6bcd54-x2kvb/vllm")

"""A log that came as one thing is read as its lines: the same verdict, whatever carried it."""

import json

import pytest

from tests.log.judging import judged_text
from vllm_doctor.log.read.whole import split
from vllm_doctor.records.verdict import Verdict

HEALTHY = [
    "(APIServer pid=1) INFO 11-20 10:00:03 [api_server.py:1839] vLLM API server version 0.11.0",
    "(EngineCore_DP0 pid=272) INFO 11-20 10:00:06 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: m",
    "(APIServer pid=1) INFO:     Application startup complete.",
    '(APIServer pid=1) INFO:     127.0.0.1:40000 - "POST /v1/completions HTTP/1.1" 200 OK',
]
CRASHED = [*HEALTHY, "Fatal Python error: Segmentation fault", "", "Thread 0x00007f (most recent call first):"]


def _loki(lines: list[str], *, backward: bool = False) -> str:
    pairs = [[str(1700000000000000000 + at), line] for at, line in enumerate(lines)]
    streams = [{"stream": {"pod": "vllm"}, "values": pairs[::-1] if backward else pairs}]
    return json.dumps({"status": "success", "data": {"resultType": "streams", "result": streams}})


def _elastic(lines: list[str], *, backward: bool = False) -> str:
    hits = [{"_source": {"message": line, "@timestamp": f"2026-11-20T10:00:{at:02}Z"}} for at, line in enumerate(lines)]
    return json.dumps({"hits": {"hits": hits[::-1] if backward else hits}}, indent=1)


CARRIED = {
    "loki": _loki,
    "loki, newest first": lambda lines: _loki(lines, backward=True),
    "elastic": _elastic,
    "elastic, newest first": lambda lines: _elastic(lines, backward=True),
    "array": lambda lines: json.dumps(lines, indent=1),
    "one string of JSON": lambda lines: json.dumps("\n".join(lines))[1:-1],
    "Python's repr": lambda lines: repr("\n".join(lines)),
    "NUL": "\0".join,
    "fence": lambda lines: "\n".join(["```text", *lines, "```", ""]),
}


@pytest.mark.parametrize("carried", CARRIED)
def test_what_carried_a_log_changes_nothing(carried: str) -> None:
    assert split(CARRIED[carried](HEALTHY)).strip("\n").split("\n") == HEALTHY
    assert judged_text(CARRIED[carried](HEALTHY)).verdict is Verdict.OK
    assert [f.code for f in judged_text(CARRIED[carried](CRASHED)).findings] == ["VD601"]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(HEALTHY),
        "\n".join(json.dumps({"message": line, "timestamp": "2026"}) for line in HEALTHY),  # its reader knows more
        '{"model_type": "llama", "architectures": ["A", "B", "C", "D"]}\n'.replace("[", "{").replace("]", "}"),
        r"prompt: 'INFO: a\nb\nINFO c', params: x",
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
    ids=["lines", "a logger's JSON", "no JSON", "a prompt", "brackets", "braces"],
)
def test_anything_else_stays_as_it_is(text: str) -> None:
    assert split(text) == text

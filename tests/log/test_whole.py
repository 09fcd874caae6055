"""A log that came as one thing is read as its lines: the same verdict, whatever carried it."""

import json
import re
from pathlib import Path

import pytest

from tests.log.judging import judged_text
from vllm_doctor.gather.logfile import read_logs
from vllm_doctor.log.read.whole import split
from vllm_doctor.records.reading import Known, Unknown
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.rules.engine import diagnose

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
    "carriage returns": "\r".join,
    "fence": lambda lines: "\n".join(["```text", *lines, "```", ""]),
}


@pytest.mark.parametrize("carried", ["docker", "hole"])
def test_what_a_carrier_set_between_the_bytes_changes_nothing(carried: str, tmp_path: Path) -> None:
    """Docker's API frames each piece; a log that logrotate emptied while it was open begins with zeros."""
    for lines, verdict, codes in ((HEALTHY, Verdict.OK, []), (CRASHED, Verdict.FINDING, ["VD601"])):
        pieces = [f"{line}\n".encode() for line in lines]
        framed = b"".join(b"\x01\0\0\0" + len(piece).to_bytes(4, "big") + piece for piece in pieces)
        path = tmp_path / "log"
        path.write_bytes(framed if carried == "docker" else bytes(5 << 20) + b"".join(pieces))
        got = read_logs([str(path)])
        assert isinstance(got, Known)
        judged = diagnose(Snapshot(taken_at="", log=got))
        assert (judged.verdict, [f.code for f in judged.findings]) == (verdict, codes)


def test_zeros_alone_are_no_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(bytes(5 << 20))
    assert isinstance(read_logs([str(tmp_path / "log")]), Unknown)


@pytest.mark.parametrize("carried", CARRIED)
def test_what_carried_a_log_changes_nothing(carried: str) -> None:
    told = split(CARRIED[carried](HEALTHY)).strip("\n").split("\n")
    assert [re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", "", line) for line in told] == HEALTHY  # a store's own clock
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


def test_lines_that_a_page_joined_are_read_as_its_lines(tmp_path: Path) -> None:
    """Each has a head of its own; what stands before the first one stays with it, and an entry in JSON stays whole."""
    head = "(VllmWorkerProcess pid=27) ERROR 07-03 19:33:28 [multiproc_worker_utils.py:238] "
    told = ['File "/v/vllm/model_executor/models/qwen2_vl.py", line 84, in forward', "q = x", "RuntimeError: boom"]
    joined = "vllm-1  | " + " ".join(head + text for text in told)
    assert split(joined) == "vllm-1  | " + "\n".join(head + text for text in told)
    entry = json.dumps({"log": joined})
    assert split(entry) == entry


def _notebook(*outputs: dict[str, object]) -> str:
    cell = {
        "cell_type": "code",
        "source": ["import vllm\n", "llm = vllm.LLM(NAME)\n", "print(llm)"],
        "outputs": outputs,
    }
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def test_a_notebook_is_what_its_cells_printed_and_raised() -> None:
    printed = {"output_type": "stream", "name": "stdout", "text": [f"{line}\n" for line in HEALTHY]}
    at_once = {"output_type": "stream", "name": "stderr", "text": "one\ntwo\n"}
    raised = {
        "output_type": "error",
        "ename": "KeyError",
        "evalue": "'a'",
        "traceback": ["head\nbody", "KeyError: 'a'"],
    }
    shown = {"output_type": "execute_result", "data": {"text/plain": ["42"]}}
    read = split(_notebook(printed, at_once, raised, shown))
    assert read.splitlines() == [*HEALTHY, "one", "two", "head", "body", "KeyError: 'a'"]


@pytest.mark.parametrize("head", ["timestamp,message\n", ""])
def test_a_table_that_a_log_service_gave_out_is_read_as_what_its_rows_say(head: str) -> None:
    said = ["INFO 03-14 09:01:00 [api_server.py:1839] vLLM API server version 0.11.0", *HEALTHY]
    quoted = ['said "no", twice', "plain"]
    rows = [f"{1700000000000 + at},#033[36m(APIServer pid=1)#033[0;0m {line}#015" for at, line in enumerate(said)]
    rows += [f'{1700000001000},"{line.replace(chr(34), 2 * chr(34))}"' for line in quoted]
    read = split(head + "\n".join(rows) + "\n").splitlines()
    assert [line for line in read if line.strip()] == [
        *(f"\x1b[36m(APIServer pid=1)\x1b[0;0m {line}" for line in said),
        *quoted,
    ]

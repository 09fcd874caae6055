"""A table that a log service or a viewer gives out is read as the lines of its one column."""

import csv
import io

import pytest

from tests.log.judging import judged_text
from vllm_doctor.log.read.viewer_table import rows_said
from vllm_doctor.records.verdict import Verdict

SAID = [
    "(APIServer pid=1) INFO 11-20 10:00:03 [api_server.py:1839] vLLM API server version 0.11.0",
    'Loading "safetensors", checkpoint shards:  50%|█████     | 1/2 [00:02<00:02,  2.0s/it]',
    "(APIServer pid=1) INFO:     Application startup complete.",
    '(APIServer pid=1) INFO:     127.0.0.1:40000 - "POST /v1/completions HTTP/1.1" 200 OK',
]
TIMES = [f"2026-11-20T10:00:0{at}.100Z" for at in range(len(SAID))]
STAMPED = [f"{when} {line}" for when, line in zip(TIMES, SAID, strict=True)]


def _written(head: list[str], rows: list[list[str]], sign: str = ",") -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=sign, lineterminator="\n").writerows([head, *rows])
    return out.getvalue()


def _drawn(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _lines(text: str) -> list[str]:
    return [line for line in rows_said(text).split("\n") if line]


ROWS = [[when, line, '{pod="a-0"}'] for when, line in zip(TIMES, SAID, strict=True)]


@pytest.mark.parametrize(
    "text",
    [
        _written(["Time", "Line", "labels"], ROWS),
        _written(["@timestamp", "@message", "x"], ROWS),
        _written(["TimeGenerated [UTC]", "LogEntry", "x"], ROWS[::-1]),
        _written(["_time", "_raw", "x"], ROWS, "\t"),
        _drawn(["Time", "Message", "Labels"], ROWS),
        "Logs of the last hour:\n" + _drawn(["Time", "Message", "Labels"], ROWS),
        "-----\n" + _drawn(["@timestamp", "@message", "x"], ROWS[::-1]) + "\n-----\n",
    ],
    ids=["Loki", "CloudWatch", "Azure, newest first", "Splunk, tabs", "drawn", "drawn below a line", "Insights"],
)
def test_its_rows_are_the_lines_with_their_times(text: str) -> None:
    lines = [line for line in _lines(text) if not line.startswith("Logs of")]
    assert lines == STAMPED
    assert judged_text(text).verdict is Verdict.OK


def test_a_time_that_is_no_timestamp_of_a_machine_is_left_out() -> None:
    assert _lines(_written(["Date", "Message"], [["20 Nov, 10:00", line] for line in SAID])) == SAID


def test_a_cell_of_several_lines_is_those_lines() -> None:
    told = ['Traceback (most recent call last):\n  File "a.py", line 1, in f', "RuntimeError: boom", "end"]
    assert _lines(_written(["time", "message"], [["1", one] for one in told])) == "\n".join(told).split("\n")


def test_rows_of_several_pods_keep_their_names() -> None:
    rows = [["a-0", SAID[0]], ["a-1", SAID[0]], ["a-0", SAID[2]]]
    assert _lines(_written(["pod", "message"], rows)) == [f"[pod/{who}] {line}" for who, line in rows]


@pytest.mark.parametrize(
    "text",
    [
        "a line with a message, and a comma\nINFO: a, b\nINFO: c\nINFO: d",
        "time,message,host\nno,row,of,three\nand,another\nline",
        "| GPU  Name | Bus-Id |\n|---|---|\n| 0  A10 | 00000000:CB:00.0 |\n| 1  A10 | 00000000:CC:00.0 |",
        "requests,seconds\n1,2\n3,4\n5,6",
    ],
    ids=["a sentence", "other rows", "nvidia-smi", "a benchmark's"],
)
def test_anything_else_stays_as_it_is(text: str) -> None:
    assert rows_said(text) == text


def test_a_first_line_longer_than_any_head_is_no_head() -> None:
    text = "\n".join(["message," + "x" * 200_000, *SAID])
    assert rows_said(text) == text

"""Rows of JSON are read by where their text stands, whatever the fields are called."""

import json

import pytest

from tests.log.judging import judged_text
from tests.log.test_envelope import FAILS, SERVES
from vllm_doctor.log.read.json_rows import rows_read
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.render import sentences


@pytest.mark.parametrize(
    "row",
    [
        '{"Timestamp": "2026-03-06T09:10:01Z", "SeverityText": "INFO", "Body": TEXT}',
        '{"version": "1.1", "host": "n7", "short_message": TEXT}',
        '{"preview": false, "result": {"_raw": TEXT, "host": "n7"}}',
        '{"attributes": {"service": "vllm", "message": TEXT, "timestamp": "2026-03-06T09:10:01Z"}}',
        '2026-03-06 09:10:01 +0000 kubernetes.vllm.log: {"stream": "stderr", "log": TEXT}',
    ],
    ids=["OpenTelemetry", "GELF", "Splunk", "Datadog", "Fluentd"],
)
def test_of_each_line(row: str) -> None:
    for lines, codes in ((FAILS, ["VD503"]), (SERVES, [])):
        text = [row.replace("TEXT", json.dumps(line)) for line in lines]
        assert rows_read(text)[0] == lines
        assert [f.code for f in judged_text("\n".join(text)).findings] == codes


@pytest.mark.parametrize(
    "document",
    [
        '{"tables": [{"columns": ["t", "said"], "rows": [ROWS]}]}',
        '{"resourceLogs": [{"scopeLogs": [{"logRecords": [RECORDS]}]}]}',
    ],
    ids=["a table of Azure", "OTLP"],
)
def test_of_one_document(document: str) -> None:
    for lines, codes in ((FAILS, ["VD503"]), (SERVES, [])):
        rows = ", ".join(json.dumps(["2026-03-06T09:10:01Z", line]) for line in lines)
        records = ", ".join(json.dumps({"severityText": "INFO", "body": {"stringValue": line}}) for line in lines)
        told = judged_text(document.replace("ROWS", rows).replace("RECORDS", records))
        assert [f.code for f in told.findings] == codes
        assert told.verdict is (Verdict.FINDING if codes else Verdict.OK)


def test_a_logger_of_python_sets_level_file_and_calls_apart() -> None:
    """The calls of an exception are no part of `message` (logging.LogRecord, python-json-logger)."""
    rows = [
        {"name": "vllm.entrypoints.api_server", "levelname": "INFO", "filename": "api_server.py", "lineno": 1043,
         "message": "vLLM API server version 0.9.1"},
        {"name": "uvicorn.error", "levelname": "INFO", "message": "Waiting for application startup."},
        {"name": "vllm.v1.engine.core", "levelname": "ERROR", "filename": "core.py", "lineno": 390,
         "message": "EngineCore failed to start.", "exc_info": "\n".join(FAILS[2:])},
    ]  # fmt: skip
    text = [json.dumps(row) for row in rows]
    heads = rows_read(text)[1]
    assert [(head.level, head.module) for head in heads.values()] == [
        ("INFO", "api_server.py:1043"),
        ("INFO", "uvicorn"),
        ("ERROR", "core.py:390"),
    ]
    assert [f.code for f in judged_text("\n".join(text)).findings] == ["VD503"]


def test_two_pods_are_two_servers() -> None:
    rows = [
        json.dumps({"message": line, "kubernetes": {"pod": {"name": f"vllm-{pod}"}}})
        for both in zip(FAILS, SERVES, strict=True)
        for pod, line in enumerate(both)
    ]
    told = judged_text("\n".join(rows))
    assert [f.code for f in told.findings] == ["VD503"]
    assert [other.verdict for other in told.others] == [Verdict.OK]


def test_the_evidence_of_a_row_is_its_text_alone() -> None:
    """What stands behind the text in its row is the collector's."""
    rows = [json.dumps({"textPayload": line, "insertId": "a1", "severity": "ERROR"}) for line in FAILS]
    (found,) = judged_text("\n".join(rows)).findings
    assert all("insertId" not in item.excerpt or item.excerpt.startswith('{"textPayload"') for item in found.evidence)
    assert "insertId" not in sentences.because(found)


@pytest.mark.parametrize("row", ['{"a": 1}', '{"error": {"message": "m", "type": "BadRequestError", "code": 400}}'])
def test_other_objects_stay_as_they_are(row: str) -> None:
    assert rows_read([row] * 4) == ([row] * 4, {})

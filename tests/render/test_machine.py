"""JSON of the published schema."""

import json

import jsonschema
from sample import HOSTILE, diagnosis, finding

from vllm_doctor.render import machine


def test_the_shipped_schema_is_what_the_records_say() -> None:
    assert json.loads(machine.SCHEMA_FILE.read_text()) == machine.schema(), (
        "python -m vllm_doctor.render.machine writes it"
    )


def test_every_diagnosis_follows_the_schema() -> None:
    shipped = json.loads(machine.SCHEMA_FILE.read_text())
    jsonschema.Draft202012Validator.check_schema(shipped)
    for sample in (diagnosis(), diagnosis(finding()), diagnosis(finding(title=HOSTILE))):
        jsonschema.validate(json.loads(machine.dumps(sample)), shipped)


def test_the_words_of_the_contract() -> None:
    told = json.loads(machine.dumps(diagnosis(finding())))
    assert told["schema_version"] == 1
    assert told["verdict"] == "finding"
    change = told["findings"][0]["changes"][0]
    assert (change["from"], change["to"], change["direction"]) == (4096, 2048, "lower")
    assert {"code", "cause", "severity", "confidence", "evidence", "explained_by", "refute", "doc"} <= set(
        told["findings"][0]
    )


def test_hostile_text_is_ascii_in_json() -> None:
    told = machine.dumps(diagnosis(finding(title=HOSTILE)))
    assert told.isascii()
    assert "\x1b" not in told
    assert json.loads(told)["findings"][0]["title"] == HOSTILE

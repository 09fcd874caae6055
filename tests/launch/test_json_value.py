"""A value that is no JSON any more is given back as it was meant, where its text still shows that."""

import pytest

from tests.rules.test_ends import diagnosed
from vllm_doctor.launch.json_value import json_meant
from vllm_doctor.records.finding import Change

REFUSED = "api_server.py: error: argument --room-config: invalid loads value: {!r}"


def first_change(value: str) -> Change:
    return diagnosed(REFUSED.replace("--room-config", "--hf-overrides").format(value)).findings[0].changes[0]


@pytest.mark.parametrize(
    ("value", "meant", "word"),
    [
        ("{door: open, floors: 3}", {"door": "open", "floors": 3}, "shell"),
        ("{door:{kind:oak},lit:true}", {"door": {"kind": "oak"}, "lit": True}, "shell"),
        ("'{\"door\": 1}'", {"door": 1}, "outer"),
        ('{\\"door\\": 1}', {"door": 1}, "escaped"),
        ('{{"door": 1}}', {"door": 1}, "template"),
        ("{'door': 1}", {"door": 1}, "single"),
    ],
)
def test_one_change_on_the_way_is_undone(value: str, meant: dict[str, object], word: str) -> None:
    read, changed = json_meant(value)
    assert read == meant
    assert word in changed


@pytest.mark.parametrize("value", ["${ROOM}", "{{ .Values.room }}"])
def test_what_nobody_filled_in_is_not_guessed(value: str) -> None:
    read, changed = json_meant(value)
    assert read is None
    assert "filled in" in changed


def test_the_change_is_the_option_as_it_was_meant() -> None:
    assert first_change("{door: open}").after == '{"door": "open"}'
    assert "vLLM saw only {door=" in first_change("{door=").why

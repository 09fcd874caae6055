"""`history` on a store that its owner, who is not root, has filled with what a reader does not want."""

import json
import os
from pathlib import Path

import pytest

from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.main import run
from vllm_doctor.operate.history.store import Store
from vllm_doctor.operate.history.store_format import NAME, UnitEvent

ACTS = "\x1b[2J\x9b2J\u202e"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path))
    return tmp_path


def kept(state: Path, *events: UnitEvent) -> None:
    store = Store(state / NAME)
    for event in events:
        store.event(event)
    store.close()


def test_no_field_of_a_record_acts_on_the_terminal(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(state, UnitEvent(2e9, f"vllm{ACTS}", f"kind{ACTS}", f"text{ACTS}"))
    assert run(["history"]) == Exit.OK
    told = capsys.readouterr().out
    assert told.count("\\x1b[2J") == 3
    assert not set(ACTS[0] + "\x9b\u202e") & set(told)


def test_its_json_is_ascii_and_the_same_text(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(state, UnitEvent(2e9, f"vllm{ACTS}", "kind", f"text{ACTS}\x7f"))
    assert run(["history", "--format", "json"]) == Exit.OK
    told = capsys.readouterr().out
    assert told.strip().isprintable()
    (event,) = json.loads(told)["events"]
    assert (event["unit"], event["text"]) == (f"vllm{ACTS}", f"text{ACTS}\x7f")


def test_a_store_that_is_a_pipe_is_not_waited_for(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(state / NAME)
    assert run(["history"]) == Exit.INCOMPLETE
    assert "no file" in capsys.readouterr().out

"""Whoever started the server says how it ended: after that it is never ok, neither behind service nor behind a stop."""

import json
from pathlib import Path

import pytest

from tests.hostile.texts import SERVED, STOPPED
from vllm_doctor.log import match
from vllm_doctor.log.read.lines import log_of_lines
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.rules.engine import diagnose

ROWS = json.loads(Path(match.FOLDER, "ends.json").read_text(encoding="utf-8"))
ENDS = [sample["line"] for row in ROWS for sample in row["samples"]]
NONE = [line for row in ROWS for line in row.get("near_misses", ())]


def verdict(text: str) -> Verdict:
    log = log_of_lines(text.splitlines(), "log")
    return diagnose(Snapshot(taken_at="2026-01-01", log=Known(log, "log"))).verdict


@pytest.mark.parametrize("line", ENDS)
def test_an_end_that_is_told_is_never_ok(line: str) -> None:
    assert verdict(f"{SERVED}{line}\n") is not Verdict.OK
    assert verdict(f"{STOPPED}{line}\n") is not Verdict.OK


@pytest.mark.parametrize("line", NONE)
def test_what_ends_nothing_leaves_it_ok(line: str) -> None:
    assert verdict(f"{SERVED}{line}\n") is Verdict.OK


@pytest.mark.parametrize("line", ENDS)
def test_a_server_that_was_started_again_and_serves_is_ok(line: str) -> None:
    again = SERVED.replace("pid=1", "pid=11").replace("pid=2", "pid=12")
    assert verdict(f"{SERVED}{line}\n{again}") is Verdict.OK

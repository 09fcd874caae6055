"""Whoever started the server says how it ended: after that it is never ok, neither behind service nor behind a stop."""

import json
from pathlib import Path

import pytest

from tests.hostile.texts import SERVED, STOPPED
from tests.rules import log_material as material
from vllm_doctor.log import match
from vllm_doctor.log.read.lines import log_of_lines
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.rules.engine import diagnose

ROWS = json.loads(Path(match.FOLDER, "ends.json").read_text(encoding="utf-8"))
ENDS = [sample["line"] for row in ROWS if row["kind"] != "benign" for sample in row["samples"]]
NONE = [sample["line"] for row in ROWS if row["kind"] == "benign" for sample in row["samples"]]
for row in ROWS:
    (ENDS if row["kind"] == "benign" else NONE).extend(row.get("near_misses", ()))
# No message that is known, but a last word like any other.
UNSURE = {"[1] Killed", "it ends in a Floating point exception on other cards"}
# What runtimes, wrappers, supervisors and schedulers were seen to write last, none of which has a row of its own.
OTHERS = Path(__file__).with_name("logs").joinpath("last-words.txt").read_text(encoding="utf-8").splitlines()


def verdict(text: str) -> Verdict:
    log = log_of_lines(text.splitlines(), "log")
    return diagnose(Snapshot(taken_at="2026-01-01", log=Known(log, "log"))).verdict


@pytest.mark.parametrize("line", ENDS)
def test_an_end_that_is_told_is_never_ok(line: str) -> None:
    assert verdict(f"{SERVED}{line}\n") is not Verdict.OK
    assert verdict(f"{STOPPED}{line}\n") is not Verdict.OK


@pytest.mark.parametrize("line", OTHERS)
@pytest.mark.parametrize("release", material.STOPPED)
def test_whoever_has_the_last_word_of_an_end_it_is_never_ok(release: str, line: str) -> None:
    stopped = "\n".join(material.STOPPED[release])
    assert verdict(f"{stopped}\n{line}\n") is not Verdict.OK


@pytest.mark.parametrize("line", OTHERS)
@pytest.mark.parametrize("release", material.RUNNING)
def test_nor_under_a_server_that_serves_unless_it_goes_on(release: str, line: str) -> None:
    running = "\n".join(material.RUNNING[release])
    assert verdict(f"{running}\n{line}\n") is not Verdict.OK


def test_a_stop_from_outside_is_carried_out_by_a_kill() -> None:
    cancelled = "slurmstepd: error: *** STEP 811.1 ON gpu7 CANCELLED AT 2026-01-02T10:05:00 ***"
    killed = "srun: Job step aborted: Waiting up to 32 seconds.\nsrun: error: gpu7: task 0: Killed"
    assert verdict(f"{SERVED}{cancelled}\n{killed}\n") is Verdict.OK
    assert verdict(f"{SERVED}{killed}\n") is not Verdict.OK


@pytest.mark.parametrize("line", material.BENIGN)
def test_a_line_that_means_nothing_means_nothing_at_the_end(line: str) -> None:
    for healthy in (*material.RUNNING.values(), *material.STOPPED.values()):
        assert verdict("\n".join([*healthy, line])) is Verdict.OK


@pytest.mark.parametrize("line", sorted({*NONE} - UNSURE))
def test_what_ends_nothing_leaves_it_ok(line: str) -> None:
    assert verdict(f"{SERVED}{line}\n") is Verdict.OK


@pytest.mark.parametrize("line", ENDS)
def test_a_server_that_was_started_again_and_serves_is_ok(line: str) -> None:
    again = SERVED.replace("pid=1", "pid=11").replace("pid=2", "pid=12")
    assert verdict(f"{SERVED}{line}\n{again}") is Verdict.OK

"""A failure is never hidden: whatever stands before, between or around a log's lines, what it says stays."""

import functools
import os
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.rules import log_material as material
from tests.scenarios.loading import FOLDER
from vllm_doctor.gather.logfile import read_logs
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.rules.engine import diagnose

Said = tuple[Verdict, str | None]

# Every log with every end, envelope and line: `make logs`. Here, a sample that the seed fixes.
WHOLE = os.environ.get("VLLM_DOCTOR_ALL_LOGS") == "1"
LOGS = sorted(path.parent.name for path in FOLDER.glob("*/log.txt"))
# Lines of a report, which speak of vLLM and were not written by it; a page that shows the newest entry first.
NOT_AFTER_ANOTHER = {"vd301-quoted-alone-fires", "vd301-quoted-large-near-miss", "vd130-newest-first-fires"}


def said(lines: Sequence[str]) -> Said:
    return said_of(("\n".join(lines) + "\n").encode())


def said_of(*files: bytes) -> Said:
    """The verdict and the first code on files, which go through the real reader."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{number}.log") for number, _ in enumerate(files)]
        for path, content in zip(paths, files, strict=True):
            path.write_bytes(content)
        log = read_logs([str(path) for path in paths])
    found = diagnose(Snapshot(taken_at="2026-01-03T00:00:00+00:00", log=log))
    return found.verdict, found.findings[0].code if found.findings else None


def text(name: str) -> list[str]:
    return (FOLDER / name / "log.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")


@functools.cache
def alone(name: str) -> Said:
    return said(text(name))


def sample(count: int, seed: str) -> list[str]:
    return LOGS if WHOLE else sorted(random.Random(seed).sample(LOGS, count))


@pytest.mark.parametrize("release", material.STOPPED)
def test_an_orderly_stop_with_its_noise_is_no_failure(release: str) -> None:
    assert said(material.STOPPED[release]) == (Verdict.OK, None)


@pytest.mark.parametrize("tail", material.EARLY)
@pytest.mark.parametrize("release", material.STOPPED)
def test_a_start_that_fails_before_it_names_itself_is_judged_after_a_stop(release: str, tail: str) -> None:
    alone = said([tail])
    assert alone[0] is Verdict.FINDING
    assert said([*material.STOPPED[release], tail]) == alone


@pytest.mark.parametrize("tail", material.EARLY)
@pytest.mark.parametrize("release", material.RUNNING)
def test_what_fails_under_a_running_server_is_never_ok(release: str, tail: str) -> None:
    assert said([*material.RUNNING[release], tail])[0] is Verdict.FINDING


@pytest.mark.parametrize("release", material.STOPPED)
@pytest.mark.parametrize("name", sample(24, "stopped"))
def test_a_run_that_was_stopped_before_changes_nothing(release: str, name: str) -> None:
    if name in NOT_AFTER_ANOTHER:
        pytest.skip("it is no run that follows another one")
    assert said([*material.STOPPED[release], *text(name)]) == alone(name)

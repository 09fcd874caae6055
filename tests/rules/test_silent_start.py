"""A start that says nothing more: how long, and where to look; a file knows of no clock, and says so."""

import msgspec
import pytest

from vllm_doctor.records.host import Gpu, Probe, Unit
from vllm_doctor.records.log import Log, LogLine, RunLines
from vllm_doctor.records.reading import Known, Unknown
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.rules.engine import diagnose

STARTED = (
    "vLLM API server version 0.19.1",
    "Initializing a V1 LLM engine (v0.19.1) with config: model='example/model-8b'",
    "Starting to load model example/model-8b...",
    "Model loading took 14.99 GiB memory and 4.2 seconds",
    "Encoder cache will be initialized with a budget of 16384 tokens, and profiled with 1 image items",
)


def snapshot(last: str | None, *, live: bool = True) -> Snapshot:
    lines = tuple(
        LogLine(n, text, at="2026-03-14T09:00:00+00:00" if last else None) for n, text in enumerate(STARTED, 1)
    )
    if last:
        lines = (*lines[:-1], msgspec.structs.replace(lines[-1], at=last))
    unit = Unit(
        name="vllm.service",
        load_state="loaded",
        active_state="activating",
        sub_state="start",
        result="success",
        main_pid=4100,
    )
    return Snapshot(
        taken_at="2026-03-14T09:30:00+00:00",
        log=Known(Log("journal", RunLines(lines)), "journalctl"),
        unit=Known(unit, "systemctl show") if live else Unknown("not given", ""),
        probe=Known(Probe(health_error="connection refused"), "http://127.0.0.1:8000") if live else Unknown("x", ""),
        gpus=Known((Gpu(0, "NVIDIA H100"),), "nvidia-smi"),
        live=live,
    )


def said(shot: Snapshot) -> str:
    verdict = diagnose(shot)
    assert verdict.verdict is Verdict.UNKNOWN
    return verdict.path[-1].because


def test_a_long_silence_is_told_with_its_length_its_step_and_where_to_look() -> None:
    text = said(snapshot("2026-03-14T09:18:00+00:00"))
    assert "12 minutes old" in text
    assert "py-spy dump" in text
    assert "limit-mm-per-prompt" in text


@pytest.mark.parametrize("last", ["2026-03-14T09:27:00+00:00", "2026-03-14T09:08:00", None])
def test_a_short_silence_or_an_unknown_time_is_only_a_start_that_goes_on(last: str | None) -> None:
    assert "run diagnose again when it has started" in said(snapshot(last))


def test_a_file_says_where_to_look_if_minutes_pass() -> None:
    text = said(snapshot("2026-03-14T09:08:00+00:00", live=False))
    assert "if the log stays silent for minutes" in text
    assert "py-spy dump" in text

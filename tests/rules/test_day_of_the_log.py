"""A log that names no release was not written by a later one than its day had: no option of a later one is offered."""

import json
from pathlib import Path

import pytest

from vllm_doctor.knowledge import versions
from vllm_doctor.log.read.assemble import log_of_lines
from vllm_doctor.records.reading import Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.rules.case import Case

BANNER = "INFO 01-06 15:47:02 [__init__.py:1] Initializing an LLM engine (v{}) with config: model='m/tiny'"


def release(*lines: str) -> str:
    return str(Case(Snapshot(taken_at="", log=Known(log_of_lines(list(lines), "log"), "log"))).release)


@pytest.mark.parametrize(
    ("lines", "stands_in"),
    [
        ([BANNER.format("0.1.dev3896+ga491d6f.d20250103")], "0.6.6"),
        ([BANNER.format("0.7.2")], "0.7.2"),
        (["2025-03-13T08:00:58Z INFO 03-13 08:00:58 engine.py:12] Initializing"], "0.7.3"),
        (["2025-03-18T08:00:58Z INFO 03-18 08:00:58 engine.py:12] Initializing"], "0.8.0"),
        (["2031-03-18T08:00:58Z INFO 03-18 08:00:58 engine.py:12] Initializing"], "newest"),
        (["2001-03-18T08:00:58Z INFO 03-18 08:00:58 engine.py:12] Initializing"], "newest"),
        (["INFO 03-18 08:00:58 engine.py:12] Initializing"], "newest"),
        ([BANNER.format("0.1.dev16040+g93ea1fcd5")], "newest"),
    ],
)
def test_the_release_that_stands_in_was_out_on_that_day(lines: list[str], stands_in: str) -> None:
    newest = str(versions.newest_known())
    assert release(*lines) == (newest if stands_in == "newest" else stands_in)


def test_each_release_has_its_day_and_each_day_its_order() -> None:
    file = Path(versions.__file__).with_name("released.json")
    days: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))["days"]
    assert {versions.as_version(name) for name in days} == {*versions.sampled()}
    assert sorted(days.values()) == list(days.values())

"""What holds for every message: its wordings are read, its near misses are not, and it says what it is."""

import json
import re

import pytest

from vllm_doctor.log.match import FOLDER, Message, messages, read, scan
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.log import LogLine

EVERY_MESSAGE = pytest.mark.parametrize("message", messages(), ids=lambda m: m.id)
WRITERS = {"API server", "engine", "worker", "driver", "kernel", "systemd", "terminal", "Slurm"}


def test_no_id_stands_twice() -> None:
    ids = [row["id"] for path in FOLDER.glob("*.json") for row in json.loads(path.read_text("utf-8"))]
    assert sorted(ids) == sorted(set(ids))


@EVERY_MESSAGE
def test_every_wording_is_read_with_its_fields(message: Message) -> None:
    assert message.samples
    for sample in message.samples:
        assert sample.versions
        fields = read(message, sample.line)
        assert fields is not None, sample.line
        for name, value in sample.fields.items():
            assert fields.get(name) == value, sample.line


@EVERY_MESSAGE
def test_near_misses_are_not_read(message: Message) -> None:
    for line in message.near_misses:
        assert read(message, line) is None, line


@EVERY_MESSAGE
def test_it_says_what_it_is(message: Message) -> None:
    assert not message.process or set(message.process.split(", ")) <= WRITERS
    assert not (message.phase or message.stops) or message.kind == "benign"
    if message.phase:
        StartupPhase(message.phase)


def test_a_result_of_nccl_that_gives_no_reason_leaves_it_to_a_line_before() -> None:
    assert {m.id for m in messages() if m.defers} == {"nccl-system", "nccl-unhandled", "nccl-internal"}
    assert all(m.kind == "cause" for m in messages() if m.defers)


@pytest.mark.parametrize("message", [m for m in messages() if m.scope == "log"], ids=lambda m: m.id)
def test_it_names_the_file_or_the_program_that_writes_it(message: Message) -> None:
    programs = [s.versions for s in message.samples if s.versions != "all" and not s.versions[0].isdigit()]
    assert message.source or programs


@EVERY_MESSAGE
def test_each_field_has_its_unit(message: Message) -> None:
    assert set(message.fields) == set(re.compile(message.regex).groupindex)
    assert all(message.fields.values())


@EVERY_MESSAGE
def test_what_is_looked_for_in_every_line_has_an_anchor(message: Message) -> None:
    assert message.anchor if message.scope == "log" else message.anchor or message.regex or message.near


@pytest.mark.parametrize("message", [m for m in messages() if m.scope == "log"], ids=lambda m: m.id)
def test_it_is_found_among_other_lines(message: Message) -> None:
    lines = [
        LogLine(1, "before"),
        *(LogLine(n + 2, s.line) for n, s in enumerate(message.samples)),
        LogLine(99, "after"),
    ]
    assert sum(h.id == message.id for h in scan(lines)) == len(message.samples)

"""What holds for every message: its wordings are read, its near misses are not, and roles and stages are known ones."""

import pytest

from vllm_doctor.log.match import Message, ids_from_json, messages, read, scan
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.records.log import LogLine

EVERY_MESSAGE = pytest.mark.parametrize("message", messages(), ids=lambda m: m.id)


def test_no_id_stands_twice() -> None:
    ids = ids_from_json()
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
def test_role_and_stage_are_known(message: Message) -> None:
    assert message.role in {"cause", "death", "mile", "number", "stop", "note"}
    assert (message.role == "mile") == bool(message.stage)
    if message.stage:
        StartupPhase(message.stage)


@EVERY_MESSAGE
def test_it_is_found_among_other_lines(message: Message) -> None:
    lines = [
        LogLine(1, "before"),
        *(LogLine(n + 2, s.line) for n, s in enumerate(message.samples)),
        LogLine(99, "after"),
    ]
    assert sum(h.id == message.id for h in scan(lines)) == len(message.samples)

"""by_message.toml: each row names messages and fields of the catalogue, and changes that a release has."""

import re
from pathlib import Path

import msgspec
import pytest

from tests.scenarios.loading import snapshot
from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.answers import Answer
from vllm_doctor.log.match import catalogue, pattern
from vllm_doctor.records.finding import Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Applicability, ChangeKind, Direction
from vllm_doctor.render.instructions import deed
from vllm_doctor.rules.by_message import TABLE, MessageRow, by_message, table
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.order import by_code
from vllm_doctor.rules.registry import loaded
from vllm_doctor.rules.remedies.answer import changes_of

ROWS = [(code, row) for code, rows in table().items() for row in rows]
EVERY_ROW = pytest.mark.parametrize(("code", "row"), ROWS, ids=[f"{code}-{row.messages[0]}" for code, row in ROWS])
NAMED = re.compile(r"\{(\w+)\}")


def test_every_code_of_the_table_has_a_row_in_the_order_and_no_module() -> None:
    for code in table():
        assert not by_code()[code].page.with_suffix(".py").exists()
        assert loaded(code) is by_message(code)
    assert by_message("VD121") is None


@EVERY_ROW
def test_its_messages_are_causes_of_the_catalogue_and_have_the_fields_that_it_names(code: str, row: MessageRow) -> None:
    known = catalogue()
    fields = {name for one in row.messages for name in pattern(one).groupindex}
    assert {known[one].kind for one in row.messages} == {"cause"}, code
    assert set(NAMED.findall(row.title)) <= fields
    assert {n for a in row.answers for n in NAMED.findall(a.command or "")} <= {*fields, "model"}
    assert {n for a in row.answers for n in NAMED.findall(f"{a.to} {a.why}")} <= fields
    assert {one for a in row.answers for one in a.messages} <= set(row.messages)
    assert bool(row.unless or row.unless_in or row.only_in) == bool(row.because)
    assert not row.unless_in or known[row.unless_in].scope == "file"


@EVERY_ROW
def test_a_release_has_what_it_answers_with(code: str, row: MessageRow) -> None:
    for answer in row.answers:
        if answer.kind == "flag":
            assert any(versions.flag(answer.options[0], at) is not None for at in ("0.9.2", "0.33.0")), code
        assert answer.options or answer.kind in {"upgrade", "kernel", "pool"}, code


@EVERY_ROW
def test_it_says_what_to_do_in_words(code: str, row: MessageRow) -> None:
    assert row.answers, "write [[CODE.answers]] in rules/by_message.toml"
    for answer in row.answers:
        if answer.kind in {"os", "hardware"} and answer.direction is Direction.CHANGE:
            name = answer.options[0]
            change = Change(ChangeKind.OS, name, None, answer.to, answer.direction, Applicability.MANUAL, None)
            assert not deed(change).startswith("change "), f"say in render/instructions.py what to do with {name}"


def test_what_a_rule_reads_follows_from_its_answers() -> None:
    assert loaded("VD517").reads == {Signal.LOG}
    assert loaded("VD516").reads == {Signal.LOG, Signal.LAUNCH, Signal.VERSION}
    assert loaded("VD512").reads == {Signal.LOG, Signal.LAUNCH, Signal.VERSION}
    assert loaded("VD520").reads == {Signal.LOG, Signal.LAUNCH, Signal.VERSION, Signal.GPUS}


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('confidence = "likely"', 'confidence = "sure"', "sure"),
        ("refute =", "refuted =", "refute"),
        ('kind = "upgrade"', 'kind = "update"', "update"),
        ('kind = "flag"', 'kind = "env"', "not the name of a variable"),
    ],
)
def test_a_key_or_a_word_that_a_row_may_not_have_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, old: str, new: str, why: str
) -> None:
    file = tmp_path / "by_message.toml"
    file.write_text(TABLE.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    monkeypatch.setattr("vllm_doctor.rules.by_message.TABLE", file)
    with pytest.raises(msgspec.ValidationError, match=rf"^by_message.toml, \[\[VD\d+\]\]: .*{why}"):
        table.__wrapped__()


def test_an_answer_writes_the_figures_of_the_message_and_is_not_given_without_them() -> None:
    case = Case(snapshot("vd501-gone-early-fires"))
    answer = Answer(kind="flag", options=("max-model-len",), to="{rows}", why="the table has {rows} rows")
    (change,) = changes_of(case, (answer,), "", fields={"rows": "8192"})
    assert (change.name, change.after, change.why) == ("max-model-len", 8192, "the table has 8192 rows")
    assert changes_of(case, (answer,), "") == ()


@pytest.mark.parametrize(("backend", "given"), [("marlin", False), ("cutlass", True)])
def test_a_variable_is_not_set_to_a_value_that_the_release_refuses(backend: str, given: bool) -> None:
    case = Case(snapshot("vd603-offload-halved-fires"))
    assert str(case.version) == "0.12.0"
    answer = Answer(kind="env", options=("VLLM_NVFP4_GEMM_BACKEND",), to=backend)
    assert bool(changes_of(case, (answer,), "")) == given

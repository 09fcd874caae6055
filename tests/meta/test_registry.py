"""What holds for every rule, whoever adds it."""

import re
from pathlib import Path

import pytest

import vllm_doctor
from tests.scenarios.loading import diagnosis, names, scenario, snapshot
from vllm_doctor.records.verdict import Cause
from vllm_doctor.rules.by_message import by_message
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.chart import NODES
from vllm_doctor.rules.engine import ask
from vllm_doctor.rules.explain import HEADINGS, page
from vllm_doctor.rules.order import FAMILIES, INTERNAL, TABLE, by_code, retired, rows
from vllm_doctor.rules.outcome import Rule
from vllm_doctor.rules.registry import rules
from vllm_doctor.rules.say import TITLE

PACKAGE = Path(vllm_doctor.__file__).parent
EVERY_RULE = pytest.mark.parametrize("rule", rules(), ids=lambda r: r.code)


WITH_MODULE = tuple(rule for rule in rules() if by_message(rule.code) is None)


def module_of(rule: Rule) -> Path:
    path = rule.judge.__code__.co_filename
    return Path(path)


def test_codes_are_unique_and_never_reused() -> None:
    codes = [r.code for r in rows()]
    assert len(codes) == len(set(codes))
    assert not set(codes) & {*retired(), INTERNAL}
    assert {old.replaced_by for old in retired().values()} <= {*codes, *retired(), ""}
    assert len({r.name for r in rows()}) == len(codes)


@EVERY_RULE
def test_its_page_is_named_by_its_code(rule: Rule) -> None:
    assert re.fullmatch(r"VD\d{3}", rule.code)
    assert rule.page.stem.startswith(f"{rule.code.lower()}_")
    assert rule.page.is_file()


@pytest.mark.parametrize("rule", WITH_MODULE, ids=lambda r: r.code)
def test_its_module_and_its_row_are_named_by_its_code(rule: Rule) -> None:
    assert rule.judge.__module__ == rule.module
    assert module_of(rule).stem.startswith(f"{rule.code.lower()}_")


def test_every_module_of_a_family_is_a_rule_with_a_row_in_the_order() -> None:
    modules = {p for family in FAMILIES.values() for p in (PACKAGE / "rules" / family).glob("*.py")}
    assert {p for p in modules if p.name != "__init__.py"} == {module_of(r) for r in WITH_MODULE}


def test_the_order_is_a_table_that_can_be_read() -> None:
    """A new row keeps the columns straight: the table is read as text."""
    table = TABLE.read_text(encoding="utf-8").partition("## Retired")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    bars = {tuple(i for i, char in enumerate(line) if char == "|") for line in lines}
    assert len(bars) == 1, "columns of ORDER.md are not aligned"


@EVERY_RULE
def test_it_stands_on_the_chart(rule: Rule) -> None:
    assert rule.node in {n.id for n in NODES}
    assert rule.refines <= set(by_code())


@EVERY_RULE
def test_it_has_a_page_with_the_fixed_headings(rule: Rule) -> None:
    text = page(rule)
    assert text.startswith(f"# {rule.code} ")
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == list(HEADINGS)
    sections = re.split(r"^## .*$", text, flags=re.MULTILINE)
    assert all(s.strip() for s in sections), "a heading without a text"
    assert "WRITE:" not in text, "tools/new_rule.py asks for words of yours"


@EVERY_RULE
def test_it_has_a_firing_a_near_miss_and_an_unknown_scenario(rule: Rule) -> None:
    kinds = {scenario(n)["expect"] for n in names() if scenario(n)["rule"] == rule.code}
    assert "finding" in kinds
    assert kinds & {"clear", "not-here"}
    assert "unseen" in kinds


@EVERY_RULE
def test_it_reads_what_it_declares(rule: Rule) -> None:
    touched = set()
    for name in names():
        if scenario(name)["rule"] == rule.code:
            case = Case(snapshot(name))
            ask(rule, case)
            touched |= case.touched
    assert touched == rule.reads, (
        "declare what is read, or add a scenario that reads it: of a row, one in which each answer applies"
    )


def test_every_cause_has_a_rule() -> None:
    assert {r.cause for r in rules()} == set(Cause) - {Cause.HEALTHY}


def test_every_page_belongs_to_a_rule() -> None:
    assert set((PACKAGE / "rules").glob("*/vd*.md")) == {r.page for r in rules()}


def test_a_title_is_one_line_and_what_it_cannot_hold_is_its_detail() -> None:
    """None is cut: what is left out of a title stands in the detail."""
    told = [finding for name in names() for finding in diagnosis(name).findings]
    assert [f.title for f in told if len(f.title) > TITLE] == []
    assert [f.title for f in told if f.title.count("(") != f.title.count(")")] == []
    assert [rule.title for rule in rules() if len(rule.title) > TITLE] == []


@pytest.mark.parametrize(
    ("above", "below"),
    [
        ("VD704", "VD101"),
        ("VD101", "VD603"),
        ("VD101", "VD120"),
        ("VD603", "VD121"),
        ("VD121", "VD301"),
        ("VD301", "VD907"),
    ],
)
def test_the_order_is_the_one_that_its_page_claims(above: str, below: str) -> None:
    """Hardware, others that hold the memory, the host, the launch, the load: a row that sinks explains nothing."""
    position = {row.code: row.position for row in rows()}
    assert position[above] < position[below]

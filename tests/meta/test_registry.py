"""What holds for every rule, whoever adds it."""

import ast
import re
from pathlib import Path

import pytest

import vllm_doctor
from tests.scenarios.loading import diagnosis, names, scenario, snapshot
from vllm_doctor.records.verdict import Cause
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.chart import NODES
from vllm_doctor.rules.engine import ask
from vllm_doctor.rules.explain import HEADINGS, page
from vllm_doctor.rules.registry import INTERNAL, RETIRED, Rule, by_code, rules
from vllm_doctor.rules.say import TITLE

PACKAGE = Path(vllm_doctor.__file__).parent
HUNDREDS = {
    "startup": "1",
    "burst": "2",
    "pressure": "3",
    "prefix": "4",
    "launch": "5",
    "host": "6",
    "platform": "7",
    "multigpu": "8",
    "live": "9",
}
EVERY_RULE = pytest.mark.parametrize("rule", rules(), ids=lambda r: r.code)


def module_of(rule: Rule) -> Path:
    path = rule.judge.__code__.co_filename
    return Path(path)


def test_codes_are_unique_and_never_reused() -> None:
    codes = [r.code for r in rules()]
    assert len(codes) == len(set(codes))
    assert not set(codes) & (RETIRED | {INTERNAL})
    assert len({r.slug for r in rules()}) == len(codes)


@EVERY_RULE
def test_the_code_says_its_family(rule: Rule) -> None:
    assert re.fullmatch(r"VD\d{3}", rule.code)
    assert rule.code[2] == HUNDREDS[module_of(rule).parent.name]


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
    assert touched == rule.reads, "declare what is read, or add a scenario that reads it"


def test_every_cause_has_a_rule() -> None:
    assert {r.cause for r in rules()} == set(Cause) - {Cause.HEALTHY}


def test_every_page_belongs_to_a_rule() -> None:
    pages = {p.with_suffix(".py") for p in (PACKAGE / "rules").glob("*/*.md")}
    assert pages == {module_of(r) for r in rules()}


def test_rules_never_gather() -> None:
    for path in (PACKAGE / "rules").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            bad = [
                n
                for n in names
                if n.startswith(("vllm_doctor.gather", "vllm_doctor.render", "vllm_doctor.cli", "vllm_doctor.remedy"))
            ]
            assert not bad, f"{path.name} imports {bad}"


def test_a_title_is_one_line_and_what_it_cannot_hold_is_its_detail() -> None:
    """None is cut: what is left out of a title stands in the detail."""
    told = [finding for name in names() for finding in diagnosis(name).findings]
    assert [f.title for f in told if len(f.title) > TITLE] == []
    assert [f.title for f in told if f.title.count("(") != f.title.count(")")] == []
    assert [rule.title for rule in rules() if len(rule.title) > TITLE] == []

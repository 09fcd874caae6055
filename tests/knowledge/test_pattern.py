"""Patterns are compiled when a log asks for them, and every one of them can be."""

import gc
import importlib
import pkgutil
import re
from types import ModuleType

import pytest

import vllm_doctor.knowledge
import vllm_doctor.rules
from vllm_doctor.knowledge.pattern import Pattern


def modules() -> list[ModuleType]:
    return [
        importlib.import_module(found.name)
        for package in (vllm_doctor.rules, vllm_doctor.knowledge)
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]


def test_every_pattern_compiles() -> None:
    modules()
    patterns = [thing for thing in gc.get_objects() if isinstance(thing, Pattern)]
    assert len(patterns) > 40
    for pattern in patterns:
        assert pattern.compiled.pattern == pattern.text


def test_no_rule_compiles_a_pattern_that_no_log_has_asked_for() -> None:
    early = [
        f"{module.__name__}.{name}"
        for module in modules()
        for name, value in vars(module).items()
        if isinstance(value, re.Pattern)
    ]
    assert early == []


def test_it_answers_as_the_compiled_one_does() -> None:
    pattern = Pattern(r"(\w)=(\d)", re.IGNORECASE)
    compiled = re.compile(r"(\w)=(\d)", re.IGNORECASE)
    text = "a=1, B=2"
    for found, wanted in (
        (pattern.search(text, 3), compiled.search(text, 3)),
        (pattern.match(text, 5), compiled.match(text, 5)),
        (pattern.fullmatch("a=1"), compiled.fullmatch("a=1")),
    ):
        assert found is not None
        assert wanted is not None
        assert found.span() == wanted.span()
    assert pattern.search(text, 0, 2) is None
    assert [found.groups() for found in pattern.finditer(text)] == compiled.findall(text)
    assert pattern.split(text) == compiled.split(text)
    assert pattern.sub(r"\2", text) == "1, 2"


def test_a_mistake_shows_at_the_first_use() -> None:
    pattern = Pattern("(")
    with pytest.raises(re.error):
        pattern.search("")

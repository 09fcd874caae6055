"""`--help` of every command: each option says what it takes, and the examples are commands that parse."""

import re
import shlex
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import typer

from vllm_doctor.cli import choices
from vllm_doctor.cli.app import _MODULES, app
from vllm_doctor.records.verdict import Severity
from vllm_doctor.remedy.medium import Medium


def command(name: str) -> Any:
    """The command of this name as it is parsed; typer's own copy of click has no public types."""
    whole: Any = typer.main.get_command(app(name))
    return whole.commands[name]


def page(name: str) -> str:
    made = command(name)
    text: str = made.get_help(typer.Context(made, info_name=name, terminal_width=80, max_content_width=80))
    return text


def examples(name: str) -> Iterator[str]:
    """The commands among the examples, without what is said beside them, and without what a pipe or a file gets."""
    for line in (command(name).epilog or "").splitlines():
        typed = re.split(r"\s{2,}", line.strip())[0]
        _, found, rest = typed.rpartition("vllm-doctor ")
        if found:
            yield re.split(r" [|>] ", rest)[0]


@pytest.mark.parametrize("name", _MODULES)
def test_every_option_says_what_it_takes(name: str) -> None:
    # typer's own word for a plain text or number.
    assert not re.findall(r"<[a-z ]+(?:\|[a-z ]+)*>|\b(?:TEXT|INTEGER|FLOAT)\b", page(name))


@pytest.mark.parametrize("name", _MODULES)
def test_the_help_has_examples_that_parse(name: str) -> None:
    own = [words for words in map(shlex.split, examples(name)) if words[0] == name]
    assert own or any("| vllm-doctor" in line for line in (command(name).epilog or "").splitlines())
    for example in examples(name):
        called, *words = shlex.split(example)
        command(called).make_context(called, words)


def test_the_words_that_an_option_takes_are_those_that_the_doctor_knows() -> None:
    # cli/choices.py repeats them, for --help and completion import neither the records nor the writers.
    assert get_args(choices.MediumName) == tuple(Medium)
    assert set(get_args(choices.FailOn)) == set(Severity)

"""What the documents tell a reader to type exists: the doctor's options, make's targets, programs, files."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from vllm_doctor.cli.app import app

REPO = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "roles/*/README.md", "tests/*/README.md")
    for path in REPO.glob(pattern)
)
_BLOCK = re.compile(r"^```(?:sh|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# What a reader makes as the document says, and what the checkout has in its place.
_MADE = {"inventories/mine": "inventories/example"}
_OF_THE_CHECKOUT = re.compile(r"(?:tools|playbooks|inventories|roles|tests)/[\w./*-]+|site\.yml")


def commands(path: Path) -> Iterator[list[str]]:
    """The simple commands of a document's shell blocks, without assignments before them."""
    for block in _BLOCK.findall(path.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            plain = re.sub(r"(?:^|\s)#(?: .*|$)", "", line)
            for part in re.split(r"&&|;|\|| > ", plain):
                words = shlex.split(part)
                while words and (words[0] == "time" or re.match(r"[A-Z_]+=", words[0])):
                    words.pop(0)
                if words:
                    yield words


TYPED = [(path, words) for path in DOCUMENTS for words in commands(path)]


def test_there_are_commands_to_look_at() -> None:
    assert len(TYPED) > 50
    assert {path.name for path, _ in TYPED} >= {
        "README.md",
        "CONTRIBUTING.md",
        "doctor.md",
        "hosts.md",
        "monitoring.md",
    }


def of(*programs: str) -> list[Any]:
    found = [(path, words) for path, words in TYPED if words[0] in programs]
    assert found
    return [pytest.param(words, id=f"{path.name}: {shlex.join(words)[:60]}") for path, words in found]


@pytest.mark.parametrize("words", of("vllm-doctor"))
def test_the_doctor_takes_what_is_typed(words: list[str]) -> None:
    _, name, *rest = words
    whole: Any = typer.main.get_command(app(name))
    command = whole.commands[name]
    while rest and hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    command.make_context(name, rest)


@pytest.mark.parametrize("words", of("make"))
def test_make_knows_the_target(words: list[str]) -> None:
    targets = re.findall(r"^([a-z]+):", (REPO / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(words[1:]) - {word for word in words if "=" in word} <= set(targets)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(REPO)))
def test_each_program_and_file_that_is_named_is_there(path: Path) -> None:
    missing = []
    for words in commands(path):
        if words[0].startswith(".venv/bin/") and not (Path(sys.prefix) / "bin" / Path(words[0]).name).exists():
            missing.append(words[0])
        for word in words:
            told = word
            for made, has in _MADE.items():
                told = told.replace(made, has)
            if _OF_THE_CHECKOUT.fullmatch(told) and not _is_there(told):
                missing.append(word)
    assert missing == []


def _is_there(told: str) -> bool:
    """Is it in the checkout, itself or as the example that a reader copies?"""
    return any(list(REPO.glob(name)) for name in (told, f"{told}.example"))

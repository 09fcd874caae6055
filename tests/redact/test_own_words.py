"""Redaction takes nothing out of what the doctor says by itself: a command that lost a word does not run."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from vllm_doctor.redact.text import HIDDEN, scrub

ROOT = Path(__file__).parents[2]
SHOWN = {"command", "why", "title", "detail", "next", "to", "name", "refute"}


def texts(value: object, under: str = "") -> Iterator[str]:
    """The texts of a data file that an answer shows."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from texts(one, name)
    elif isinstance(value, list):
        for one in value:
            yield from texts(one, under)
    elif isinstance(value, str) and under in SHOWN:
        yield value


def lost(said: Iterator[str]) -> list[str]:
    return [text for text in said if HIDDEN not in text and HIDDEN in scrub(text)]


@pytest.mark.parametrize("folder", ["known_issues", "layers", "library_places", "programs", "refusals"])
def test_what_the_knowledge_says_is_shown_whole(folder: str) -> None:
    files = sorted((ROOT / "vllm_doctor" / "knowledge" / folder).rglob("*.json"))
    assert files
    said = [text for file in files for text in texts(json.loads(file.read_text(encoding="utf-8")))]
    assert not lost(iter(said))


def test_what_the_code_says_is_shown_whole() -> None:
    page = (ROOT / "docs" / "sentences.md").read_text(encoding="utf-8")
    assert not lost(line.removeprefix("- ") for line in page.splitlines() if line.startswith("- "))


@pytest.mark.parametrize(
    "command",
    [
        'curl -sSI -H "Authorization: Bearer $HF_TOKEN" https://hub.example/x',
        'curl -H "Authorization: Bearer ${HF_TOKEN}" https://hub.example/x',
        "docker run --gpus all image; ldconfig -p | grep ptxjit",
        "curl -sS -w '%{time_total}\\n' -o /dev/null http://HOST:PORT/health",
    ],
)
def test_a_reference_or_an_operator_is_no_secret(command: str) -> None:
    assert scrub(command) == command


@pytest.mark.parametrize(
    "command",
    [
        'curl -H "Authorization: Bearer $HF9tokenvalue1234,x" https://hub.example/x',
        "curl -u me:hunter22 https://hub.example/x",
        "docker login -p '|hunter22' registry.example",
    ],
)
def test_beside_them_a_secret_is_still_hidden(command: str) -> None:
    assert HIDDEN in scrub(command)

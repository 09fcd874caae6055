"""The glossary of CONTRIBUTING is kept: no private word reaches a user."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import vllm_doctor

PACKAGE = Path(vllm_doctor.__file__).parent
SENTENCES = PACKAGE.parent / "docs" / "sentences.md"
# The word, and what the field calls it.
PRIVATE = {
    r"\b[Tt]he fraction\b|\b[Aa] (lower|higher) fraction\b": "gpu_memory_utilization",
    r"\bmeasuring pass\b": "profile run",
    r"\b(this|that|the|one|earlier) (life|lives)\b": "run",
    r"\b[Ll]evers?\b": "remedy, setting or option",
    r"\b[Ss]tory\b": "run or root cause",
    r"\bKV pool\b": "KV cache",
}
# Turns of phrase that a reader whose first language is another must read twice, and what is plain instead.
TURNS = {
    r"\b[Oo]f (its|their|our|his) own\b": "separate, or the name of the thing",
    r"(?:^|[.;:] )[Ww]hat (?!(is|are) wrong)(?![^.;:]*\?)": "the thing by its name: 'the memory that was freed'",
    r"(?:^|[.;:] )([Ww]hoever|[Ww]ho) ": "the person or the program by its name",
    r"(?:^|[.;:] )so (many|much|long) ": "this many, or that long",
    r"\b[Mm]end(s|ed|ing)?\b": "fix, or repair",
    r"\b(anew|unasked)\b": "again, by default",
    r"\bnobody (printed|tells|said)\b": "the log does not show",
    r"\b(does?|do) without\b": "does not need",
    r"\bnothing (tells|says)\b": "no line shows",
    r"\bis none\b": "is not one, with its name",
    r"\bclaimed range\b": "range",
    r"\bcannot be said\b": "is not known",
}
LONGEST = 30  # words between two stops
FILES = sorted(path for kind in ("*.py", "*.toml", "vd*.md") for path in (PACKAGE / "rules").rglob(kind))
# Rooms beside the rules that speak to a user.
FILES += sorted(
    path for room in ("cli", "render", "operate", "plan", "gather", "remedy") for path in (PACKAGE / room).rglob("*.py")
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_user_reads_the_words_of_the_field(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    said = [text] if path.suffix != ".py" else list(_strings(text))
    found = {word: instead for word, instead in PRIVATE.items() for one in said if re.search(word, one)}
    assert not found


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    """docs/sentences.md: every sentence that a user may read."""
    lines = SENTENCES.read_text(encoding="utf-8").splitlines()
    return [line[2:] for line in lines if line.startswith("- ") and not line.startswith("- Examples:")]


@pytest.mark.parametrize("turn", TURNS)
def test_a_sentence_has_no_turn_that_is_read_twice(turn: str, sentences: list[str]) -> None:
    found = [told for told in sentences if re.search(turn, told)]
    assert not found, f"say: {TURNS[turn]}"


# A page's "What to do" that begins so names a thing, and leaves the verb to the reader.
NO_VERB = re.compile(
    r"(An?|Another|The|More|Fewer|Smaller|Larger|What|Who|By|Each|Nothing|Somebody|Not|No|GPUs?|`)\b|`"
)


@pytest.mark.parametrize("page", sorted(PACKAGE.glob("rules/*/vd*.md")), ids=lambda page: page.stem)
def test_a_page_says_what_to_do_as_an_imperative(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    to_do = text.partition("## What to do\n\n")[2].partition("\n## ")[0]
    assert to_do
    assert not NO_VERB.match(to_do), to_do[:60]
    prose = [line for line in text.splitlines() if not line.startswith("#")]
    assert not [line for line in prose for turn in TURNS if re.search(turn, line)]


def test_no_sentence_is_longer_than_a_breath(sentences: list[str]) -> None:
    parts = [part for told in sentences for part in re.split(r"[.;:] ", told)]
    assert len(parts) > 3000
    assert not [part for part in parts if len(part.split()) > LONGEST]


@pytest.mark.parametrize(
    "told",
    [
        "what was freed was held before the engine was made",
        "the log: what stands there",
        "give vLLM a GPU of its own",
        "whoever stops the server waits",
        "a newer release may have mended it",
        "so many adapters are kept in memory",
    ],
)
def test_a_turn_is_found_where_it_stands(told: str) -> None:
    assert any(re.search(turn, told) for turn in TURNS)


def test_a_private_word_is_found_where_it_stands() -> None:
    told = list(_strings('"""The fraction."""\nx = f"the fraction {y:.2f} leaves"\n'))
    assert told == ["the fraction ", " leaves", ".2f"] or "the fraction " in told
    assert "The fraction." not in told


def _strings(text: str) -> Iterator[str]:
    """The literals of a module that are no docstring."""
    tree = ast.parse(text)
    told = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.value

"""The glossary of CONTRIBUTING is kept: no private word reaches a user."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import vllm_doctor

PACKAGE = Path(vllm_doctor.__file__).parent
# The word, and what the field calls it.
PRIVATE = {
    r"\b[Tt]he fraction\b|\b[Aa] (lower|higher) fraction\b": "gpu_memory_utilization",
    r"\bmeasuring pass\b": "profile run",
    r"\b(this|that|the|one|earlier) (life|lives)\b": "run",
    r"\b[Ll]evers?\b": "remedy, setting or option",
    r"\b[Ss]tory\b": "run or root cause",
    r"\bKV pool\b": "KV cache",
}
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

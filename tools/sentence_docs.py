#!/usr/bin/env python3
"""Write docs/sentences.md: every sentence that a user may read, on one page to be reviewed; --check says that it is
stale."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import generated

from vllm_doctor.knowledge.layers import layers
from vllm_doctor.knowledge.programs import programs
from vllm_doctor.rules.by_message import table
from vllm_doctor.rules.chart import NODES
from vllm_doctor.rules.order import by_code
from vllm_doctor.rules.remedies.nccl_call import nccl_calls

REPO = Path(__file__).resolve().parent.parent
PACKAGE = REPO / "vllm_doctor"
RULES = PACKAGE / "rules"
TARGET = REPO / "docs" / "sentences.md"
HEAD = """\
# What the doctor says

Every sentence as it stands in the source (`make docs`). First the rules: titles, reasons, changes, and what would prove
a finding wrong; then the commands, the plan, the guard, and what could not be read. `{…}` is filled in from the case.
It is the page on which wording is reviewed: subject, verb, object; a title states the problem in at most 70
characters, a change is an imperative or says what the change does. What a person adds to a finding is on
[its page](findings.md); the public issues have their files in `vllm_doctor/knowledge/known_issues/`.
"""
# Fewer words are a name, a unit or a figure's label.
WORDS = 3
# What a program reads, and no user: SQL, and expressions.
_NO_SENTENCE = re.compile(r"(CREATE|SELECT|INSERT|DELETE) |.*(\\[sSdwb]|\(\?:|\w\|\w.*\|)")
# The rooms beside the rules that speak to a user. Of the command line the help stands in `docs/doctor.md`.
ROOMS = ("cli", "render", "operate", "monitor", "plan", "preflight", "remedy", "launch", "gather", "log")
# What the boxes of the flowchart, the shared questions and the shared remedies say belongs to no one code.
SHARED = ("case.py", "chart.py", "engine.py", "placed.py", "say.py", "strays.py", "surroundings.py", "walk.py")


def sentences(source: str) -> list[str]:
    """The literals of a module with so many words, docstrings left out, in their order and each once."""
    tree = ast.parse(source)
    return list(dict.fromkeys(told for told in _told(tree) if _is_sentence(told)))


def _is_sentence(told: str) -> bool:
    return len(re.findall(r"(?<!\S)[A-Za-z/]+", told)) >= WORDS and not _NO_SENTENCE.match(told)


def _told(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        if isinstance(child, ast.JoinedStr):
            yield " ".join("".join(_part(value) for value in child.values).split())
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield " ".join(child.value.split())
        else:
            yield from _told(child)


def _part(value: ast.expr) -> str:
    return str(value.value) if isinstance(value, ast.Constant) else "{…}"


def _section(title: str, told: list[str]) -> str:
    lines = [f"- {one}".replace("<", "&lt;").replace("*", "\\*") for one in told if one]
    return f"\n## {title}\n\n" + "\n".join(lines) + "\n" if lines else ""


def _of_rows(code: str) -> list[str]:
    return [
        told
        for row in table().get(code, ())
        for told in (row.title, row.because, *(answer.why for answer in row.answers), row.refute)
    ]


@cache
def text() -> str:
    """The whole page: a section a rule, then what rules share."""
    parts = [HEAD]
    for code, row in by_code().items():
        module = row.page.with_suffix(".py")
        own = sentences(module.read_text(encoding="utf-8")) if module.exists() else _of_rows(code)
        parts.append(_section(f"{code} {row.title}", own))
    parts.append(_section("The questions of the flowchart", [node.question for node in NODES]))
    shared = [RULES / name for name in SHARED]
    files = [*sorted((RULES / "gates").glob("*.py")), *sorted((RULES / "remedies").glob("*.py")), *shared]
    parts += [_section(f"`{path.relative_to(RULES)}`", sentences(path.read_text(encoding="utf-8"))) for path in files]
    for path in (path for room in ROOMS for path in sorted((PACKAGE / room).rglob("*.py"))):
        parts.append(_section(f"`{path.relative_to(PACKAGE)}`", sentences(path.read_text(encoding="utf-8"))))
    calls, of_calls = nccl_calls().calls, nccl_calls().changes.values()
    parts.append(_section("NCCL's warnings", [*dict.fromkeys(c.title for c in calls), *(a.why for a in of_calls)]))
    parts += [_section(f"Part of vLLM: {part.name}", [part.next, *(a.why for a in part.answers)]) for part in layers()]
    parts += [_section("Programs beside vLLM", [one.next for one in programs()])]
    return "".join(parts)


def main(arguments: list[str]) -> int:
    """Write or check."""
    return generated.main(arguments, {TARGET: text()}, "the rules say")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Texts that a source can print: literals joined as Python joins them, each with holes where a value goes.

Most of a wheel never has to be parsed for this: lines with a quotation mark are enough to find the files that matter.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator

from releases.wheel import Wheel

HOLE = "\0"
_JOIN = re.compile(r"""["']\s*\n\s*[rRfFbBuU]{0,2}["']""")
_LEFT_OUT = re.compile(r"vllm/(benchmarks|assets)/.*")
SLOTS = re.compile(r"%(?:\(\w+\))?[-#0 +]*[\d.]*[sdrfgixX]|\$?\{[^{}]*\}")


def outlines(wheel: Wheel) -> dict[str, str]:
    """Path → the source's lines with a quotation mark, with neighbouring literals joined: what to search first."""
    made: dict[str, str] = {}
    for path, text in wheel.files.items():
        if not _LEFT_OUT.fullmatch(path):
            kept = "\n".join(line for line in text.splitlines() if '"' in line or "'" in line)
            made[path] = _JOIN.sub("", kept).replace('\\"', '"').replace("\\'", "'")
    return made


def templates(module: ast.Module) -> Iterator[str]:
    """Every text of a module but docstrings, with HOLE for each value."""
    silent = {id(n.value) for n in ast.walk(module) if isinstance(n, ast.Expr)}
    inside: set[int] = set()
    for node in ast.walk(module):
        if id(node) in silent or id(node) in inside:
            continue
        text = _text(node)
        if text is not None:
            inside.update(id(part) for part in ast.walk(node))
            if len(text) > 8:
                yield SLOTS.sub(HOLE, text) if not isinstance(node, ast.JoinedStr) else text


def of(node: ast.expr) -> Iterator[str]:
    """Every text within one expression."""
    return templates(ast.Module(body=[ast.Return(value=node)], type_ignores=[]))


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(
            v.value if isinstance(v, ast.Constant) and isinstance(v.value, str) else HOLE for v in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left), _text(node.right)
        return None if left is None or right is None else left + right
    return None


def digest(found: list[str]) -> str:
    """One short hash of some templates, whatever their order."""
    return hashlib.sha256("\n".join(sorted(set(found))).encode()).hexdigest()[:8]

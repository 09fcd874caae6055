"""The functions of vLLM that the memory model was read from (cited.json), each as a hash of what it does.

The hash is of the syntax tree without comments, docstrings, annotations and log calls, so it changes where the
computation does, and not with a layout or a Python version.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from releases.wheel import Wheel

Cited = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def table() -> dict[str, list[str]]:
    """`path::Class.function` in the newest release → where we cite it."""
    loaded: dict[str, list[str]] = json.loads(Path(__file__).with_name("cited.json").read_text(encoding="utf-8"))
    return loaded


def read(wheel: Wheel) -> dict[str, dict[str, str]]:
    """Each cited function that the release has: its hash, and its file where that is another than the cited one."""
    made: dict[str, dict[str, str]] = {}
    for name in sorted(table()):
        path, _, inside = name.partition("::")
        found = _find(wheel, path, inside)
        if found is not None:
            made[name] = {"as": _hash(found[1])} | ({"in": found[0]} if found[0] != path else {})
    return made


def bodies(before: Wheel, after: Wheel) -> Iterator[str]:
    """A diff of each cited function that does something else in the newer one: what a person must read."""
    for name in sorted(table()):
        path, _, inside = name.partition("::")
        old, new = _find(before, path, inside), _find(after, path, inside)
        if old is None or new is None or _hash(old[1]) == _hash(new[1]):
            continue
        heads = (f"{before.version} {old[0]}::{inside}", f"{after.version} {new[0]}::{inside}")
        yield from difflib.unified_diff(_lines(before, *old), _lines(after, *new), *heads, lineterm="")


def _lines(wheel: Wheel, path: str, node: Cited) -> list[str]:
    return (ast.get_source_segment(wheel.files[path], node) or "").splitlines()


def _find(wheel: Wheel, path: str, inside: str) -> tuple[str, Cited] | None:
    node = _node(wheel, path, inside) if path in wheel.files else None
    if node is not None:
        return path, node
    first = re.compile(rf"^(?:class|(?:async )?def) {re.escape(inside.partition('.')[0])}\b", re.MULTILINE)
    moved = [(p, n) for p, text in wheel.files.items() if first.search(text) and (n := _node(wheel, p, inside))]
    return moved[0] if len(moved) == 1 else None


def _node(wheel: Wheel, path: str, inside: str) -> Cited | None:
    body: list[ast.stmt] = wheel.tree(path).body
    node: Cited | None = None
    for part in inside.split("."):
        node = next((n for n in body if isinstance(n, Cited) and n.name == part), None)
        if node is None:
            return None
        body = node.body
    return node


def _hash(node: ast.AST) -> str:
    return hashlib.sha256("\n".join(_words(node)).encode()).hexdigest()[:12]


def _words(node: ast.AST) -> Iterator[str]:
    """The tree's nodes and their plain values, one after another. What a Python version adds to an empty field is
    left out, because fields without a value are."""
    yield type(node).__name__
    for name, value in ast.iter_fields(node):
        if (
            name in {"annotation", "returns", "type_comment", "kind", "ctx", "type_params"}
            or value is None
            or value == []
        ):
            continue
        yield name
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.stmt) and _says_only(part):
                continue
            if isinstance(part, ast.AST):
                yield from _words(part)
            else:
                yield repr(part)
    yield "."


def _says_only(node: ast.stmt) -> bool:
    """A docstring or a log call."""
    if not isinstance(node, ast.Expr):
        return False
    if isinstance(node.value, ast.Constant):
        return True
    return isinstance(node.value, ast.Call) and ast.unparse(node.value.func).startswith("logger.")

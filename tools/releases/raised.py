"""What a module's code refuses in a sentence: each `raise` and each `assert` with a text, and where it stands."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from releases import texts
from releases.whole import Names, message


class Raised(NamedTuple):
    """`where` is the path of classes and functions around it, `function` the innermost function's name."""

    where: str
    function: str
    kind: str
    sentence: str


def raised(node: ast.AST, where: str = "", function: str = "") -> Iterator[Raised]:
    """In the order of the source."""
    for child in ast.iter_child_nodes(node):
        if (kind := _kind(child)) and (said := _said(child)) is not None:
            yield from (Raised(where, function, kind, one) for one in texts.of(said))
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from raised(child, f"{where}.{child.name}".lstrip("."), child.name)
        elif isinstance(child, ast.ClassDef):
            yield from raised(child, f"{where}.{child.name}".lstrip("."), function)
        else:
            yield from raised(child, where, function)


def raised_whole(tree: ast.Module) -> Iterator[Raised]:
    """Each with its whole message, whichever names it was put together from."""
    yield from _whole(tree, Names(None, tree), "")


def _whole(node: ast.AST, names: Names, function: str) -> Iterator[Raised]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Raise | ast.Assert) and (kind := _kind(child)):
            yield Raised(function, function, kind, message(child, names))
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _whole(child, Names(child, names.module), child.name)
        else:
            yield from _whole(child, names, function)


def _kind(node: ast.AST) -> str:
    """The class that is raised; empty for what raises nothing here."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        return ast.unparse(node.exc.func).rpartition(".")[2]
    return "AssertionError" if isinstance(node, ast.Assert) and node.msg is not None else ""


def _said(node: ast.AST) -> ast.expr | None:
    return node.exc if isinstance(node, ast.Raise) else node.msg if isinstance(node, ast.Assert) else None

"""What a module's code refuses in a sentence: each `raise` and each `assert` with a text, and where it stands."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from releases import texts


class Raised(NamedTuple):
    """`where` is the path of classes and functions around it, `function` the innermost function's name."""

    where: str
    function: str
    kind: str
    sentence: str


def raised(node: ast.AST, where: str = "", function: str = "") -> Iterator[Raised]:
    """In the order of the source."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Raise) and isinstance(child.exc, ast.Call):
            kind = ast.unparse(child.exc.func).rpartition(".")[2]
            yield from (Raised(where, function, kind, one) for one in texts.of(child.exc))
        elif isinstance(child, ast.Assert) and child.msg is not None:
            yield from (Raised(where, function, "AssertionError", one) for one in texts.of(child.msg))
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from raised(child, f"{where}.{child.name}".lstrip("."), child.name)
        elif isinstance(child, ast.ClassDef):
            yield from raised(child, f"{where}.{child.name}".lstrip("."), function)
        else:
            yield from raised(child, where, function)

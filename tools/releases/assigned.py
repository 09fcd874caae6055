"""What a module or a class gives a name, however it is written."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator


def assigned(lines: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr | None]]:
    """(name, value) of `name = value`, `name: type = value` and, without a value, `name: type`; no other line."""
    for line in lines:
        match line:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                yield name, value

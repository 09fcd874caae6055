"""What a server answers a request with in place of a result: each error that its code words itself, and where."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from releases import texts
from releases.raised import Raised

# What vLLM's entry points call for it, and the type that it has unless the call names one (BaseServing).
_CALL = "create_error_response"
_TYPE = "BadRequestError"


def answered(node: ast.AST, function: str = "") -> Iterator[Raised]:
    """In the order of the source; `kind` is the type that the client's package names the error by."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and ast.unparse(child.func).rpartition(".")[2] == _CALL:
            given = {keyword.arg: keyword.value for keyword in child.keywords}
            message = child.args[0] if child.args else given.get("message")
            kind = given.get("err_type")
            told = kind.value if isinstance(kind, ast.Constant) and isinstance(kind.value, str) else _TYPE
            if message is not None:
                yield from (Raised("", function, told, one) for one in texts.of(message))
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from answered(child, child.name)
        else:
            yield from answered(child, function)

"""Who calls a function, and with what: each call of a release by the name that it calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
# A name that more classes and functions have tells of none of them outside its own file.
_SAME_NAME = 2


class Place(NamedTuple):
    """A value that a call gives, and where the call stands."""

    value: ast.expr
    path: str
    function: Function | None
    owner: ast.ClassDef | None


class _Call(NamedTuple):
    call: ast.Call
    path: str
    function: Function | None
    owner: ast.ClassDef | None


class Calls:
    """The calls of some modules."""

    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        # what was found of a function's parameter before, which is asked for again and again
        self.told: dict[tuple[Function, str, int], list[str]] = {}
        self._made: dict[str, list[_Call]] = {}
        self._defined: dict[str, int] = {}
        for path, tree in trees.items():
            for one in _calls(tree, path, None, None):
                called = one.call.func
                name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
                self._made.setdefault(name, []).append(one)
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    self._defined[node.name] = self._defined.get(node.name, 0) + 1

    def of(self, function: Function, owner: ast.ClassDef | None, parameter: str, path: str) -> list[Place]:
        """What each call gives a parameter, as far as it is written there."""
        method = owner is not None
        name = owner.name if owner is not None and function.name == "__init__" else function.name
        given = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        at = given.index(parameter) - method if parameter in given else None
        found = []
        for one in self._made.get(name, ()):
            if self._defined.get(name, 0) > _SAME_NAME and one.path != path:
                continue
            value = next((k.value for k in one.call.keywords if k.arg == parameter), None)
            if value is None and at is not None and 0 <= at < len(one.call.args):
                value = one.call.args[at]
            if value is not None and not isinstance(value, ast.Starred):
                found.append(Place(value, one.path, one.function, one.owner))
        return found


def parameters(function: Function) -> frozenset[str]:
    """What a caller may give by name."""
    given = function.args
    return frozenset(one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)) - {"self", "cls"}


def _calls(node: ast.AST, path: str, function: Function | None, owner: ast.ClassDef | None) -> Iterator[_Call]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _calls(child, path, None, child)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _calls(child, path, child, owner)
        else:
            if isinstance(child, ast.Call):
                yield _Call(child, path, function, owner)
            yield from _calls(child, path, function, owner)

"""The whole text of a message as its code makes it, with a hole for each value: what a short one is told by.

Of a long sentence a few words in a row are enough (texts.of). A short one is told by all that it says and where it
begins and ends, so that what is not known here must be a hole, and no part of it a sentence of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from releases import texts

# Which parameter of an exception's class is its message, where it is not the first.
_NAMED = ("message", "msg", "detail")
# What only takes the blanks of a source out of a text.
_TIDIED = frozenset({"dedent", "trim", "cleandoc", "strip", "str", "_", "gettext"})
_DEEP = 8

Set = Mapping[str, list[tuple[int, ast.expr | None]]]


@dataclass(frozen=True)
class Names:
    """What the names of a function, and of its module, were set to, which only few messages ask for."""

    function: ast.AST | None
    module: ast.Module

    def of(self, name: str, line: int) -> ast.expr | None:
        """The expression that a name was last set to above a line, of a module's name the only one; None where more
        was added to it."""
        before = [one for one in self._inner.get(name, ()) if one[0] < line]
        held = self._outer.get(name, []) if name not in self._inner else []
        return before[-1][1] if before else held[0][1] if len(held) == 1 else None

    @cached_property
    def _inner(self) -> Set:
        return _set_by(ast.walk(self.function)) if self.function is not None else {}

    @cached_property
    def _outer(self) -> Set:
        return _set_by(iter(self.module.body))


def _set_by(lines: Iterator[ast.AST]) -> Set:
    made: dict[str, list[tuple[int, ast.expr | None]]] = {}
    for node in lines:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                made.setdefault(name, []).append((node.lineno, value))
            case ast.AugAssign(target=ast.Name(id=name)):
                made.setdefault(name, []).append((node.lineno, None))
    return {name: sorted(held, key=lambda one: one[0]) for name, held in made.items()}


def message(node: ast.Raise | ast.Assert, names: Names) -> str:
    """The whole message of an exception; empty where nothing of it is fixed."""
    if isinstance(node, ast.Assert):
        return _text(node.msg, names, node.lineno) if node.msg is not None else ""
    if not isinstance(node.exc, ast.Call):
        return ""
    given = {keyword.arg: keyword.value for keyword in node.exc.keywords}
    told = next((given[name] for name in _NAMED if name in given), None)
    said = told if told is not None else node.exc.args[0] if node.exc.args else None
    return _text(said, names, node.lineno) if said is not None else ""


def _text(node: ast.expr, names: Names, line: int, deep: int = 0) -> str:
    if deep > _DEEP:
        return texts.HOLE
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part, names, line, deep + 1) for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left, names, line, deep + 1) + _text(right, names, line, deep + 1)
        case ast.BinOp(left=left, op=ast.Mod()):
            return texts.SLOTS.sub(texts.HOLE, _text(left, names, line, deep + 1))
        case ast.Call(func=ast.Attribute(value=held, attr="format")):
            return texts.SLOTS.sub(texts.HOLE, _text(held, names, line, deep + 1))
        case ast.Call(func=ast.Attribute(value=held, attr="strip"), args=[]):
            return _text(held, names, line, deep + 1)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[held]) if name in _TIDIED:
            return _text(held, names, line, deep + 1)
        case ast.Name(id=name):
            told = names.of(name, line)
            return _text(told, names, told.lineno, deep + 1) if told is not None else texts.HOLE
    return texts.HOLE

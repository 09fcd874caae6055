"""Tests and lists of constants, as executed.py writes them: whether one holds, and what is in one."""

from __future__ import annotations

import ast
import re

from releases.executed import UNKNOWN

_ASKS = re.compile(r"(?<!['\w])[A-Za-z_]\w*(?!['\w])")
_WORDS = frozenset({"not", "and", "or", "is", "in", "if", "else", "None", "True", "False"})


def truth(test: str) -> bool | None:
    """Whether a test of constants holds; None of one that asks for something."""
    if any(word not in _WORDS for word in _ASKS.findall(test)):
        return None
    return _answer(ast.parse(test, mode="eval").body)


def elements(held: str) -> list[str]:
    """The elements of a list that stands there, alike ones once; of another list one that nobody knows."""
    try:
        tree = ast.parse(held, mode="eval").body
    except SyntaxError:  # an object of the configuration, which is written as no expression
        return [UNKNOWN]
    match tree:
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.BinOp(left=ast.List(elts=parts), op=ast.Mult()):
            return list(dict.fromkeys(ast.unparse(part) for part in parts))
        case _:
            return [UNKNOWN]


def _answer(node: ast.expr) -> bool | None:
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            held = _answer(inner)
            return None if held is None else not held
        case ast.BoolOp(op=op, values=parts):
            told, ends = [_answer(part) for part in parts], isinstance(op, ast.Or)
            return ends if ends in told else None if None in told else not ends
        case ast.Compare(left=ast.Constant(value=one), ops=[op], comparators=[ast.Constant(value=two)]):
            same = one == two and type(one) is type(two)
            known = isinstance(op, ast.Is | ast.Eq | ast.IsNot | ast.NotEq)
            return same is isinstance(op, ast.Is | ast.Eq) if known else None
        case ast.Constant(value=held):
            return bool(held)
        case _:
            return None

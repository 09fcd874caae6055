"""The body of a method of vLLM's as one expression: what it returns, in the names of what it is asked.

`if head_size % 8 != 0: return False` … `return head_size <= 256` is `(not ((head_size % 8) != 0)) and (head_size <=
256)`. `unknown` stands for what is asked of a library or of the whole configuration; what is never False whatever the
unknown is refuses nothing (`fails`). A subclass says what attributes and calls stand for.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

UNKNOWN = "unknown"
DEPTH = 8


@dataclass(frozen=True)
class Here:
    """Where an expression is read: the class that is asked, the one whose method it is, and the local names."""

    asked: str
    owner: str
    local: Mapping[str, str]
    depth: int = DEPTH


class Bodies:
    """Reads bodies; the names of a wheel are a subclass's."""

    def other(self, node: ast.expr, here: Here) -> str:
        """An attribute, a call or a name that is not local."""
        del node, here
        return UNKNOWN

    def returned(self, lines: Sequence[ast.stmt], here: Here) -> str | None:
        """The lines as one expression; None where they end without a return. What raises returns nothing: False."""
        for at, line in enumerate(lines):
            match line:
                case ast.Expr() | ast.ImportFrom() | ast.Import() | ast.Assert():
                    continue
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    here = replace(here, local={**here.local, name: self.written(value, here)})
                case ast.If(test=asked, body=body, orelse=other):
                    after = lines[at + 1 :]
                    test = self.written(asked, here)
                    inner = "False" if test == "False" else self.returned([*body, *after], here)
                    rest = "False" if test == "True" else self.returned([*other, *after], here)
                    return None if inner is None or rest is None else either(test, inner, rest)
                case ast.Return(value=ast.expr() as value):
                    return self.written(value, here)
                case ast.Raise():
                    return "False"
                case _:
                    return None
        return None

    def written(self, node: ast.expr, here: Here) -> str:
        """An expression in the names of what is asked."""
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None):
                return repr(node.value)
            case ast.Name(id=name) if name in here.local:
                return here.local[name]
            case ast.Call(func=ast.Name(id="int" | "list" | "tuple" | "bool"), args=[inner]):
                return self.written(inner, here)
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                told = [self.written(part, here) for part in parts]
                return f"({', '.join(told)},)" if told and UNKNOWN not in told else UNKNOWN if told else "()"
            case ast.BoolOp(op=op, values=parts):
                told = [self.written(part, here) for part in parts]
                return both(told) if isinstance(op, ast.And) else any_of(told)
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return no(self.written(inner, here))
            case ast.IfExp(test=asked, body=body, orelse=other):
                return either(self.written(asked, here), self.written(body, here), self.written(other, here))
            case ast.BinOp(left=left, op=ast.Mod(), right=right):
                one, two = self.written(left, here), self.written(right, here)
                return UNKNOWN if UNKNOWN in {one, two} else f"({one} % {two})"
            case ast.Compare(left=left, ops=ops, comparators=others):
                told = [self.written(part, here) for part in (left, *others)]
                pairs = zip(told, ops, told[1:], strict=False)
                return both([compared(one, op, two) for one, op, two in pairs])
            case _:
                return self.other(node, here)


def compared(one: str, op: ast.cmpop, two: str) -> str:
    """A comparison; of constants what it comes to."""
    if UNKNOWN in {one, two}:
        return UNKNOWN
    if two == "()":
        return {ast.In: "False", ast.NotIn: "True"}.get(type(op), UNKNOWN)
    sign = ast.unparse(ast.Compare(ast.Name("a"), [op], [ast.Name("b")]))[1:-1]
    return f"({one}{sign}{two})"


def both(parts: Sequence[str]) -> str:
    """All of them."""
    kept = list(dict.fromkeys(part for part in parts if part != "True"))
    if "False" in kept:
        return "False"
    return f"({' and '.join(kept)})" if len(kept) > 1 else kept[0] if kept else "True"


def any_of(parts: Sequence[str]) -> str:
    """One of them."""
    kept = list(dict.fromkeys(part for part in parts if part != "False"))
    if "True" in kept:
        return "True"
    return f"({' or '.join(kept)})" if len(kept) > 1 else kept[0] if kept else "False"


def no(part: str) -> str:
    """Not that; of a list whether it is empty."""
    if part.startswith("(") and part.endswith(",)"):
        return "False"
    return {"True": "False", "False": "True", UNKNOWN: UNKNOWN, "()": "True"}.get(part, f"(not {part})")


def either(test: str, inner: str, rest: str) -> str:
    """`inner` where the test holds, else `rest`: the shorter where one of them is plain."""
    if inner == rest:
        return inner
    if inner == "True":
        return any_of([test, rest])
    if inner == "False":
        return both([no(test), rest])
    return any_of([both([test, inner]), both([no(test), rest])])


def fails(node: ast.expr) -> bool:
    """Can it be False whatever the unknown is?"""
    match node:
        case ast.Name(id=name):
            return name != UNKNOWN
        case ast.Constant(value=value):
            return not value
        case ast.BoolOp(op=ast.And(), values=parts):
            return any(fails(part) for part in parts)
        case ast.BoolOp(op=ast.Or(), values=parts):
            return all(fails(part) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return holds(inner)
        case _:
            return True


def holds(node: ast.expr) -> bool:
    """Can it be nothing but True?"""
    match node:
        case ast.Name(id=name):
            return name != UNKNOWN
        case ast.Constant(value=value):
            return bool(value)
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(holds(part) for part in parts)
        case ast.BoolOp(op=ast.Or(), values=parts):
            return any(holds(part) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return fails(inner)
        case _:
            return True

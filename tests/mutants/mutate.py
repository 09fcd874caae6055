"""One small bug at a time: every place of a module where an operator, a number or an argument may be wrong."""

import ast
import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple

_COMPARE: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor"}
# Where a change is none: types, what a decorator says of a cache, text.
_SKIPPED_FIELDS = {"annotation", "returns", "decorator_list", "type_comment", "format_spec"}


class Mutant(NamedTuple):
    """One bug: the line, what was done, and the module with it."""

    line: int
    what: str
    tree: ast.Module


class _Site(NamedTuple):
    """A node, how it is reached from the module, and what may be done to it."""

    path: tuple[tuple[str, int | None], ...]
    line: int
    what: str
    change: Callable[[ast.AST], ast.AST]


def sites(source: str) -> list[_Site]:
    """Every single change that can be made to a module."""
    tree = ast.parse(source)
    return list(_sites(tree, (), 0))


def mutant(source: str, site: _Site) -> Mutant:
    """The module with one of its sites changed."""
    tree = ast.parse(source)
    *above, (field, index) = site.path
    parent: ast.AST = tree
    for name, number in above:
        value = getattr(parent, name)
        parent = value if number is None else value[number]
    old = getattr(parent, field) if index is None else getattr(parent, field)[index]
    new = ast.copy_location(site.change(copy.deepcopy(old)), old)
    if index is None:
        setattr(parent, field, new)
    else:
        getattr(parent, field)[index] = new
    before, after = ast.unparse(old), ast.unparse(ast.fix_missing_locations(new))
    return Mutant(site.line, f"{before[:70]}  ->  {after[:70]}", ast.fix_missing_locations(tree))


def _sites(node: ast.AST, path: tuple[tuple[str, int | None], ...], line: int) -> Iterator[_Site]:
    line = getattr(node, "lineno", line)
    if path:
        for what, change in _changes(node):
            yield _Site(path, line, what, change)
    for field, value in ast.iter_fields(node):
        if field in _SKIPPED_FIELDS:
            continue
        if isinstance(value, ast.AST):
            yield from _below(node, value, (*path, (field, None)), line)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, ast.AST):
                    yield from _below(node, item, (*path, (field, index)), line)


def _below(parent: ast.AST, node: ast.AST, path: tuple[tuple[str, int | None], ...], line: int) -> Iterator[_Site]:
    typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    alias = isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation)
    base = isinstance(parent, ast.ClassDef) and path[-1][0] in {"bases", "keywords"}
    if not (typing_only or alias or base):
        yield from _sites(node, path, line)


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[ast.AST], ast.AST]]]:  # noqa: PLR0912 - a case a kind
    match node:
        case ast.Compare():
            for place, op in enumerate(node.ops):
                for new in _COMPARE[type(op)]:
                    yield "comparison", _compare(place, new)
        case ast.BinOp() if type(node.op) in _ARITHMETIC and not _types(node):
            yield "arithmetic", _with(op=_ARITHMETIC[type(node.op)]())
        case ast.BoolOp():
            yield "and/or", _with(op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield "sign", lambda n: n.operand  # type: ignore[attr-defined]
        case ast.Constant(value=bool()):
            yield "switch", _with(value=not node.value)
        case ast.Constant(value=int() as number):
            yield "constant", _with(value=number + 1)
            yield "constant", _with(value=number - 1)
        case ast.Constant(value=float() as number):
            yield "constant", _with(value=number * 1.1 or 0.1)
            yield "constant", _with(value=number * 0.9 or -0.1)
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            yield "call", _with(func=ast.Name(_CALLS[name], ast.Load()))
        case ast.Call(func=ast.Attribute(attr=name, value=owner)) if name in _CALLS:
            yield "call", _with(func=ast.Attribute(owner, _CALLS[name], ast.Load()))
        case ast.Return(value=ast.AST() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "return", _with(value=ast.Constant(None))
        case ast.If() | ast.IfExp() if not isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            yield "condition", _with(test=ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.Call) and len(node.args) >= 2 and _ordered(node):
        yield "arguments", _with(args=[node.args[1], node.args[0], *node.args[2:]])


def _ordered(call: ast.Call) -> bool:
    """Does it matter which argument comes first? (Of `isinstance` any test sees it.)"""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    return name not in {"min", "max", "isinstance"} and not any(isinstance(a, ast.Starred) for a in call.args)


def _types(node: ast.BinOp) -> bool:
    """`int | None` in an isinstance or an alias is no arithmetic."""
    return isinstance(node.op, ast.BitOr) and all(
        isinstance(side, ast.Name | ast.Attribute | ast.Constant | ast.BinOp) and ast.unparse(side)[:1].isalpha()
        for side in (node.left, node.right)
    )


def _compare(place: int, new: type[ast.cmpop]) -> Callable[[ast.AST], ast.AST]:
    def change(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.Compare)
        node.ops[place] = new()
        return node

    return change


def _with(**fields: object) -> Callable[[ast.AST], ast.AST]:
    def change(node: ast.AST) -> ast.AST:
        for name, value in fields.items():
            setattr(node, name, copy.deepcopy(value))
        return node

    return change

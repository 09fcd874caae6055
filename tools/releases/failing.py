"""What a failing line of a release rests on: the conditions above it, what they read, and who calls it in its file.

Two releases in which this reads the same fail alike, whatever else changed in the function. Annotations, docstrings,
comments and what is only logged are left out; a refusal above the line is kept as what it asks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy

Function = ast.FunctionDef | ast.AsyncFunctionDef
# Who calls a function in its file: the function that calls, and the statement.
Calls = Mapping[str, Sequence[tuple[Function, ast.stmt]]]
_CONDITIONS = ("if ", "while ", "try:", "case ")
_EXITS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_LOGGERS = frozenset({"logger", "logging", "log", "warnings"})


class _Bare(ast.NodeTransformer):
    """A function without what does not run, or only tells."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def _function(self, node: Function) -> ast.AST:
        node.returns = None
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        self.generic_visit(node)
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        self.generic_visit(node)
        match node.value:
            case ast.Constant():
                return None
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name in _LOGGERS:
                return None
            case _:
                return node

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "cast" and node.args[1:]:
            return node.args[1]  # cast(type, value)
        return node


def bare(function: Function) -> Function:
    """A copy of a function without annotations, docstrings and what is only logged."""
    made: Function = _Bare().visit(deepcopy(function))
    return made


def whole(calls: Calls, function: Function) -> str:
    """All that a function does, and what its file asks around a call of it."""
    text = ast.unparse(ast.fix_missing_locations(bare(function)))
    return "\n".join((text, *_called(calls, function)))


def path(calls: Calls, function: Function, line: ast.stmt) -> str:
    """What leads to a line of a function: what is asked above it, of what that and the line are made; and who calls the
    function."""
    kept: dict[int, str] = {}
    names = {name for node in _above(function.body, line, kept) for name in _read(node)}
    for stored in ast.walk(function):
        if isinstance(stored, ast.Assign | ast.AugAssign | ast.AnnAssign) and stored.lineno < line.lineno:
            targets = stored.targets if isinstance(stored, ast.Assign) else [stored.target]
            if stored.value is not None and any(_read(target) & names for target in targets):
                kept.setdefault(stored.lineno, _text(stored))
    return "\n".join((*(kept[at] for at in sorted(kept)), *_called(calls, function)))


def _above(block: Sequence[ast.stmt], line: ast.stmt, kept: dict[int, str]) -> list[ast.AST]:
    """What is asked on the way to a line, in `kept` by where it stands; the nodes of the line and what it stands in."""
    nodes: list[ast.AST] = []
    for stmt in block:
        if stmt is line:
            blocks = [] if isinstance(stmt, Function | ast.ClassDef) else [*_blocks(stmt)]
            kept[stmt.lineno] = blocks[0][0] if blocks else _text(stmt)
            return [*nodes, *(blocks[0][2] if blocks else [stmt])]
        if _holds(stmt, line):
            for head, parts, asked in _blocks(stmt):
                if any(part is line or _holds(part, line) for part in parts):
                    kept[stmt.lineno] = head
                    return [*nodes, *asked, *_above(parts, line, kept)]
            kept[stmt.lineno] = _text(stmt)
            return [*nodes, stmt]
        if (leaves := _leaves(stmt)) is not None:
            kept[stmt.lineno] = leaves
    return nodes


def _holds(stmt: ast.stmt, line: ast.stmt) -> bool:
    """Is a line of the same file inside a statement?"""
    return stmt is not line and stmt.lineno <= line.lineno <= (stmt.end_lineno or stmt.lineno)


def _blocks(stmt: ast.stmt) -> Iterator[tuple[str, Sequence[ast.stmt], list[ast.AST]]]:
    """The blocks of a statement: what leads into each, and the nodes that this reads."""
    match stmt:
        case ast.If(test=test, body=body, orelse=other):
            yield f"if {_text(test)}:", body, [test]
            yield f"if not ({_text(test)}):", other, [test]
        case ast.While(test=test, body=body, orelse=other):
            yield f"while {_text(test)}:", body, [test]
            yield f"if not ({_text(test)}):", other, [test]
        case ast.For(target=target, iter=many, body=body) | ast.AsyncFor(target=target, iter=many, body=body):
            yield f"for {_text(target)} in {_text(many)}:", body, [many]
        case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
            yield f"with {', '.join(map(_text, items))}:", body, [*items]
        case ast.Try(body=body, handlers=handlers, orelse=other, finalbody=last):
            told = ", ".join(_text(one.type) if one.type is not None else "all" for one in handlers)
            yield f"try: # {told}", body, []
            for one in handlers:
                yield f"try: # in {_text(one.type) if one.type is not None else 'all'}", one.body, []
            yield "try: # else", other, []
            yield "try: # finally", last, []
        case ast.FunctionDef(name=name, body=body) | ast.AsyncFunctionDef(name=name, body=body):
            yield f"in {name}", body, []
        case ast.ClassDef(name=name, body=body):
            yield f"in {name}", body, []
        case ast.Match(subject=subject, cases=cases):
            for case in cases:
                yield f"case {_text(subject)}: {_text(case.pattern)}", case.body, [subject]


def _leaves(stmt: ast.stmt) -> str | None:
    """How a statement before the line may leave its block: `if asked: -> raise`; None where it does not."""
    if isinstance(stmt, ast.Assert):
        return f"assert {_text(stmt.test)}"
    if not isinstance(stmt, ast.If):
        return None
    told = [f"{head} -> {_kind(one)}" for head, parts, _ in _blocks(stmt) for one in parts if isinstance(one, _EXITS)]
    told += [
        f"{head} {more.removeprefix('past ')}"
        for head, parts, _ in _blocks(stmt)
        for one in parts[:1]
        if (more := _other(parts, one))
    ]
    return f"past {'; '.join(told)}" if told else None


def _other(parts: Sequence[ast.stmt], one: ast.stmt) -> str | None:
    """Of an `elif`, which is an `if` alone in the other block."""
    return _leaves(one) if len(parts) == 1 and isinstance(one, ast.If) else None


def _kind(stmt: ast.stmt) -> str:
    return type(stmt).__name__.lower()


def _called(calls: Calls, function: Function) -> Iterator[str]:
    """Where its own file calls a function, and the conditions that the call stands in; a method of every class is not
    looked for."""
    if function.name.startswith("__") or function.name in {"forward", "apply"}:
        return
    rows = set()
    for other, stmt in calls.get(function.name, ()):
        kept: dict[int, str] = {}
        if other is not function:
            _above(other.body, stmt, kept)
            asked = [kept[at] for at in sorted(kept) if at != stmt.lineno]
            rows.add(" | ".join((f"called by {other.name}", *(one for one in asked if one.startswith(_CONDITIONS)))))
    yield from sorted(rows)


def called(stmt: ast.stmt) -> Iterator[str]:
    """The functions that a statement itself, none inside it, calls."""
    for child in ast.iter_child_nodes(stmt):
        if not isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            for node in ast.walk(child):
                match node:
                    case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                        yield name


def _read(node: ast.AST) -> set[str]:
    """The names of a node, and the attributes of `self` in it."""
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    own = {
        f"self.{one.attr}"
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "self"
    }
    return (names | own) - {"self", "len", "int", "str", "isinstance", "getattr", "list", "dict", "range", "any", "all"}


def _text(node: ast.AST) -> str:
    made = _Bare().visit(deepcopy(node))
    return ast.unparse(ast.fix_missing_locations(made)) if made is not None else ""

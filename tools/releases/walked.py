"""The functions, classes and names of a release's sources, each with the tests that hold where it stands."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from releases.calls import Function

_LONGEST = 200


@dataclass(frozen=True)
class Test:
    """A test that holds where it stands, and whether it is met."""

    node: ast.expr
    met: bool


@dataclass(frozen=True)
class Place:
    """Where something stands: its module, class and function, the tests that hold there, and the line before which
    names were set."""

    path: str
    owner: ast.ClassDef | None = None
    function: Function | None = None
    tests: tuple[Test, ...] = ()
    line: int = 0

    def behind(self, test: Test) -> Place:
        """The same place, where one more test holds."""
        return replace(self, tests=(*self.tests, test))


@dataclass
class Walked:
    """What the walk over some modules finds."""

    functions: dict[Function, tuple[str, Place]] = field(default_factory=dict)  # with its name and where it is made
    classes: dict[str, list[ast.ClassDef]] = field(default_factory=lambda: defaultdict(list))
    called: dict[str, list[Function]] = field(default_factory=lambda: defaultdict(list))
    uses: dict[str, list[Place]] = field(default_factory=lambda: defaultdict(list))
    calls: dict[str, list[tuple[ast.Call, Place]]] = field(default_factory=lambda: defaultdict(list))
    blocks: dict[Function, list[tuple[int, int, Test]]] = field(default_factory=lambda: defaultdict(list))
    paths: dict[ast.ClassDef, str] = field(default_factory=dict)
    set_at: dict[ast.expr, Place] = field(default_factory=dict)  # where a value is given

    def add(self, other: Walked) -> None:
        """With what another file has."""
        self.functions |= other.functions
        self.blocks |= other.blocks
        self.paths |= other.paths
        self.set_at |= other.set_at
        for name, classes in other.classes.items():
            self.classes[name] += classes
        for name, functions in other.called.items():
            self.called[name] += functions
        for name, uses in other.uses.items():
            self.uses[name] += uses
        for name, calls in other.calls.items():
            self.calls[name] += calls

    def walk(self, lines: list[ast.stmt], at: Place, within: str = "") -> None:
        """Lines of one body, in their order: what stands after `if x: return` is behind its contrary."""
        for i, line in enumerate(lines):
            self._line(line, at, within)
            rest = lines[i + 1 :]
            for test in _left(line) if rest else ():
                at = at.behind(test)
                self._block(rest, test, at)

    def _line(self, line: ast.stmt, at: Place, within: str) -> None:
        match line:
            case ast.ClassDef():
                self._class(line, at, within)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                name = f"{within}{line.name}"
                self.functions[line] = (name, at)
                self.called[line.name].append(line)
                for decorator in line.decorator_list:
                    self._used(decorator, at)
                self.walk(line.body, replace(at, function=line, tests=()), f"{name}.")
            case ast.Import() | ast.ImportFrom() | ast.Assign(targets=[ast.Name(id="__all__")]):
                return
            case ast.AnnAssign(value=None):
                return
            case _ if parts := list(_parts(line)):
                for head in _heads(line):
                    self._used(head, at)
                for body, test in parts:
                    if isinstance(line, ast.If) and test is not None:
                        self._block(body, test, at)
                    self.walk(body, at.behind(test) if test is not None else at, within)
            case _:
                value = getattr(line, "value", None)
                if isinstance(value, ast.expr):
                    self.set_at[value] = replace(at, line=value.lineno)
                # a type that is written beside a name is no use of its class
                self._used(value if isinstance(line, ast.AnnAssign) and isinstance(value, ast.expr) else line, at)

    def _class(self, line: ast.ClassDef, at: Place, within: str) -> None:
        """A class is used wherever one of its kind is."""
        self.classes[line.name].append(line)
        self.paths[line] = at.path
        for decorator in line.decorator_list:
            self._used(decorator, at)
        for base in line.bases:
            self.uses[bare(base)].append(Place(at.path, line))
        self.walk(line.body, Place(at.path, line, None, at.tests), f"{within}{line.name}.")

    def _block(self, lines: list[ast.stmt], test: Test, at: Place) -> None:
        if at.function is not None and lines:
            self.blocks[at.function].append((lines[0].lineno, lines[-1].end_lineno or lines[-1].lineno, test))

    def _used(self, node: ast.AST, at: Place) -> None:
        """Each name that an expression reads, behind what it tests itself; a text counts, as a registry has such."""
        match node:
            case ast.IfExp(test=test, body=body, orelse=other):
                self._used(test, at)
                self._used(body, at.behind(Test(test, met=True)))
                self._used(other, at.behind(Test(test, met=False)))
                return
            case ast.BoolOp(op=op, values=parts):
                for part in parts:
                    self._used(part, at)
                    at = at.behind(Test(part, met=isinstance(op, ast.And)))
                return
            case ast.Call(func=ast.Name(id="isinstance"), args=[of, _]):
                self._used(of, at)
                return
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                self.calls[name].append((node, at))
            case ast.Name(id=name) | ast.Attribute(attr=name):
                self.uses[name].append(at)
            case ast.Constant(value=str() as text) if text and len(text) < _LONGEST:
                last = text.rpartition(".")[2].rpartition(":")[2]
                if last.isidentifier():
                    self.uses[last].append(at)
        for child in ast.iter_child_nodes(node):
            self._used(child, at)


def bare(base: ast.expr) -> str:
    """`abc.Base[int]` → `Base`."""
    return ast.unparse(base).rpartition(".")[2].partition("[")[0]


def _left(line: ast.stmt) -> Iterator[Test]:
    """What holds after a line because it leaves otherwise."""
    match line:
        case ast.If(test=test, body=body, orelse=other):
            if _leaves(body):
                yield Test(test, met=False)
            if _leaves(other):
                yield Test(test, met=True)
        case ast.Assert(test=test):
            yield Test(test, met=True)


def _leaves(lines: list[ast.stmt]) -> bool:
    return bool(lines) and isinstance(lines[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)


def _heads(line: ast.stmt) -> Iterator[ast.expr]:
    match line:
        case ast.If(test=head) | ast.While(test=head) | ast.Match(subject=head):
            yield head
        case ast.With(items=items) | ast.AsyncWith(items=items):
            yield from (item.context_expr for item in items)
        case ast.For(iter=head) | ast.AsyncFor(iter=head):
            yield head


def _parts(line: ast.stmt) -> Iterator[tuple[list[ast.stmt], Test | None]]:
    """The bodies of a line, each with the test behind which it stands."""
    match line:
        case ast.If(test=test, body=body, orelse=other):
            yield body, Test(test, met=True)
            yield other, Test(test, met=False)
        case ast.While(test=test, body=body):
            yield body, Test(test, met=True)
        case ast.Match(cases=cases):
            yield from ((case.body, None) for case in cases)
        case ast.Try(body=body, handlers=handlers, orelse=other, finalbody=last):
            yield [*body, *other], None
            yield from ((handler.body, None) for handler in handlers)
            yield last, None
        case ast.With(body=body) | ast.AsyncWith(body=body):
            yield body, None
        case ast.For(body=body, orelse=other) | ast.AsyncFor(body=body, orelse=other):
            yield [*body, *other], None

"""Values that a release refuses together: its own tests of options (history/checks.json), asked of what was given.

A test is the expression of vLLM's own source, in the names of its options: `enable_log_outputs and (not
enable_log_requests)`. It is read as a tree of a few kinds of nodes and never run as Python. What nobody knows, the
value of a variable or a default that is computed, makes no refusal.
"""

from __future__ import annotations

import ast
import copy
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from vllm_doctor.knowledge.history import Record, history
from vllm_doctor.knowledge.version import Version


@dataclass(frozen=True)
class UnknownValue:
    """A value that nobody knows."""


@dataclass(frozen=True)
class BrokenCheck:
    """A test that holds, which ends the start: the names in it that were given, and what would do, in words."""

    names: tuple[str, ...]
    needed: str
    asked: frozenset[str] = frozenset()  # all names of the test


UNKNOWN = UnknownValue()
_SIGNS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Lt: ("of {} or more", operator.lt),
    ast.LtE: ("above {}", operator.le),
    ast.Gt: ("of at most {}", operator.gt),
    ast.GtE: ("below {}", operator.ge),
    ast.Eq: ("other than {}", operator.eq),
    ast.NotEq: ("of {}", operator.ne),
    ast.Is: ("other than {}", operator.is_),
    ast.IsNot: ("of {}", operator.is_not),
    ast.In: ("other than {}", lambda one, many: one in many),
    ast.NotIn: ("of one of {}", lambda one, many: one not in many),
}

_PAIRS: tuple[tuple[type[ast.cmpop], type[ast.cmpop]], ...] = (
    (ast.Lt, ast.GtE),
    (ast.LtE, ast.Gt),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
)
_CONTRARY = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}


def broken(values: Mapping[str, object], at: Version, *, of: str = "") -> Iterator[BrokenCheck]:
    """The release's tests that hold for what was given: of the options (`values` has their names with underscores and
    the values of those that were given, an UnknownValue where it is not known), or of the keys of one class."""
    for tree, names, record in _tests(of, at):
        given = tuple(name for name in names if name in values)
        if given:
            defaults = record.get("defaults")
            ask = _Keys(values, defaults if isinstance(defaults, Mapping) else None, at)
            if ask.value(tree) is True:
                yield BrokenCheck(given, ask.instead(tree, given[0]), frozenset(names))


@lru_cache(maxsize=1024)
def _tests(of: str, at: Version) -> tuple[tuple[ast.expr, tuple[str, ...], Record], ...]:
    """A release's tests with their names: each launch that is read asks all of them."""
    table = history("checks", "checks")
    if at not in table.releases:
        return ()
    here = ((key, table.value(key, at)) for key in table.names() if table.exists(key, at))
    return tuple(
        (*_tree(key.removeprefix(f"{of}: ")), record) for key, record in here if str(record.get("class", "")) == of
    )


@cache
def _tree(text: str) -> tuple[ast.expr, tuple[str, ...]]:
    tree = ast.parse(text, mode="eval").body
    return tree, tuple(dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)))


class OptionTest:
    """Asks a test: a subclass says what its names hold, and what they are called."""

    def named(self, name: str) -> object:
        """What a name holds."""
        raise NotImplementedError

    def shown(self, name: str) -> str:
        """What a reader calls it."""
        raise NotImplementedError

    def wanted(self, name: str, *, holds: bool) -> str:
        """In words: it should hold, or it should not."""
        return self.shown(name) if holds else f"no {self.shown(name)}"

    def needless(self, part: ast.expr, held: Sequence[ast.expr]) -> bool:
        """Does a part go without saying beside the others that hold?"""
        del part, held
        return False

    def instead(self, tree: ast.expr, given: str) -> str:
        """In words, what would do in place of a test that holds, beside the name that was given."""
        held = list(_held(tree, self))
        held = [part for part in held if not self.needless(part, held)]
        others = [part for part in held if _first_name(part) != given]
        does = dict.fromkeys(_instead(part, self) for part in others or held[-1:])
        beside = f" beside {self.shown(given)}" if others else ""
        return " or ".join(does) + beside

    def value(self, node: ast.expr) -> object:  # noqa: PLR0912
        """True, False or a value; an UnknownValue where it depends on what nobody knows."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name() | ast.Attribute():
                return self.named(_dotted(node))
            case ast.BinOp(left=left, op=op, right=right):
                return _counted(self.value(left), type(op), self.value(right))
            case ast.Tuple(elts=parts):
                return tuple(self.value(part) for part in parts)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                number = self.value(inner)
                return -number if isinstance(number, int | float) else UNKNOWN
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                value = self.value(inner)
                return value if isinstance(value, UnknownValue) else not value
            case ast.BoolOp(op=op, values=parts):
                return self._joined(parts, all_of=isinstance(op, ast.And))
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._compared(left, ops, others)
            case ast.IfExp(test=test, body=one, orelse=two):
                asked = self.value(test)
                return asked if isinstance(asked, UnknownValue) else self.value(one if asked else two)
            case ast.Subscript(value=of, slice=ast.Constant(value=int() as at)):
                held = self.value(of)
                return held[at] if isinstance(held, str | list | tuple) and -len(held) <= at < len(held) else UNKNOWN
            case ast.Call(func=ast.Name(id="len"), args=[of]):
                held = self.value(of)
                return len(held) if isinstance(held, str | list | tuple | dict) else UNKNOWN
            case ast.Call(func=ast.Name(id="any"), args=[ast.GeneratorExp(elt=test, generators=[each])]):
                held = self.value(each.iter)
                if not isinstance(held, list | tuple | dict) or not isinstance(each.target, ast.Name):
                    return UNKNOWN
                return self._joined([_put(test, each.target.id, one) for one in held], all_of=False)
            case ast.Call(func=ast.Attribute(value=of, attr="startswith" | "endswith" as how), args=[part]):
                held, told = self.value(of), self.value(part)
                return getattr(held, how)(told) if isinstance(held, str) and isinstance(told, str) else UNKNOWN
            case _:
                return UNKNOWN

    def _joined(self, parts: list[ast.expr], *, all_of: bool) -> object:
        """One part that decides it settles the whole, whatever nobody knows of the others."""
        known = True
        for part in parts:
            value = self.value(part)
            if isinstance(value, UnknownValue):
                known = False
            elif bool(value) is not all_of:
                return not all_of
        return all_of if known else UNKNOWN

    def _compared(self, left: ast.expr, ops: list[ast.cmpop], others: list[ast.expr]) -> object:
        one = self.value(left)
        for op, node in zip(ops, others, strict=True):
            other = self.value(node)
            if isinstance(one, UnknownValue) or isinstance(other, UnknownValue):
                return UNKNOWN
            if isinstance(other, tuple) and any(isinstance(part, UnknownValue) for part in other):
                return UNKNOWN
            try:
                holds = _SIGNS[type(op)][1](one, other)
            except TypeError:
                return UNKNOWN
            if not holds:
                return False
            one = other
        return True


@dataclass(frozen=True)
class _Keys(OptionTest):
    """Options by their names, or (with defaults) the keys of one class."""

    values: Mapping[str, object]
    defaults: Mapping[str, object] | None
    at: Version

    def named(self, name: str) -> object:
        return self.values[name] if name in self.values else self._default(name)

    def shown(self, name: str) -> str:
        """An option's name as one writes it; a key's as it stands."""
        return name if self.defaults is not None else f"--{name.replace('_', '-')}"

    def _default(self, name: str) -> object:
        from vllm_doctor.knowledge import versions

        if self.defaults is not None:
            found: object = versions.literal(self.defaults.get(name))
        else:
            fact = versions.flag(name.replace("_", "-"), self.at)
            found = fact.default if fact is not None else UNKNOWN
        return UNKNOWN if isinstance(found, versions.Expression) else found


def _put(test: ast.expr, name: str, value: object) -> ast.expr:
    """A test with a value in place of a name."""

    class Put(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return ast.Constant(value) if node.id == name else node  # type: ignore[arg-type]

    made: ast.expr = Put().visit(copy.deepcopy(test))
    return made


_COUNTS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
}


def _dotted(node: ast.expr) -> str:
    """`a.b` as it is written: what `ast.unparse` says of a name, in a tenth of its time."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=of, attr=key):
            return f"{_dotted(of)}.{key}"
        case _:
            return ast.unparse(node)


def _counted(one: object, op: type[ast.operator], other: object) -> object:
    """A sum of whole numbers; of anything else nobody knows."""
    if not isinstance(one, int) or not isinstance(other, int) or op not in _COUNTS:
        return UNKNOWN
    return _COUNTS[op](one, other) if other or op not in {ast.Mod, ast.FloorDiv} else UNKNOWN


def _held(node: ast.expr, ask: OptionTest) -> Iterator[ast.expr]:
    """The parts of a test that hold; each of them would have to be otherwise."""
    match node:
        case ast.BoolOp(op=op, values=parts):
            held = [part for part in parts if _is_held(ask.value(part))]
            for part in held if isinstance(op, ast.And) else held[:1]:
                yield from _held(part, ask)
        case ast.UnaryOp(op=ast.Not(), operand=ast.BoolOp(op=op, values=parts)):
            turned = ast.And() if isinstance(op, ast.Or) else ast.Or()
            yield from _held(ast.BoolOp(turned, [ast.UnaryOp(ast.Not(), part) for part in parts]), ask)
        case ast.UnaryOp(op=ast.Not(), operand=ast.UnaryOp(op=ast.Not(), operand=inner)):
            yield from _held(inner, ask)
        case _:
            yield node


def _is_held(value: object) -> bool:
    return not isinstance(value, UnknownValue) and bool(value)


def _first_name(node: ast.expr) -> str:
    """The first name of a part, with the dots that are in it."""
    named = [part for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute)]
    named.sort(key=lambda part: isinstance(part, ast.Name))
    return ast.unparse(named[0]) if named else ""


def _instead(node: ast.expr, ask: OptionTest) -> str:
    """What would do in place of a part that holds."""
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=ast.Name() | ast.Attribute() as name):
            return ask.wanted(ast.unparse(name), holds=True)
        case ast.UnaryOp(op=ast.Not(), operand=ast.Compare(left=name, ops=[ast.Is()])):
            return ask.wanted(ast.unparse(name), holds=False)
        case ast.UnaryOp(op=ast.Not(), operand=ast.Compare(left=low, comparators=[ast.Name(id=name), high])):
            return f"{ask.shown(name)} from {ask.value(low)} to {ask.value(high)}"
        case ast.UnaryOp(op=ast.Not(), operand=ast.Compare(left=one, ops=[op], comparators=[other])):
            return _instead(ast.Compare(one, [_CONTRARY[type(op)]()], [other]), ask)
        case ast.Name() | ast.Attribute() as name:
            return ask.wanted(ast.unparse(name), holds=False)
        case ast.Compare(left=ast.Call(func=ast.Name(id="len"), args=[inner]), ops=[ast.Gt()]):
            return _instead(inner, ask)
        case ast.Compare(left=ast.Name() | ast.Attribute() as name, ops=[op], comparators=[other]):
            value = ask.value(other)
            if value is None:
                return ask.wanted(ast.unparse(name), holds=isinstance(op, ast.Is))
            told = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
            return f"{ask.shown(ast.unparse(name))} {_SIGNS[type(op)][0].format(told)}"
        case _:
            named = next((part for part in ast.walk(node) if isinstance(part, ast.Attribute)), None)
            return f"not {ast.unparse(node)}" if named is None else f"another value of {ask.shown(ast.unparse(named))}"

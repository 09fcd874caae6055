"""Values that a release refuses together: its own tests of options (history/checks.json), asked of what was given.

A test is the expression of vLLM's own source, in the names of its options: `enable_log_outputs and (not
enable_log_requests)`. It is read as a tree of a few kinds of nodes and never run as Python. What nobody knows, the
value of a variable or a default that is computed, makes no refusal.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from vllm_doctor.knowledge.history import history
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


_UNKNOWN = UnknownValue()
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


def broken(values: Mapping[str, object], at: Version, *, of: str = "") -> Iterator[BrokenCheck]:
    """The release's tests that hold for what was given: of the options (`values` has their names with underscores and
    the values of those that were given, an UnknownValue where it is not known), or of the keys of one class."""
    table = history("checks", "checks")
    if at not in table.releases:
        return
    for key in table.names():
        if table.exists(key, at) and str(table.value(key, at).get("class", "")) == of:
            tree, names = _tree(key.removeprefix(f"{of}: "))
            given = tuple(name for name in names if name in values)
            if given:
                defaults = table.value(key, at).get("defaults")
                ask = _Asked(values, defaults if isinstance(defaults, Mapping) else None, at)
                if ask.value(tree) is True:
                    held = list(_held(tree, ask))
                    others = [part for part in held if _first_name(part) != given[0]]
                    does = dict.fromkeys(_instead(part, ask) for part in others or held[-1:])
                    beside = f" beside {ask.shown(given[0])}" if others else ""
                    yield BrokenCheck(given, " or ".join(does) + beside, frozenset(names))


@cache
def _tree(text: str) -> tuple[ast.expr, tuple[str, ...]]:
    tree = ast.parse(text, mode="eval").body
    return tree, tuple(dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)))


@dataclass(frozen=True)
class _Asked:
    """What the names of a test hold."""

    values: Mapping[str, object]
    defaults: Mapping[str, object] | None
    at: Version

    def value(self, node: ast.expr) -> object:
        """True, False or a value; an UnknownValue where it depends on what nobody knows."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name(id=name):
                return self.values[name] if name in self.values else self._default(name)
            case ast.Tuple(elts=parts):
                return tuple(self.value(part) for part in parts)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                number = self.value(inner)
                return -number if isinstance(number, int | float) else _UNKNOWN
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                value = self.value(inner)
                return value if isinstance(value, UnknownValue) else not value
            case ast.BoolOp(op=op, values=parts):
                return self._joined([self.value(part) for part in parts], all_of=isinstance(op, ast.And))
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._compared(left, ops, others)
            case _:
                return _UNKNOWN

    def shown(self, name: str) -> str:
        """An option's name as one writes it; a key's as it stands."""
        return name if self.defaults is not None else f"--{name.replace('_', '-')}"

    def _joined(self, values: list[object], *, all_of: bool) -> object:
        decided = [bool(v) for v in values if not isinstance(v, UnknownValue)]
        if any(v is not all_of for v in decided):
            return not all_of
        return all_of if len(decided) == len(values) else _UNKNOWN

    def _compared(self, left: ast.expr, ops: list[ast.cmpop], others: list[ast.expr]) -> object:
        one = self.value(left)
        for op, node in zip(ops, others, strict=True):
            other = self.value(node)
            if isinstance(one, UnknownValue) or isinstance(other, UnknownValue):
                return _UNKNOWN
            try:
                holds = _SIGNS[type(op)][1](one, other)
            except TypeError:
                return _UNKNOWN
            if not holds:
                return False
            one = other
        return True

    def _default(self, name: str) -> object:
        from vllm_doctor.knowledge import versions

        if self.defaults is not None:
            found: object = versions.literal(self.defaults.get(name))
        else:
            fact = versions.flag(name.replace("_", "-"), self.at)
            found = fact.default if fact is not None else _UNKNOWN
        return _UNKNOWN if isinstance(found, versions.Expression) else found


def _held(node: ast.expr, ask: _Asked) -> Iterator[ast.expr]:
    """The parts of a test that hold; each of them would have to be otherwise."""
    if isinstance(node, ast.BoolOp):
        held = [part for part in node.values if ask.value(part) is not False and ask.value(part)]
        for part in held if isinstance(node.op, ast.And) else held[:1]:
            yield from _held(part, ask)
    else:
        yield node


def _first_name(node: ast.expr) -> str:
    return next((part.id for part in ast.walk(node) if isinstance(part, ast.Name)), "")


def _instead(node: ast.expr, ask: _Asked) -> str:
    """What would do in place of a part that holds."""
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=ast.Name(id=name)):
            return ask.shown(name)
        case ast.UnaryOp(op=ast.Not(), operand=ast.Compare(left=ast.Name(id=name), ops=[ast.Is()])):
            return f"no {ask.shown(name)}"
        case ast.UnaryOp(op=ast.Not(), operand=ast.Compare(left=low, comparators=[ast.Name(id=name), high])):
            return f"{ask.shown(name)} from {ask.value(low)} to {ask.value(high)}"
        case ast.Name(id=name):
            return f"no {ask.shown(name)}"
        case ast.Compare(left=ast.Name(id=name), ops=[op], comparators=[other]):
            value = ask.value(other)
            if value is None:
                return ask.shown(name) if isinstance(op, ast.Is) else f"no {ask.shown(name)}"
            told = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
            return f"{ask.shown(name)} {_SIGNS[type(op)][0].format(told)}"
        case _:
            return f"not {ast.unparse(node)}"

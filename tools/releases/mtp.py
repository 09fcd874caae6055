"""Which class drafts with a model's own layers of multi-token prediction: what a release turns a config into when its
model drafts for itself (config/speculative.py hf_config_override, config.py before 0.10).

The function is followed, not run: once for each name of a model type or of a class that its conditions ask for. What
else a condition asks of a config, such as how many layers it has, is taken to hold.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from releases.assigned import assigned
from releases.wheel import Wheel

_CONFIGS = r"vllm/(config/speculative|config/__init__|config)\.py"
_FUNCTION = "hf_config_override"
_TYPES = ("MTPModelTypes", "MTP_MODEL_TYPES")
# The row that says which model types draft so, once they are turned.
EVERY = "*"


class _Unknown:
    """What the function alone does not tell."""


_UNKNOWN = _Unknown()
_NONE = "-"  # a name that no release asks for


def read(wheel: Wheel) -> dict[str, str]:
    """Model type or class of a config → the model type that it is turned into and, where it is told, the class that
    drafts; `*` → the types that draft so. Empty for a release without such layers."""
    for path in wheel.paths(_CONFIGS):
        tree = wheel.tree(path)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == _FUNCTION:
                types = " ".join(_types(tree))
                return ({EVERY: types} if types else {}) | dict(_all(node))
    return {}


def _types(tree: ast.Module) -> list[str]:
    lists = (value for name, value in assigned(tree.body) if name in _TYPES and value is not None)
    return sorted({one for value in lists for one in _texts(value)})


def _texts(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value


def _all(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    asked = {name for node in ast.walk(function) if isinstance(node, ast.If) for name in _texts(node.test)}
    for name in sorted(asked):
        for config in (_Config(name, _NONE), _Config(_NONE, name)):
            config.follow(function.body)
            if turned := config.turned:
                yield name, turned


class _Config:
    """A config on its way through the function: its model type, its class, and the variables beside it."""

    def __init__(self, model_type: str, architecture: str) -> None:
        self._given = (model_type, architecture)
        self._values: dict[str, object] = {"model_type": model_type, "architectures": [architecture]}
        self._names: dict[str, object] = {}

    @property
    def turned(self) -> str:
        """The model type and the class that it has now; empty where both are what they were."""
        found, classes = self._values["model_type"], self._values["architectures"]
        drafts = classes[0] if isinstance(classes, list) and classes else None
        if not isinstance(found, str) or found == _NONE or (found, drafts) == self._given:
            return ""
        return f"{found} {drafts}" if isinstance(drafts, str) and drafts != self._given[1] else found

    def follow(self, lines: list[ast.stmt]) -> bool:
        """Go through these lines; False once the function has returned."""
        for line in lines:
            match line:
                case ast.If(test=test, body=body, orelse=other):
                    holds = self._value(test)
                    branch = [] if holds is _UNKNOWN else body if holds else other
                    if not self.follow(branch):
                        return False
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._names[name] = self._value(value)
                case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="hf_config"), attr=name)], value=value):
                    if name in self._values:
                        self._values[name] = self._value(value)
                case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name), slice=key)], value=value):
                    self._put(name, key, value)
                case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="hf_config")), args=[told])):
                    self._update(self._value(told))
                case ast.Return():
                    return False
        return True

    def _put(self, name: str, key: ast.expr, value: ast.expr) -> None:
        table, at = self._names.get(name), self._value(key)
        if isinstance(table, dict):
            table[at] = self._value(value)

    def _update(self, told: object) -> None:
        if isinstance(told, dict):
            self._values |= {name: value for name, value in told.items() if name in self._values}

    def _value(self, node: ast.expr) -> object:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                return [self._value(one) for one in parts]
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                return {self._value(key): self._value(value) for key, value in pairs if key is not None}
            case ast.Subscript(value=table, slice=key):
                return _item(self._value(table), self._value(key))
            case ast.BoolOp() | ast.UnaryOp(op=ast.Not()) | ast.Compare() | ast.IfExp():
                return self._judged(node)
            case _:
                return self._named(node)

    def _named(self, node: ast.expr) -> object:
        match node:
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                self._names[name] = self._value(value)
                return self._names[name]
            case ast.Name(id=name):
                return self._names.get(name, _UNKNOWN)
            case ast.Attribute(value=ast.Name(id="hf_config"), attr=name):
                return self._values.get(name, _UNKNOWN)
            case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name(id="hf_config"), ast.Constant(value=name), *_]):
                return self._values.get(str(name), _UNKNOWN)
            case ast.Call(func=ast.Attribute(value=names, attr="intersection"), args=[others]):
                return _common(self._value(names), self._value(others))
            case _:
                return _UNKNOWN

    def _judged(self, node: ast.expr) -> object:
        match node:
            case ast.IfExp(test=test, body=body, orelse=other):
                holds = self._value(test)
                return _UNKNOWN if holds is _UNKNOWN else self._value(body if holds else other)
            case ast.UnaryOp(operand=one):
                told = self._value(one)
                return _UNKNOWN if told is _UNKNOWN else not told
            case ast.BoolOp():
                return self._joined(node)
            case ast.Compare(left=left, ops=[how], comparators=[right]):
                return _compared(self._value(left), how, self._value(right))
            case _:
                return _UNKNOWN

    def _joined(self, node: ast.BoolOp) -> object:
        found = [self._value(one) for one in node.values]
        known = [value for value in found if value is not _UNKNOWN]
        if isinstance(node.op, ast.And):
            # What a config has beside its names is taken to hold.
            return next((value for value in known if not value), known[-1] if known else _UNKNOWN)
        return next((value for value in known if value), _UNKNOWN if len(known) < len(found) else known[-1])


def _common(mine: object, theirs: object) -> object:
    if isinstance(mine, list) and isinstance(theirs, list):
        return [one for one in mine if one in theirs]
    return _UNKNOWN


def _item(table: object, key: object) -> object:
    if isinstance(table, dict):
        return table.get(key, _UNKNOWN)
    return table[key] if isinstance(table, list) and isinstance(key, int) and key < len(table) else _UNKNOWN


def _compared(left: object, how: ast.cmpop, right: object) -> object:
    if _UNKNOWN in (left, right):
        return _UNKNOWN
    match how:
        case ast.Eq():
            return left == right
        case ast.NotEq():
            return left != right
        case ast.In() | ast.NotIn() if isinstance(right, (list, str)) and isinstance(left, str):
            return (left in right) == isinstance(how, ast.In)
        case _:
            return _UNKNOWN

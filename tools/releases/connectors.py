"""The KV connectors that a release registers (distributed/kv_transfer/kv_connector/factory.py), and which of them keep
kinds of layers apart: their class stands on SupportsHMA. To 0.10.0 there are those of the first engine and those of the
second, whose modules lie in a folder of their own."""

from __future__ import annotations

import ast

from releases.traits import LostError, Traits
from releases.wheel import Wheel

_FACTORY = "vllm/distributed/kv_transfer/kv_connector/factory.py"
_REGISTERS = "register_connector"
_APART = "SupportsHMA"
_DEPTH = 12
_SECOND = ".kv_connector.v1."
# What is said of a connector: it keeps them apart, it does not, or its class cannot be followed; and, where no class
# keeps them apart, which engine it is for.
APART, TOGETHER, LOST = "apart", "together", "lost"
FIRST, SECOND = "first engine", "second engine"


def read(wheel: Wheel) -> dict[str, str]:
    """Connector → what is said of it; empty for a release that registers none by name."""
    if _FACTORY not in wheel.files:
        return {}
    apart = any(f"class {_APART}" in text for text in wheel.files.values())
    classes = Traits(wheel)
    made: dict[str, str] = {}
    for node in ast.walk(wheel.tree(_FACTORY)):
        match node:
            case ast.Call(func=ast.Attribute(attr=called), args=[*given]) if called == _REGISTERS:
                told = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]
                if len(told) == 3:
                    name, module, cls = told
                    made[name] = _of(classes, module, cls) if apart else SECOND if _SECOND in module else FIRST
    return dict(sorted(made.items()))


def _of(classes: Traits, module: str, name: str) -> str:
    try:
        return APART if _stands(classes, module, name, _DEPTH) else TOGETHER
    except LostError:
        return LOST


def _stands(classes: Traits, module: str, name: str, depth: int) -> bool:
    """Raises LostError."""
    if not depth:
        raise LostError(name)
    for home, node in classes.found(module, name, depth):
        names = [base.id for base in node.bases if isinstance(base, ast.Name)]
        if _APART in names or any(_stands(classes, home, one, depth - 1) for one in names if one not in _OTHERS):
            return True
    return False


# Bases of other libraries.
_OTHERS = frozenset({"ABC", "object", "Protocol", "Generic"})

"""For which model types a release lets a drafter of EAGLE 3 draft (config/speculative.py, config.py before 0.11): parts
of the model type, where it refuses all others."""

from __future__ import annotations

import ast

from releases.assigned import assigned
from releases.wheel import Wheel

_CONFIGS = r"vllm/(config/speculative|config/__init__|config)\.py"
_LISTS = ("eagle3_target_supported", "aux_hidden_states_supported")
_METHOD = "eagle3"


def read(wheel: Wheel) -> dict[str, str]:
    """`eagle3` → the names, with a space between; empty for a release that asks the class alone."""
    for path in wheel.paths(_CONFIGS):
        for node in ast.walk(wheel.tree(path)):
            names = _listed(node) or _told_apart(node)
            if names:
                return {_METHOD: " ".join(names)}
    return {}


def _listed(node: ast.AST) -> list[str]:
    if not isinstance(node, ast.FunctionDef):
        return []
    for name, value in assigned(ast.walk(node)):
        if name in _LISTS and isinstance(value, ast.List):
            return [str(one.value) for one in value.elts if isinstance(one, ast.Constant)]
    return []


def _told_apart(node: ast.AST) -> list[str]:
    """`if self.method == "eagle3" and … "llama" not in …model_type: raise`."""
    if (
        not isinstance(node, ast.If)
        or not isinstance(node.test, ast.BoolOp)
        or f"'{_METHOD}'" not in ast.unparse(node.test)
    ):
        return []
    raises = any(isinstance(line, ast.Raise) for line in node.body)
    found: list[str] = []
    for part in node.test.values:
        match part:
            case ast.Compare(left=ast.Constant(value=str(name)), ops=[ast.NotIn()], comparators=[asked]):
                if raises and ast.unparse(asked).endswith("model_type"):
                    found.append(name)
    return found

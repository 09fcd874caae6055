"""The variables that vllm/envs.py reads, with the defaults that its annotations state and the values it allows."""

from __future__ import annotations

import ast
import re

from releases.wheel import Wheel

_NAME = re.compile(r"[A-Z][A-Z0-9_]+")
_LISTS = {"env_with_choices", "env_list_with_choices", "env_set_with_choices"}


def read(wheel: Wheel) -> dict[str, dict[str, object]]:
    """Every variable; none for a release from before vllm/envs.py."""
    if "vllm/envs.py" not in wheel.files:
        return {}
    stated: dict[str, str | None] = {}
    names: set[str] = set()
    choices: dict[str, list[object]] = {}
    for node in ast.walk(wheel.tree("vllm/envs.py")):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id.isupper():
            stated[node.target.id] = None if node.value is None else ast.unparse(node.value)
        elif isinstance(node, ast.Dict):
            keys = [k.value for k in node.keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]
            names.update(k for k in keys if _NAME.fullmatch(k))
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in _LISTS
            and len(node.args) > 2
        ):
            name, listed = node.args[0], node.args[2]
            if isinstance(name, ast.Constant) and isinstance(listed, ast.List | ast.Tuple):
                choices[str(name.value)] = [v.value for v in listed.elts if isinstance(v, ast.Constant)]
    return {
        name: {"default": stated.get(name)} | ({"choices": choices[name]} if choices.get(name) else {})
        for name in sorted(names)
    }

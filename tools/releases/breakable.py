"""Which architectures a release captures in pieces that break by themselves, without compiling them, where the launch
does not ask (config/vllm.py): a set with a name from 0.29 on, the condition of an `if` before."""

from __future__ import annotations

import ast

from releases.assigned import assigned
from releases.wheel import Wheel

_CONFIG = "vllm/config/vllm.py"
_SET = "DEFAULT_BREAKABLE_CUDAGRAPH_ARCHITECTURES"
_ASKS = "os.environ['VLLM_USE_BREAKABLE_CUDAGRAPH'] ="


def read(wheel: Wheel) -> dict[str, dict[str, object]]:
    """Architecture → nothing more; empty for a release that compiles each."""
    if _CONFIG not in wheel.files:
        return {}
    tree = wheel.tree(_CONFIG)
    sets = [value for name, value in assigned(tree.body) if name == _SET and value is not None]
    return {name: {} for name in sorted(_names(sets or _conditions(tree)))}


def _conditions(tree: ast.Module) -> list[ast.expr]:
    """What an architecture is looked for in, where the variable is then set."""
    made: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and any(ast.unparse(line).startswith(_ASKS) for line in node.body):
            for part in ast.walk(node.test):
                match part:
                    case ast.Compare(ops=[ast.In()], comparators=[(ast.Tuple() | ast.Set() | ast.List()) as names]):
                        made.append(names)
                    case _:
                        pass
    return made


def _names(values: list[ast.expr]) -> set[str]:
    said = {n.value for value in values for n in ast.walk(value) if isinstance(n, ast.Constant)}
    return {name for name in said if isinstance(name, str)}

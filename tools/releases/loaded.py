"""Options whose text is no free one though the parser takes any: names that are imported, and pairs of an own reader.

`for name in args.middleware: module, attribute = name.rsplit(".", 1)` cannot be done with a name that has no dot.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterator

from releases.config import Classes
from releases.wheel import Wheel

_FILES = r"vllm/(config|entrypoints|engine|v1/(worker|executor|sample|engine))/.*\.py"
_RESOLVES = "resolve_obj_by_qualname"


def read(wheel: Wheel, options: Container[str]) -> Iterator[tuple[str, str]]:
    """(option, what must stand in its text) of every option that is loaded by its name."""
    found: dict[str, str] = {}
    for path in wheel.paths(_FILES):
        if "split(" in wheel.files[path] or _RESOLVES in wheel.files[path]:
            for node in ast.walk(wheel.tree(path)):
                found |= {name: needed for name, needed in (*_looped(node), *_resolved(node)) if name in options}
    yield from sorted(found.items())


def _looped(node: ast.AST) -> Iterator[tuple[str, str]]:
    """`for one in args.OPTION: a, b = one.rsplit(".", 1)`."""
    if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
        for line in node.body:
            if (
                isinstance(line, ast.Assign)
                and isinstance(line.targets[0], ast.Tuple)
                and ast.unparse(line.value) == f"{node.target.id}.rsplit('.', 1)"
            ):
                yield _option(node.iter), "."


def _resolved(node: ast.AST) -> Iterator[tuple[str, str]]:
    """`resolve_obj_by_qualname(self.OPTION)`, which splits the name at its last dot."""
    if (
        isinstance(node, ast.Call)
        and ast.unparse(node.func) == _RESOLVES
        and node.args
        and isinstance(node.args[0], ast.Attribute)
    ):
        yield _option(node.args[0]), "."


def _option(node: ast.expr) -> str:
    return node.attr.replace("_", "-") if isinstance(node, ast.Attribute) else ""


def pairs(wheel: Wheel, action: ast.ClassDef) -> dict[str, bool]:
    """The keys of an object that an action makes of what is no `name=path`, and whether each must be there; empty for
    an action that does something else."""
    text = ast.unparse(action)
    made = re.search(r"(\w+)\(\*\*\w+\)", text)
    if "if '=' in item and ',' not in item" not in text or "json.loads(item)" not in text or made is None:
        return {}
    for path in wheel.paths(r"vllm/entrypoints/.*\.py"):
        if f"\nclass {made[1]}" in wheel.files[path]:
            fields = Classes([wheel.tree(path)]).listed(made[1])
            return {name: default is None for name, (_, default) in fields.items()}
    return {}

"""The metrics that a release exports, by the names that its source gives them, with kind and labels."""

from __future__ import annotations

import ast
import re

from releases.wheel import Wheel

_KINDS = re.compile(r"(?i)(counter|gauge|histogram|summary|info)")


def read(wheel: Wheel) -> dict[str, dict[str, object]]:
    """Metric → kind, labels (None where they are computed) and the engine whose it is (both up to 0.11)."""
    made: dict[str, dict[str, object]] = {}
    for path in wheel.paths(r"vllm/(engine/.*metric.*|v1/.*metric.*|.*metrics|.*/stats|.*connector)\.py"):
        if "vllm:" not in wheel.files[path]:
            continue
        engine = "V0" if path.startswith("vllm/engine/") else "V1"
        module = wheel.tree(path)
        labels = _lists(module)
        for call in ast.walk(module):
            if isinstance(call, ast.Call) and (found := _metric(call, labels)):
                name, kind, named = found
                entry = made.setdefault(name, {"kind": kind, "labels": named, "engines": []})
                engines = entry["engines"]
                if isinstance(engines, list) and engine not in engines:
                    engines.append(engine)
                if entry["labels"] is None or (engine == "V1" and named is not None):
                    entry["labels"] = named
    return {name: made[name] for name in sorted(made)}


def _metric(call: ast.Call, lists: dict[str, list[str]]) -> tuple[str, str, list[str] | None] | None:
    kind = _KINDS.search(ast.unparse(call.func).rpartition(".")[2])
    given = next((k.value for k in call.keywords if k.arg == "name"), call.args[0] if call.args else None)
    if kind is None or not isinstance(given, ast.Constant) or not str(given.value).startswith("vllm:"):
        return None
    labels = next((k.value for k in call.keywords if k.arg == "labelnames"), None)
    return str(given.value), kind[1].lower(), _labels(labels, lists)


def _labels(node: ast.expr | None, lists: dict[str, list[str]]) -> list[str] | None:
    if node is None:
        return []
    if isinstance(node, ast.Name):
        return lists.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _labels(node.left, lists), _labels(node.right, lists)
        return left + right if left is not None and right is not None else None
    if isinstance(node, ast.List | ast.Tuple) and all(isinstance(e, ast.Constant) for e in node.elts):
        return [str(e.value) for e in node.elts if isinstance(e, ast.Constant)]
    return None


def _lists(module: ast.Module) -> dict[str, list[str]]:
    """Names that one list of texts is given to, and no other."""
    made: dict[str, list[str]] = {}
    twice: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.List):
            name, listed = node.targets[0].id, _labels(node.value, {})
            if listed is not None and made.setdefault(name, listed) != listed:
                twice.add(name)
    return {name: listed for name, listed in made.items() if name not in twice}

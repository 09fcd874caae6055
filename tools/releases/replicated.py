"""Where ranks split tokens instead of widths: which backends do so, and which architectures then hold their shared
experts whole on every rank.

`use_sequence_parallel_moe` (vllm/config/parallel.py, from 0.11; in 0.10.2 the model's own file) is one conjunction: the
backend is among some, and sizes are above one. A model's class that follows it builds its shared experts without tensor
parallelism: `self.shared_experts = DeepseekV2MLP(…, is_sequence_parallel=self.is_sequence_parallel)`. Classes are
followed through what they name (follow.py).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from releases.follow import Follower
from releases.traits import LostError
from releases.wheel import Wheel

_CONFIG = "vllm/config/parallel.py"
_PROPERTY = "use_sequence_parallel_moe"
# What a conjunct asks for, by the attribute that it reads.
_NEEDS = {"enable_expert_parallel": "expert", "tensor_parallel_size": "tensor", "data_parallel_size": "data"}
_NEEDS_OF_MODEL = _NEEDS | {"tp_size": "tensor"}
# What is said of an architecture: its shared experts are whole, they are where a condition of its own says so, or its
# class cannot be followed. Of one that splits them, nothing.
WHOLE, OWN, LOST = "whole", "own", "lost"


TABLES = ("tokens", "shared_experts")


def read(wheel: Wheel) -> dict[str, dict[str, str]]:
    """`tokens`: the backends and what else is needed; `shared_experts`: architecture → what is said of it."""
    found = _conjunction(wheel)
    if found is None:
        return {"tokens": {}, "shared_experts": {}}
    backends, needs = found
    return {
        "tokens": {"backends": " ".join(sorted(backends)), "needs": " ".join(sorted(needs))},
        "shared_experts": dict(_shared(wheel)),
    }


def _conjunction(wheel: Wheel) -> tuple[set[str], set[str]] | None:
    """The backends and the sizes; None where there is no such thing, or it reads otherwise."""
    if _CONFIG in wheel.files:
        tree = wheel.tree(_CONFIG)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == _PROPERTY and isinstance(node.body[-1], ast.Return):
                found = _parts(node.body[-1].value, _NEEDS)
                return None if found is None else (found[0] | _replaced(tree, found[0]), found[1])
    for path in wheel.paths(r"vllm/model_executor/models/\w+\.py"):
        if "is_sequence_parallel = (" in wheel.files[path]:
            for node in ast.walk(wheel.tree(path)):
                if isinstance(node, ast.Assign) and _attribute(node.targets[0]) == "is_sequence_parallel":
                    return _parts(node.value, _NEEDS_OF_MODEL)
    return None


def _parts(value: ast.expr | None, needs: dict[str, str]) -> tuple[set[str], set[str]] | None:
    if not isinstance(value, ast.BoolOp) or not isinstance(value.op, ast.And):
        return None
    backends: set[str] = set()
    asked: set[str] = set()
    for part in value.values:
        match part:
            case ast.Compare(left=left, ops=[ast.In()], comparators=[ast.Tuple(elts=names)]) if (
                (_attribute(left) or "").lower().endswith("all2all_backend")
            ):
                backends = {str(n.value) for n in names if isinstance(n, ast.Constant)}
            case ast.Compare(left=left, ops=[ast.Gt()]) if _attribute(left) in needs:
                asked.add(needs[_attribute(left) or ""])
            case ast.Attribute(attr=name) if name in needs:
                asked.add(needs[name])
            case _:
                return None
    return backends, asked


def _replaced(tree: ast.Module, backends: set[str]) -> set[str]:
    """Backends that are gone, and for which one of these is taken."""
    made: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.If(test=ast.Compare(left=ast.Attribute(attr="all2all_backend"), comparators=[names]), body=body):
                instead = [_said(n.value) for n in body if isinstance(n, ast.Assign)]
                if len(instead) == 1 and instead[0] in backends:
                    listed = names.elts if isinstance(names, ast.List | ast.Tuple) else [names]
                    made |= {said for said in map(_said, listed) if said is not None}
            case _:
                pass
    return made


def _said(value: ast.expr) -> str | None:
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def _attribute(value: ast.expr) -> str | None:
    return value.attr if isinstance(value, ast.Attribute) else None


def _shared(wheel: Wheel) -> Iterator[tuple[str, str]]:
    follower = Follower(wheel)
    lines = cache(lambda node: tuple(_of_class(node)))
    for name in follower.homes:
        try:
            told = {line for _, node in follower.parts(name) for line in lines(node)}
        except LostError:
            yield name, LOST
            continue
        if told - {None}:
            yield name, WHOLE if told == {WHOLE} else OWN


def _of_class(node: ast.ClassDef) -> Iterator[str | None]:
    """Of each line of a class that builds shared experts: whole under the one condition or under another; None for
    one that always splits them."""
    lines = [line for line in ast.walk(node) if isinstance(line, ast.Assign) and len(line.targets) == 1]
    sources: dict[str, ast.expr] = {}
    for line in lines:
        if isinstance(line.targets[0], ast.Name | ast.Attribute):
            sources[ast.unparse(line.targets[0])] = line.value
    for line in lines:
        match line:
            case ast.Assign(targets=[ast.Attribute(attr="shared_expert" | "shared_experts")], value=ast.Call() as call):
                given = [k.value for k in call.keywords if "sequence_parallel" in f"{k.arg} {ast.unparse(k.value)}"]
                follows = [_is_condition(sources.get(ast.unparse(value), value)) for value in given]
                yield None if not given else WHOLE if follows == [True] else OWN
            case _:
                pass


def _is_condition(value: ast.expr) -> bool:
    return _attribute(value) == _PROPERTY or _parts(value, _NEEDS_OF_MODEL) is not None

"""What programs around vLLM take from it by name, and which releases have it (knowledge/api/vllm.json).

A trainer, a plugin or a script imports names of vLLM's modules, calls methods with arguments and reads attributes. Of
another release than it was written for, it fails with Python's own words, which name the object and what it lacks. The
table has each public name with the releases that have it; what lives exactly as long as its owner is left out.
"""

from __future__ import annotations

import ast
import functools
import json
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from releases.wheel import Wheel

FILE = Path(__file__).resolve().parents[2] / "vllm_doctor" / "knowledge" / "api" / "vllm.json"
_SOURCE = "vLLM's wheels, read by tools/release.py api"
# Models, kernels and copies of other projects: nobody's program takes them by name.
_INSIDE = re.compile(
    r"vllm/(?:model_executor/(?:models|kernels)/|third_party/|vllm_flash_attn/|v1/attention/ops/|benchmarks/|lora/ops/"
    r"|transformers_utils/(?:configs|processors)/|kernels/|entrypoints/cli/benchmark)"
)
# Kinds of owners: a module has names, a class has members, a function or method (`LLM.generate`) has arguments.
KINDS = ("modules", "names", "members", "arguments")
# By kind and owner, the names.
Names = dict[str, dict[str, set[str]]]


def names(wheel: Wheel) -> Names:
    """What one release has."""
    return _Release(wheel).has


class _Release:
    """What one release has, by kind and owner."""

    def __init__(self, wheel: Wheel) -> None:
        self.has: Names = {kind: {} for kind in KINDS}
        # a bare name of a function that several modules have tells nothing
        self._functions: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        for path in wheel.files:
            if _INSIDE.match(path) is None:
                self._module(path, wheel.tree(path))
        for name, made in self._functions.items():
            if len(made) == 1:
                self._arguments(name, made[0])

    def _put(self, kind: str, owner: str, name: str) -> None:
        if name == "__init__" or not name.startswith("_"):
            self.has[kind].setdefault(owner, set()).add(name)

    def _module(self, path: str, tree: ast.Module) -> None:
        package = path.endswith("/__init__.py")
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self.has["modules"].setdefault("vllm", set()).add(module)
        for name, node in _defined(tree.body, imported=package):
            self._put("names", module, name)
            if isinstance(node, ast.ClassDef):
                self._class(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._functions.setdefault(name, []).append(node)
        if package:
            for name in _lazy(tree):
                self._put("names", module, name)

    def _class(self, node: ast.ClassDef) -> None:
        for part in node.body:
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                self._put("members", node.name, part.name)
                self._arguments(f"{node.name}.{part.name}", part)
                for held in _own_attributes(part):
                    self._put("members", node.name, held)
            for name, _ in _defined([part], imported=False):
                self._put("members", node.name, name)

    def _arguments(self, function: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if function.rpartition(".")[2].startswith("_") and not function.endswith(".__init__"):
            return
        listed = node.args
        for one in (*listed.posonlyargs, *listed.args, *listed.kwonlyargs):
            self._put("arguments", function, one.arg)


def _defined(body: Iterable[ast.stmt], *, imported: bool) -> Iterator[tuple[str, ast.stmt]]:
    """The names that statements make, within `if` and `try` too; `imported`: those that come from elsewhere as well."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Assign):
            named = (one for target in node.targets for one in ast.walk(target))
            yield from ((one.id, node) for one in named if isinstance(one, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node
        elif isinstance(node, ast.ImportFrom) and imported:
            yield from ((one.asname or one.name, node) for one in node.names)
        elif isinstance(node, ast.If):
            yield from _defined([*node.body, *node.orelse], imported=imported)
        elif isinstance(node, ast.Try):
            handled = [part for handler in node.handlers for part in handler.body]
            yield from _defined([*node.body, *handled, *node.orelse], imported=imported)


def _lazy(tree: ast.Module) -> Iterator[str]:
    """The names that a package fetches as they are asked for (vllm/__init__.py: MODULE_ATTRS)."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            for key in node.value.keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value.isidentifier():
                    yield key.value


def _own_attributes(method: ast.AST) -> Iterator[str]:
    for node in ast.walk(method):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def table(releases: Mapping[str, Names]) -> str:
    """The file's text, of all releases, oldest first."""
    found: dict[str, dict[str, dict[str, int]]] = {kind: {} for kind in KINDS}  # a bit for each release
    for at, has in enumerate(releases.values()):
        for kind, owners in has.items():
            for owner, held in owners.items():
                rows = found[kind].setdefault(owner, {})
                for name in held:
                    rows[name] = rows.get(name, 0) | 1 << at
    parts = [f'"source": {json.dumps(_SOURCE)}', f'"releases": {json.dumps(list(releases))}']
    for kind in KINDS:
        told = {owner: _row(held, kind, len(releases)) for owner, held in sorted(found[kind].items())}
        listed = ",\n".join(f"{json.dumps(owner)}: {json.dumps(row)}" for owner, row in told.items() if row)
        parts.append(f'"{kind}": {{\n{listed}\n}}')
    return "{" + ",\n".join(parts) + "}\n"


def _row(held: dict[str, int], kind: str, count: int) -> str:
    """`name:first-last` for each that its owner had only for a time."""
    owner = functools.reduce(operator.or_, held.values())
    kept = held if kind in {"modules", "names"} else {name: at for name, at in held.items() if at != owner}
    always = (1 << count) - 1
    return " ".join(f"{name}:{_runs(at, count)}" for name, at in sorted(kept.items()) if at != always)


def _runs(held: int, count: int) -> str:
    """`3-9,12-`: unbroken runs of releases by their places; the last one open where it has not ended."""
    runs: list[str] = []
    start: int | None = None
    for at in range(count + 1):
        if held >> at & 1:
            start = at if start is None else start
        elif start is not None:
            runs.append(f"{start}-" if at == count else f"{start}-{at - 1}")
            start = None
    return ",".join(runs)

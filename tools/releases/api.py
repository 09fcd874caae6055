"""What programs around vLLM take from it by name, and which releases have it (knowledge/api/vllm.json).

A trainer, a plugin or a script imports names of vLLM's modules, calls methods with arguments and reads attributes. Of
another release than it was written for, it fails with Python's own words, which name the object and what it lacks. The
table has each public name with the releases that have it; what lives exactly as long as its owner is left out.
A subclass has what its bases have, and of classes or functions of one name each adds to it: Python's words name no
module.
"""

from __future__ import annotations

import ast
import functools
import json
import operator
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from releases.wheel import Wheel

FILE = Path(__file__).resolve().parents[2] / "vllm_doctor" / "knowledge" / "api" / "vllm.json"
_SOURCE = "vLLM's wheels, read by tools/release.py api"
# Models, kernels and copies of other projects: nobody's program takes them by name.
_INSIDE = re.compile(
    r"vllm/(?:models/|model_executor/(?:models|kernels)/|third_party/|vllm_flash_attn/|v1/attention/ops/|benchmarks/|lora/ops/"
    r"|transformers_utils/(?:configs|processors)/|kernels/|entrypoints/cli/benchmark)"
)
# Kinds of owners: a module has names, a class has members (`step()` is a method), a function or method (`LLM.generate`)
# has arguments, some of them required; a class has abstract methods, which each plugin's subclass must have; `v0` are
# members that of two classes of one name only the one outside vllm/v1 has.
KINDS = ("modules", "names", "members", "arguments", "required", "abstract", "v0")
# What is told even where it lives as long as its owner: a name that moved is looked for in its new module.
_ALONE = frozenset({"modules", "names", "v0"})
# Where else the life of a kind's owner is told: a function without a required argument is one too.
_LIVES = {"required": "arguments", "abstract": "members"}
# What the V1 engine gives where the V0 engine gave a class of another name (engine/async_llm_engine.py).
_RENAMED = {"AsyncLLM": "AsyncLLMEngine"}
# What they have the class has that they extend, which programs are written for.
_OF_DEVICE = re.compile("(?:CPU|XPU|TPU|HPU|Neuron|Rocm|OpenVINO|Habana)[A-Z]")
# Names of nearly every module, which nobody imports.
_EVERYWHERE = frozenset({"logger", "__all__", "T", "P", "R", "_T", "_P", "_R"})
# By kind and owner, the names.
Names = dict[str, dict[str, set[str]]]


def names(wheel: Wheel) -> Names:
    """What one release has."""
    return _Release(wheel).has


@dataclass(frozen=True)
class _Class:
    """What a class has by itself, and the names of its bases."""

    v1: bool
    members: frozenset[str]
    bases: tuple[str, ...]
    fields: frozenset[str] | None  # of a record, what it is made with


class _Release:
    """What one release has, by kind and owner."""

    def __init__(self, wheel: Wheel) -> None:
        self.has: Names = {kind: {} for kind in KINDS}
        self._classes: dict[str, list[_Class]] = {}
        for path in wheel.files:
            if _INSIDE.match(path) is None:
                self._module(path, wheel.tree(path))
        for name, made in self._classes.items():
            of_v1 = {member for one in made if one.v1 for member in self._members(one)}
            others = {member for one in made if not one.v1 for member in self._members(one)}
            for member in of_v1 | others:
                self._put("members", name, member)
            for member in {member for one in made for member in self._fields(one)}:
                self._put("arguments", f"{name}.__init__", member)
            if any(one.v1 for one in made):
                for member in others - of_v1:
                    self._put("v0", name, member)

        for new, old in _RENAMED.items():
            if new in self.has["members"]:
                for member in self.has["members"].get(old, set()) - self.has["members"][new]:
                    self._put("v0", new, member)

    def _members(self, one: _Class, seen: frozenset[str] = frozenset()) -> Iterator[str]:
        """A class's own and its bases'; of bases of one name those of the same engine."""
        yield from one.members
        for base in one.bases:
            made = self._classes.get(base, []) if base not in seen else []
            for other in [m for m in made if m.v1 == one.v1] or made:
                yield from self._members(other, seen | {base})

    def _fields(self, one: _Class, seen: frozenset[str] = frozenset()) -> Iterator[str]:
        """A record's own fields and those of the records that it extends."""
        if one.fields is not None:
            yield from one.fields
            for base in one.bases:
                for other in self._classes.get(base, []) if base not in seen else ():
                    yield from self._fields(other, seen | {base})

    def _put(self, kind: str, owner: str, name: str) -> None:
        if name == "__init__" or not name.startswith("_"):
            self.has[kind].setdefault(owner, set()).add(name)

    def _module(self, path: str, tree: ast.Module) -> None:
        package = path.endswith("/__init__.py")
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self.has["modules"].setdefault("vllm", set()).add(module)
        for name, node in _defined(tree.body, imported=package):
            if name not in _EVERYWHERE:
                self._put("names", module, name)
            if isinstance(node, ast.ClassDef):
                self._class(node, v1=path.startswith("vllm/v1/"))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._arguments(name, node)
        if package:
            for name in _lazy(tree):
                self._put("names", module, name)

    def _class(self, node: ast.ClassDef, *, v1: bool) -> None:
        members: set[str] = set()
        bases = tuple(filter(None, (_last_name(base) for base in node.bases)))
        record = "Struct" in bases or any(re.search("dataclass|'config'", ast.dump(one)) for one in node.decorator_list)
        fields: set[str] = set()
        for part in node.body:
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                members.update((part.name, *_own_attributes(part)))
                self._arguments(f"{node.name}.{part.name}", part)
                if any(_last_name(one) == "abstractmethod" for one in part.decorator_list):
                    self._put("abstract", node.name, part.name)
            elif record and isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                fields.add(part.target.id)
                if part.value is None:
                    self._put("required", f"{node.name}.__init__", part.target.id)
            members.update(name for name, _ in _defined([part], imported=False))
        made = _Class(v1, frozenset(members), bases, frozenset(fields) if record else None)
        self._classes.setdefault(node.name, []).append(made)

    def _arguments(self, function: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if function.rpartition(".")[2].startswith("_") and not function.endswith(".__init__"):
            return
        listed = node.args
        by_place = (*listed.posonlyargs, *listed.args)
        for one in (*by_place, *listed.kwonlyargs):
            self._put("arguments", function, one.arg)
        needed = [one.arg for one in by_place[: len(by_place) - len(listed.defaults)]]
        needed += [one.arg for one, value in zip(listed.kwonlyargs, listed.kw_defaults, strict=True) if value is None]
        for name in needed:
            self._put("required", function, name)


def _last_name(node: ast.expr) -> str:
    """`ABC` of `abc.ABC`, `Base` of `Base[T]`; empty for anything else."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return _last_name(value)
    return ""


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
    places = Counter(name for rows in found["names"].values() for name in rows)
    for owner, rows in found["names"].items():  # of one module alone, and as long as that: nobody can miss it there
        whole = _alive(rows)
        found["names"][owner] = {name: at for name, at in rows.items() if at != whole or places[name] > 1}
    functions = found["arguments"].keys()
    found["members"] = {
        owner: {f"{name}()" if _is_method(owner, name, functions) else name: at for name, at in rows.items()}
        for owner, rows in found["members"].items()
    }
    for kind in KINDS:
        lives = found[_LIVES.get(kind, kind)]
        told = {
            owner: _row(rows, _alive(lives.get(owner, rows)) if kind not in _ALONE else 0, len(releases))
            for owner, rows in sorted(found[kind].items())
            if _OF_DEVICE.match(owner) is None
        }
        listed = ",\n".join(f"{json.dumps(owner)}: {json.dumps(row)}" for owner, row in told.items() if row)
        parts.append(f'"{kind}": {{\n{listed}\n}}')
    return "{" + ",\n".join(parts) + "}\n"


def _is_method(owner: str, name: str, functions: Collection[str]) -> bool:
    """Of the class itself, or of a base after which it is called (`LRUCacheManager` of `Manager`)."""
    return any(f"{owner[at:]}.{name}" in functions for at, letter in enumerate(owner) if letter.isupper())


def _alive(held: Mapping[str, int]) -> int:
    """The releases of an owner: those that have any of its names."""
    return functools.reduce(operator.or_, held.values())


def _row(held: Mapping[str, int], owner: int, count: int) -> str:
    """`first-last name name;first- name`: what its owner had only for a time."""
    always = (1 << count) - 1
    told: dict[int, list[str]] = {}
    for name, at in sorted(held.items()):
        if at not in {always, owner}:
            told.setdefault(at, []).append(name)
    return ";".join(f"{_runs(at, count)} {' '.join(names)}" for at, names in sorted(told.items()))


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

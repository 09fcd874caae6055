"""What each architecture's class says it can do: `supports_lora`, `supports_pp`, `is_pooling_model` …

A release's interfaces (model_executor/models/interfaces*.py, from 0.5.4) give such a flag to every class that stands on
one, and a class may set it itself; what has no flag is refused where it is asked for. Classes are followed from the
registry to their bases, from module to module. Where a base cannot be followed nothing is said of the architecture.
Where a module picks one of several classes by platform, a flag that one of them has counts: only what none has is
missing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from releases.assigned import assigned
from releases.models import served
from releases.wheel import Wheel
from vllm_doctor.knowledge.traits import EVERY

_MODELS = "vllm.model_executor.models"
_PATH = _MODELS.replace(".", "/")
_INTERFACES = ("interfaces", "interfaces_base")
# What a start is refused for (plan/launch/traits.py), and whether a rank may hold the vision tower whole
# (plan/launch/towers.py). An interface's other flags choose kernels, caches or an engine, or open endpoints.
_FLAGS = frozenset(
    {"supports_eagle3", "supports_encoder_tp_data", "supports_lora", "supports_multimodal", "supports_pp"}
)
# Not flags, but asked for in the same way: does the class have it at all?
_PRESENT = frozenset({"compute_logits", "packed_modules_mapping", "bitsandbytes_stacked_params_mapping"})
# Of these, what a release of 0.5 and 0.6 alone asks for.
_STACKED = "bitsandbytes_stacked_params_mapping"
_LOADER = "vllm/model_executor/model_loader/loader.py"
_STAGES = "supports_pp"
# What is read from the whole of a module: the loader of bitsandbytes asks the model and each module in it for a map of
# its experts (model_loader/bitsandbytes_loader.py), and stores those of fused layers alone.
_MAPS, _FUSED = "get_expert_mapping", "fused_experts"
# An interface without a flag: who stands on it hands its experts to what balances them (--enable-eplb, from 0.9.2).
_BALANCED, _HANDS_OVER = "balanced_experts", "MixtureOfExperts"
# Experts of plain layers whose weights the model itself puts into one tensor, by a name that quantized layers lack.
_JOINED, _JOINS = "joined_experts", "def pack_params"
_FUSED_LAYERS = frozenset({"FusedMoE", "SharedFusedMoE"})
_LAYER_LISTS = frozenset({"self.layers", "self.h"})
# What said so before there were interfaces (0.3.2 to 0.5.3, model_executor/model_loader): a list of a class's modules.
_BEFORE = {"supported_lora_modules": "supports_lora"}
_FIRST = {"supports_lora": "supports_lora"}  # 0.3.0
_DEPTH = 12


# A name of a module: a class, another module's name, what a call makes, or nothing of vLLM's.
_MADE = "made"
_Row = ast.ClassDef | tuple[str, str] | str | None


class LostError(Exception):
    """A base, or the class itself, is not where its module says."""


class Traits:
    """The classes of one wheel and what they say of themselves."""

    def __init__(self, wheel: Wheel) -> None:
        self.wheel = wheel
        self.flags = frozenset(self._of_interfaces()) & _FLAGS
        self.balances = any(f"class {_HANDS_OVER}(" in wheel.files.get(f"{_PATH}/{n}.py", "") for n in _INTERFACES)
        self.before: dict[str, str] = {}
        for said in () if self.flags else (_BEFORE, _FIRST):
            if not self.before and any(word in text for word in said for text in wheel.files.values()):
                self.before, self.flags = said, frozenset(said.values())
        self.found = cache(self._found)
        self.all = cache(self._all)
        self.table = cache(self._table)
        self.written = cache(self._written)

    def _of_interfaces(self) -> Iterator[str]:
        """The flags that the release's interfaces give to who stands on them, on or off."""
        for name in _INTERFACES:
            path = self._path(f"{_MODELS}.{name}")
            if path is not None:
                for node in self.wheel.tree(path).body:
                    if isinstance(node, ast.ClassDef):
                        yield from (key for key, value in assigned(node.body) if _says(value) is not None)

    def _path(self, module: str) -> str | None:
        plain = module.replace(".", "/")
        return next((p for p in (f"{plain}.py", f"{plain}/__init__.py") if p in self.wheel.files), None)

    def of(self, module: str, name: str) -> frozenset[str]:
        """The traits of a class. Raises LostError."""
        made: set[str] = set()
        for where, node in self.found(module, name, _DEPTH):
            made |= {key for key, held in self.all(where, node, _DEPTH).items() if held}
        return frozenset(made) | self.written(module)

    def _written(self, module: str) -> frozenset[str]:
        """What a module has of experts, by itself; a map of them also where it takes classes from another module."""
        path = self._path(module)
        if path is None:
            return frozenset()
        nodes = list(ast.walk(self.wheel.tree(path)))
        homes = {_home(n, module.rpartition(".")[0]) for n in nodes if isinstance(n, ast.ImportFrom)}
        near = [self._path(home) for home in homes if home and home.startswith(f"{_MODELS}.")]
        texts = [self.wheel.files[p] for p in (path, *near) if p is not None]
        calls = {ast.unparse(n.func) for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        maps = {_MAPS} if any(f"def {_MAPS}" in text for text in texts) else set()
        joined = {_JOINED} if _JOINS in self.wheel.files[path] else set()
        return frozenset(maps | joined | ({_FUSED} if calls & _FUSED_LAYERS else set()))

    def runs_all_layers(self, module: str) -> bool:
        """Does its model run through every layer, those of other stages too, which give back one thing where the loop
        takes two (models/utils.py PPMissingLayer)?"""
        path = self._path(module)
        return path is not None and any(_runs_all(c) for c in self.wheel.tree(path).body if isinstance(c, ast.ClassDef))

    def _all(self, module: str, node: ast.ClassDef, depth: int) -> dict[str, bool]:
        """Each trait that a class or the nearest of its bases sets."""
        if not depth:
            raise LostError(node.name)
        made: dict[str, bool] = {}
        for base in reversed(node.bases):
            for where, found in self._base(module, base):
                made |= self.all(where, found, depth - 1)
        return made | self._own(node)

    def _base(self, module: str, base: ast.expr) -> list[tuple[str, ast.ClassDef]]:
        match base:
            case ast.Name(id=name):
                return self.found(module, name, _DEPTH)
            case ast.Subscript(value=ast.Name(id=name)):
                return self.found(module, name, _DEPTH)
            case ast.Attribute():
                return []  # nn.Module and other libraries'
            case _:
                raise LostError(ast.unparse(base))

    def _own(self, node: ast.ClassDef) -> dict[str, bool]:
        made: dict[str, bool] = {_BALANCED: True} if node.name == _HANDS_OVER else {}
        for line in node.body:
            if isinstance(line, ast.FunctionDef) and line.name in _PRESENT | self.flags:
                made[line.name] = True
            elif isinstance(line, ast.FunctionDef) and line.name == "__init__":
                # An instance may set for itself what its class has not.
                made |= {n.attr: True for n in ast.walk(line) if isinstance(n, ast.Attribute) and _stores(n)}
        for key, value in assigned(node.body):
            if key in self.before:
                made[self.before[key]] = True
            elif key in _PRESENT and value is not None:
                made[key] = True
            elif key in self.flags and value is not None:
                made[key] = _says(value) is not False
        return made

    def _found(self, module: str, name: str, depth: int) -> list[tuple[str, ast.ClassDef]]:
        """The classes that a name of a module may be; none for what is of another library. Raises LostError."""
        path = self._path(module)
        if path is None or not depth:
            raise LostError(f"{module}.{name}")
        rows = self.table(path, module).get(name)
        if rows is None:
            if name in _BUILTIN:
                return []
            raise LostError(f"{module}.{name}")
        made: list[tuple[str, ast.ClassDef]] = []
        for row in rows:
            match row:
                case ast.ClassDef():
                    made.append((module, row))
                case (str() as home, str() as other):
                    made += self.found(home, other, depth - 1)
                case str():
                    raise LostError(f"{module}.{name}")
                case _:
                    pass
        return made

    def _table(self, path: str, module: str) -> dict[str, list[_Row]]:
        """What the names of a module may be."""
        package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
        made: dict[str, list[_Row]] = {}
        for node in _top(self.wheel.tree(path).body):
            match node:
                case ast.ClassDef(name=said):
                    made.setdefault(said, []).append(node)
                case ast.ImportFrom(names=names):
                    home = _home(node, package)
                    for one in names:
                        made.setdefault(one.asname or one.name, []).append((home, one.name) if home else None)
                case ast.Import(names=names):
                    for one in names:
                        made.setdefault(one.asname or one.name, []).append(None)
                case ast.Assign(targets=[ast.Name(id=said)], value=ast.Name(id=other)):
                    made.setdefault(said, []).append((module, other))
                case ast.Assign(targets=[ast.Name(id=said)]):
                    made.setdefault(said, []).append(_MADE)
                case _:
                    pass
        return made


_BUILTIN = frozenset({"object", "dict", "list", "str", "int", "Exception"})


def _top(lines: list[ast.stmt]) -> Iterator[ast.stmt]:
    """What stands at the top of a module, within its `if` and `try`, too."""
    for line in lines:
        yield line
        if isinstance(line, ast.If):
            yield from _top([*line.body, *line.orelse])
        elif isinstance(line, ast.Try):
            yield from _top([*line.body, *(x for handler in line.handlers for x in handler.body)])


def _home(node: ast.ImportFrom, package: str) -> str | None:
    """The module of vLLM that a line imports from; None for another library's."""
    if not node.level:
        return node.module if (node.module or "").partition(".")[0] == "vllm" else None
    base = package.split(".")
    base = base[: len(base) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def _stores(node: ast.Attribute) -> bool:
    return node.attr in _PRESENT | _FLAGS and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"


def _runs_all(node: ast.ClassDef) -> bool:
    forward = next((f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "forward"), None)
    if forward is None or "make_layers(" not in ast.unparse(node):
        return False
    for loop in (n for n in ast.walk(forward) if isinstance(n, ast.For)):
        over = loop.iter.args[0] if isinstance(loop.iter, ast.Call) and loop.iter.args else loop.iter
        plain = not isinstance(loop.iter, ast.Call) or ast.unparse(loop.iter.func) == "enumerate"
        pair = any(isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Tuple) for n in loop.body)
        if plain and pair and ast.unparse(over) in _LAYER_LISTS:
            return True
    return False


def _says(value: ast.expr | None) -> bool | None:
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, bool) else None


def _with_stages(wheel: Wheel) -> frozenset[str] | None:
    """The architectures that run in stages where the configuration itself lists them (0.5.1 to 0.6.2, vllm/config.py);
    None where the classes say so."""
    if "vllm/config.py" not in wheel.files:
        return None
    for name, value in assigned(wheel.tree("vllm/config.py").body):
        if name == "_PP_SUPPORTED_MODELS" and isinstance(value, ast.List):
            return frozenset(str(one.value) for one in value.elts if isinstance(one, ast.Constant))
    return None


def read(wheel: Wheel) -> dict[str, str]:
    """Architecture → what its class has, in words with a space between; without those that could not be followed."""
    traits = Traits(wheel)
    if not traits.flags:
        return {}
    listed = _with_stages(wheel)
    stacks = _STACKED in wheel.files.get(_LOADER, "")
    asked = (_PRESENT if stacks else _PRESENT - {_STACKED}) | {_MAPS, _FUSED}
    asked |= {_BALANCED} if traits.balances else set()
    known = traits.flags | asked | (frozenset({_STAGES}) if listed is not None else frozenset())
    made = {EVERY: " ".join(sorted(known))}
    for name, (module, cls) in served(wheel).items():
        home = module if module.startswith("vllm.") else f"{_MODELS}.{module}"
        try:
            has = traits.of(home, cls) & (traits.flags | asked | {_JOINED})
            has = has if listed is None else has - {_STAGES} | ({_STAGES} if name in listed else set())
            made[name] = " ".join(sorted(has - ({_STAGES} if traits.runs_all_layers(home) else set())))
        except LostError:
            continue
    return made

"""The architectures that a release serves, and its quantizations with what each asks of the card."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from releases.assigned import assigned
from releases.layered import Layered
from releases.wheel import Wheel

_REGISTRY = "vllm/model_executor/models/registry.py"
_OLD_REGISTRY = "vllm/model_executor/models/__init__.py"
_FIRST_REGISTRY = "vllm/model_executor/model_loader.py"  # 0.2.0 to 0.2.4, from architecture to class
# All of them, those that went, and those of other projects.
_NOT_SERVED = frozenset({"_VLLM_MODELS", "_PREVIOUSLY_SUPPORTED_MODELS", "_OOT_SUPPORTED_MODELS"})
_METHODS = "vllm/model_executor/layers/quantization/__init__.py"
_MODELOPT = "vllm/model_executor/layers/quantization/modelopt.py"
_OLD_METHODS = "vllm/model_executor/quantization_utils/__init__.py"  # 0.2.0 to 0.2.2


def architectures(wheel: Wheel) -> dict[str, str]:
    """Architecture → the group that the registry has it in (text-generation, multimodal …)."""
    made = {name: group for name, (group, _) in _registered(wheel).items()}
    if not made and _FIRST_REGISTRY in wheel.files:
        for name, value in _tables(wheel.tree(_FIRST_REGISTRY)):
            if name == "_MODEL_REGISTRY":
                keys = (str(key.value) for key in value.keys if isinstance(key, ast.Constant))
                made = dict.fromkeys(keys, "text-generation")
    return {name: made[name] for name in sorted(made)}


def served(wheel: Wheel) -> dict[str, tuple[str, str]]:
    """Architecture → its module and its class, as the registry has them; without those that it has in another way."""
    places = {name: place for name, (_, place) in _registered(wheel).items() if place is not None}
    return {name: places[name] for name in sorted(places)}


def _registered(wheel: Wheel) -> dict[str, tuple[str, tuple[str, str] | None]]:
    """Architecture → the group of the table that the registry has it in first, and its module and class."""
    path = _REGISTRY if _REGISTRY in wheel.files else _OLD_REGISTRY
    made: dict[str, tuple[str, tuple[str, str] | None]] = {}
    for name, value in _tables(wheel.tree(path)):
        group = re.fullmatch(r"_([A-Z_]*?)_?(?:SUPPORTED_)?MODELS", name)
        if group is None or name in _NOT_SERVED:
            continue
        word = (group[1] or "text-generation").lower().replace("_", "-")
        for key, where in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                made.setdefault(key.value, (word, _place(where)))
    return made


def _place(where: ast.expr) -> tuple[str, str] | None:
    match where:
        case ast.Tuple(elts=[ast.Constant(value=str() as module), ast.Constant(value=str() as cls), *_]):
            return module, cls
        case _:
            return None


def _tables(module: ast.Module) -> Iterator[tuple[str, ast.Dict]]:
    return ((name, value) for name, value in assigned(module.body) if isinstance(value, ast.Dict))


def quantizations(wheel: Wheel) -> dict[str, dict[str, object]]:
    """Method → least compute capability and activation types, the other builds that it is listed for, and whether it
    has nothing for experts; what is computed at run time is left out. Of ModelOpt's the algorithms that it lists."""
    path = _METHODS if _METHODS in wheel.files else _OLD_METHODS
    if path not in wheel.files:
        return {}
    module = wheel.tree(path)
    listed = _method_names(module)
    classes = _config_classes(wheel)
    made: dict[str, dict[str, object]] = {name: {} for name in listed}
    layered = Layered(wheel)
    for method, cls in _method_classes(module):
        made.setdefault(method, {}).update(_asked(classes, cls))
        if layered.no_experts(cls):
            made[method]["no_experts"] = True
        elif layered.no_adapted_experts(cls):
            made[method]["no_adapted_experts"] = True
        if layered.no_balanced_experts(cls):
            made[method]["no_balanced_experts"] = True
    for device, names in _devices(wheel).items():
        for name in names & made.keys():
            made[name].setdefault("devices", []).append(device)  # type: ignore[attr-defined]
    algorithms = _algorithms(wheel)
    if algorithms and "modelopt" in made:
        made["modelopt"]["algorithms"] = algorithms
    return {name: made[name] for name in sorted(made)}


def _devices(wheel: Wheel) -> dict[str, set[str]]:
    """Another build than CUDA's → the methods that the release lists for it, those of some of its cards among them: in
    the class of its platform, before 0.6.5 as names of the configuration."""
    made: dict[str, set[str]] = {}
    for path in wheel.paths(r"vllm/(platforms/\w+|config)\.py"):
        stem = path.removesuffix(".py").rpartition("/")[2]
        for node in ast.walk(wheel.tree(path)):
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=ast.List(elts=parts))
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.List(elts=parts))
                    | ast.AugAssign(target=ast.Name(id=name), value=ast.List(elts=parts))
                ) if name.endswith("supported_quantization"):
                    device = name.removesuffix("supported_quantization").rstrip("_") or stem
                    listed = {str(part.value) for part in parts if isinstance(part, ast.Constant)}
                    made.setdefault(device, set()).update(listed)
                case _:
                    pass
    return {device: names for device, names in sorted(made.items()) if names and device in {"rocm", "xpu"}}


def _algorithms(wheel: Wheel) -> list[str]:
    """The algorithms of ModelOpt that a release lists: names, and the keys of a table or the names of a list in it."""
    if _MODELOPT not in wheel.files:
        return []
    given = dict(assigned(wheel.tree(_MODELOPT).body))

    def names(value: ast.expr | None) -> Iterator[str]:
        match value:
            case ast.Constant(value=str() as name):
                yield name
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                for part in parts:
                    yield from names(part)
            case ast.Dict(keys=keys):
                for key in keys:
                    yield from names(key)
            case ast.Starred(value=ast.Name(id=name)):
                yield from names(given.get(name))
            case _:
                pass

    return sorted(set(names(given.get("QUANT_ALGOS"))))


def _method_names(module: ast.Module) -> list[str]:
    for name, value in assigned(module.body):
        if name in {"QuantizationMethods", "QUANTIZATION_METHODS"} and value is not None:
            return [str(c.value) for c in ast.walk(value) if isinstance(c, ast.Constant)]
    return []


def _method_classes(module: ast.Module) -> Iterator[tuple[str, str]]:
    """("awq", "AWQConfig") of every table from method to class, wherever it stands in the module."""
    for node in ast.walk(module):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str) and isinstance(value, ast.Name):
                    yield key.value, value.id


def _config_classes(wheel: Wheel) -> dict[str, ast.ClassDef]:
    found: dict[str, ast.ClassDef] = {}
    for path in wheel.paths(
        r"vllm/(model_executor/(layers/quantization|quantization_utils)/.*|models/\w+/.*quant.*)\.py"
    ):
        if "get_min_capability" in wheel.files[path]:
            found |= {n.name: n for n in ast.walk(wheel.tree(path)) if isinstance(n, ast.ClassDef)}
    return found


def _asked(classes: dict[str, ast.ClassDef], name: str, depth: int = 4) -> dict[str, object]:
    cls = classes.get(name)
    if cls is None or depth == 0:
        return {}
    made: dict[str, object] = {}
    for base in cls.bases:
        made |= _asked(classes, ast.unparse(base), depth - 1)
    for line in cls.body:
        if not isinstance(line, ast.FunctionDef):
            continue
        given = line.body[-1].value if isinstance(line.body[-1], ast.Return) else None
        plain = sum(isinstance(part, ast.Return) for part in ast.walk(line)) == 1
        if line.name == "get_min_capability":
            made.pop("capability", None)
            if plain and isinstance(given, ast.Constant) and isinstance(given.value, int) and given.value > 0:
                made["capability"] = f"{given.value // 10}.{given.value % 10}"
        elif line.name == "get_supported_act_dtypes":
            made.pop("dtypes", None)
            if plain and isinstance(given, ast.List):
                made["dtypes"] = [_dtype(ast.unparse(each)) for each in given.elts]
    return made


def _dtype(source: str) -> str:
    bare = source.removeprefix("torch.")
    return {"half": "float16", "float": "float32"}.get(bare, bare)

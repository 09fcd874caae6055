"""The kernels that a release lets one choose, the compute capability that each attention backend asks for, what else it
takes, what its class asks where it is made, and the order in which they are tried."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from releases import backends, constructors
from releases.assigned import assigned
from releases.expert_kernels import ExpertKernels
from releases.wheel import Wheel

# Where each stands, in any release: a class's fields, an enumeration's members, a type's literals.
_CLASSES = {
    "PassConfig": "pass_config",
    "_Backend": "attention",
    "AttentionBackendEnum": "attention",
    "CompilationConfig": "compilation",
}
TABLES = ("attention", "attention_order", "compilation", "linear", "moe", "moe_by_format", "pass_config")
# Of other makers' devices, which a launch on CUDA is never given.
_ELSEWHERE = ("ROCM", "XPU", "CPU", "AMX")
_TYPES = {"MoEBackend": "moe", "LinearBackend": "linear"}
_ORACLES = "vllm/model_executor/layers/fused_moe/oracle"
# Formats of experts by their file there, each with what its function calls it.
_FORMATS = {
    "fp8": "fp8",
    "int8": "int8",
    "int_wna16": "wna16",
    "mxfp4": "mxfp4",
    "nvfp4": "nvfp4",
    "unquantized": "unquantized",
}
_FILES = r"vllm/(config/\w+|config|platforms/\w+|(v1/)?attention/(selector|layer|registry|backends/registry))\.py"


def read(wheel: Wheel) -> dict[str, dict[str, dict[str, object]]]:
    """Table → name → what is known of it (`capability`, `takes` and `made` of attention backends)."""
    made: dict[str, dict[str, dict[str, object]]] = {table: {} for table in TABLES}
    classes: dict[str, str] = {}
    for path in wheel.paths(_FILES):
        if any(re.search(rf"\b{name}\b", wheel.files[path]) for name in {**_CLASSES, **_TYPES}):
            for table, name, value in _found(wheel.tree(path)):
                made[table].setdefault(name, {})
                if table == "attention" and isinstance(value, str):
                    classes[name] = value
    known = backends.read(wheel)
    for name, where in classes.items():
        asked = _capability(wheel, where)
        if asked is not None:
            made["attention"][name]["capability"] = asked
        takes = {} if name.startswith(_ELSEWHERE) else known.takes(where.rpartition(".")[2])
        if takes:
            made["attention"][name]["takes"] = takes
    for name, tests in constructors.read(wheel).items():
        for called in (name, f"{name}{constructors.MARK}"):
            if called in made["attention"]:
                made["attention"][called]["made"] = tests
    made["attention_order"] = backends.order(wheel)
    made["moe_by_format"] = dict(_by_format(wheel))
    return {table: {name: made[table][name] for name in sorted(made[table])} for table in made}


def _found(module: ast.Module) -> Iterator[tuple[str, str, object]]:
    """(table, name, value) of everything in one file."""
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef) and (table := _CLASSES.get(node.name)):
            for name, value in assigned(node.body):
                if not name.startswith("_"):
                    yield table, name, value.value if isinstance(value, ast.Constant) else None
        for name, value in assigned([node]):
            for literal in ast.walk(value) if name in _TYPES and value is not None else ():
                if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
                    yield _TYPES[name], literal.value, None


def _by_format(wheel: Wheel) -> Iterator[tuple[str, dict[str, object]]]:
    """Format of experts → the names of --moe-backend that its `map_fp8_backend` and the like take; of any other they
    raise. A name that the choice leaves to itself (`runner_backend not in ["auto", "humming"]`) is among them. And what
    the kernels of a name ask of the card and of the experts, where they ask something."""
    kernels = ExpertKernels(wheel)
    for path in wheel.paths(rf"{_ORACLES}/({'|'.join(_FORMATS)})\.py"):
        form = path.rpartition("/")[2].removesuffix(".py")
        module, source = wheel.tree(path), wheel.files[path]
        mapped = _mapped(module, f"map_{_FORMATS[form]}_backend")
        asked = kernels.on(module, source, mapped)
        if mapped:
            yield form, {"names": sorted({*mapped, *_left(module)})} | ({"on": asked} if asked else {})
        elif asked:
            yield form, {"on": asked}


def _mapped(module: ast.Module, function: str) -> dict[str, str]:
    """Name of --moe-backend → the member of the enumeration it stands for, of a function that raises for others."""
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            tables = [value for _, value in assigned(node.body) if isinstance(value, ast.Dict)]
            if len(tables) == 1 and isinstance(node.body[-1], ast.Raise):
                pairs = zip(tables[0].keys, tables[0].values, strict=True)
                named = ((k.value, v) for k, v in pairs if isinstance(k, ast.Constant))
                made = {str(k): ast.unparse(v).rpartition(".")[2] for k, v in named}
                return made if len(made) == len(tables[0].keys) else {}
    return {}


def _left(module: ast.Module) -> Iterator[str]:
    """The names that a choice does not look up."""
    for node in ast.walk(module):
        match node:
            case ast.Compare(left=ast.Name(id="runner_backend"), ops=[ast.NotIn()], comparators=[others]):
                yield from (
                    n.value for n in ast.walk(others) if isinstance(n, ast.Constant) and isinstance(n.value, str)
                )


def _capability(wheel: Wheel, where: str) -> str | None:
    """What a backend's class asks of the card (`>=8.0`, `9,10` for whole generations); None where it is not said so
    plainly that it can be read. `where` is the class with its module."""
    module, _, name = where.rpartition(".")
    path = f"{module.replace('.', '/')}.py"
    if path not in wheel.files:
        return None
    for node in ast.walk(wheel.tree(path)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            for line in node.body:
                if isinstance(line, ast.FunctionDef) and line.name == "supports_compute_capability":
                    last = line.body[-1]
                    return _asked(last.value) if isinstance(last, ast.Return) and len(line.body) <= 2 else None
    return None


def _asked(node: ast.expr | None) -> str | None:
    text = ast.unparse(node) if node is not None else ""
    if floor := re.fullmatch(r"capability >= DeviceCapability\((?:major=)?(\d+), (?:minor=)?(\d+)\)", text):
        return f">={floor[1]}.{floor[2]}"
    if one := re.fullmatch(r"capability\.major == (\d+)", text):
        return one[1]
    if some := re.fullmatch(r"capability\.major in [\[({]([\d, ]+)[\])}]", text):
        return some[1].replace(" ", "").strip(",")
    if least := re.fullmatch(r"capability\.major >= (\d+)", text):
        return f">={least[1]}.0"
    return None

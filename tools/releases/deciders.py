"""What a test asks about: options, keys of the model's config.json, fields of a request, variables.

An expression of vLLM's code is followed to where its names were set, in its function and in its class: of
`heads = config.num_heads // tp_size` both are what decides it. Each is written as what it is and its name:
`option tensor-parallel-size`, `option kv-transfer-config kv_role`, `extra kv-transfer-config num_workers`,
`model num_heads`, `request logprobs`, `variable VLLM_USE_V2_MODEL_RUNNER`. What a function is given is followed to
the places that call it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from releases.calls import Calls, Function, Place, parameters

_DEPTH = 4
# Of a name that is set on several ways as many are followed.
_VALUES = 3
# Names under which the code hands on what an option says.
_SPLIT = {
    "tp_size": "tensor-parallel-size",
    "tensor_parallel_size": "tensor-parallel-size",
    "get_tensor_model_parallel_world_size": "tensor-parallel-size",
    "pp_size": "pipeline-parallel-size",
    "dcp_size": "decode-context-parallel-size",
    "dcp_world_size": "decode-context-parallel-size",
    "pcp_size": "prefill-context-parallel-size",
    "pcp_world_size": "prefill-context-parallel-size",
    "dp_size": "data-parallel-size",
    "selected_backend": "attention-backend",
}
# The model's own configuration, under the names that the models' code gives it.
_OF_MODEL = re.compile(
    r"(?:self\.)?(?:\w*hf_(?:\w+_)?config|\w*(?:text|vision|audio)_config|config|model_config\.hf_\w*config)"
)
_INSIDE_MODEL = re.compile(r"(?:self\.)?(?:hf_)?config\.(?P<part>[a-z]\w*)")
_EXTRA = {
    "kv_connector_extra_config": "kv-transfer-config",
    "ec_connector_extra_config": "ec-transfer-config",
    "model_loader_extra_config": "model-loader-extra-config",
    "additional_config": "additional-config",
}
# Where a shorter name is enough to tell whose extra settings they are.
_EXTRA_OF = (
    ("ec_transfer", "ec-transfer-config"),
    ("connector", "kv-transfer-config"),
    ("model_loader", "model-loader-extra-config"),
)
_REQUESTS = re.compile(r"(?:self\.)?(?:request|req|sampling_params|pooling_params|params|so_params|data|body|values)")
_MODELS = re.compile(r"vllm/(?:model_executor/)?models/|vllm/transformers_utils/(?:configs/|config\.py)")
# Under this name it is the model's own wherever it is read.
_OF_HUB = re.compile(r"(?:\w+\.)*hf_(?:\w+_)?config")
_REQUESTED = re.compile(
    r"vllm/(?:entrypoints|renderers|sampling_params|pooling_params|parser)|vllm/v1/structured_output/"
)
_OWN_FIELDS = re.compile(r"vllm/(?:sampling_params|pooling_params|entrypoints/.*protocol)\.py")
_CONFIGS = "vllm/transformers_utils/configs/"
_PART = re.compile(r"(?:.*\.)?(\w+)_(?:config|cfg)")
_SHORT = {"attn": "attention", "mm": "multimodal", "spec": "speculative", "sched": "scheduler"}
# Quantization's own configuration, which a checkpoint has in its config.json.
_QUANTIZATION = "vllm/model_executor/layers/quantization/"
_OF_QUANTIZATION = re.compile(r"(?:self\.)?quant_config")
_QUANTIZED = "quantization_config"
# What a launch gives is kept in a class of its own before any configuration is made of it.
_ARGUMENTS = "vllm/engine/arg_utils.py"
_SWITCHES = ("enable_", "disable_")
_VARIABLE = re.compile(r"VLLM_[A-Z0-9_]+")
# From one function to another so often, and not where as many places call it; what half of those that tell say counts.
_HOPS, _CALLED = 2, 80


@dataclass(frozen=True)
class Scope:
    """Where an expression stands: the file, its class and its function, and the line before which names were set."""

    path: str
    options: Mapping[str, str]  # part.field → option, with the key behind it where the option takes JSON
    function: Function | None = None
    owner: ast.ClassDef | None = None
    line: int = 0
    seen: frozenset[str] = field(default_factory=frozenset)
    calls: Calls | None = None
    hops: int = 0


def deciders(node: ast.AST, scope: Scope) -> tuple[str, ...]:
    """What decides the value of an expression, each once and the nearest first."""
    return tuple(dict.fromkeys(_of(node, scope, _DEPTH)))


def told_once(node: ast.AST, scope: Scope) -> tuple[ast.expr, Scope] | None:
    """What a name or an attribute of the class was set to, where it is one expression: `use_mega = kind == "mega"`."""
    match node:
        case ast.Name(id=name) if name not in scope.seen and not _looped(name, scope):
            values = set_before(name, scope)
            return (values[0], replace(scope, seen=scope.seen | {name})) if len(values) == 1 else None
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if f"self.{name}" not in scope.seen:
            given = _of_class(name, scope)
            if len(given) == 1:
                value, function = given[0]
                seen = scope.seen | {f"self.{name}"}
                return value, replace(scope, function=function, line=value.lineno, seen=seen)
    return None


def _of(node: ast.AST, scope: Scope, depth: int) -> Iterator[str]:
    if known := _named(node, scope):
        yield known
        return
    match node:
        case ast.Name(id=name) if depth and name not in scope.seen:
            values = set_before(name, scope)
            for value in values:
                yield from _of(value, replace(scope, seen=scope.seen | {name}), depth - 1)
            if not values:
                yield from _given_by_callers(name, scope) or _key_of_model(name, scope) or _named_alike(name, scope)
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if depth and f"self.{name}" not in scope.seen:
            given = _of_class(name, scope)
            for value, function in given if len(given) == 1 else []:
                inside = replace(scope, function=function, line=value.lineno, seen=scope.seen | {f"self.{name}"})
                yield from _of(value, inside, depth - 1)
        case ast.Lambda() | ast.Constant():
            return
        case ast.Call(func=ast.Attribute(value=of)) if _of_quantization(of, scope):
            # whatever it computes, it has read it in the checkpoint
            yield f"model {_QUANTIZED}"
        case ast.Call(func=ast.Attribute(value=of), args=args, keywords=named):
            # the name of a method is nothing that anybody sets
            for given_one in (of, *args, *(one.value for one in named)):
                yield from _of(given_one, scope, depth)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _of(child, scope, depth)


def _named(node: ast.AST, scope: Scope) -> str:
    """What is asked by name; empty where it is no name that anybody sets."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Call(func=ast.Name(id=name)) if name in _SPLIT:
            return f"option {_SPLIT[name]}"
        case ast.Attribute(value=ast.Name(id="envs"), attr=name):
            return f"variable {name}"
        case ast.Name(id=name) if _VARIABLE.fullmatch(name):
            return f"variable {name}"
        case ast.Attribute(value=ast.Name(id="args"), attr=name):
            return f"option {name.replace('_', '-')}" if f"args.{name}" in scope.options else ""
        case ast.Call(func=ast.Name(id="getattr"), args=[of, ast.Constant(value=str() as key), *_]):
            return _field(ast.unparse(of), key, scope)
        case ast.Call(func=ast.Attribute(value=of, attr="get" | "pop"), args=[ast.Constant(value=str() as key), *_]):
            return _entry(ast.unparse(of), key, scope)
        case ast.Call(func=ast.Attribute(attr="get_from_extra_config"), args=[ast.Constant(value=str() as key), *_]):
            return f"extra {'ec' if 'ec_transfer' in scope.path else 'kv'}-transfer-config {key}"
        case ast.Subscript(value=of, slice=ast.Constant(value=str() as key)):
            return _entry(ast.unparse(of), key, scope)
        case ast.Attribute(value=of, attr=key):
            return _field(ast.unparse(of), key, scope)
        case _:
            return ""


def _key_of_model(name: str, scope: Scope) -> list[str]:
    """What a class of the model's configuration is made with, where vLLM itself gives nothing: a key of config.json."""
    function = scope.function
    if function is None or function.name != "__init__" or not scope.path.startswith(_CONFIGS):
        return []
    return [f"model {name}"] if name in parameters(function) and not name.endswith("_config") else []


def _named_alike(name: str, scope: Scope) -> list[str]:
    """A parameter that no known place gives, under the whole name of an option; one or two words name other things."""
    if scope.function is None or not (name.count("_") > 1 or name.startswith(_SWITCHES)):
        return []
    known = scope.options.get(f"args.{name}")
    return [f"option {known}"] if known and name in parameters(scope.function) else []


def _of_quantization(of: ast.expr, scope: Scope) -> bool:
    return scope.path.startswith(_QUANTIZATION) and _OF_QUANTIZATION.fullmatch(ast.unparse(of)) is not None


def held(node: ast.AST, scope: Scope) -> str:
    """The one thing whose bare value an expression is, and nothing that was made of it."""
    if known := _named(node, scope):
        return known
    match node:
        case ast.Call(func=ast.Name(id="int" | "bool" | "str" | "float"), args=[value]):
            return held(value, scope)
        case ast.Call(func=ast.Attribute(value=value, attr="lower" | "upper" | "strip")):
            return held(value, scope)
        case ast.BoolOp(op=ast.Or(), values=[value, ast.Constant()]):
            return held(value, scope)
        case ast.Name(id=name) if name not in scope.seen:
            inside = replace(scope, seen=scope.seen | {name})
            values = set_before(name, scope)
            values = [value for value in values if not isinstance(value, ast.Constant)] or values
            if values:
                return held(values[0], inside) if len(values) == 1 and not _looped(name, scope) else ""
            told = [held(place.value, _at(place, scope)) for place in _callers(name, scope)]
            told = told or _key_of_model(name, scope) or _named_alike(name, scope)
            return told[0] if told and set(told) == {told[0]} else ""
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if f"self.{name}" not in scope.seen:
            given = _of_class(name, scope)
            if len(given) == 1:
                value, function = given[0]
                seen = scope.seen | {f"self.{name}"}
                return held(value, replace(scope, function=function, line=value.lineno, seen=seen))
    return ""


def _of_class(name: str, scope: Scope) -> list[tuple[ast.expr, Function]]:
    """The values of an attribute: what the class sets it to, or what its property returns."""
    return attributes(scope.owner).get(name, []) if scope.owner is not None else []


def _looped(name: str, scope: Scope) -> bool:
    """Does the name stand for each of several in turn, or for one part of what was given?"""
    return scope.function is not None and name in _parts(scope.function)


@cache
def _parts(function: Function) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(function):
        targets: list[ast.expr] = []
        if isinstance(node, ast.For | ast.comprehension):
            targets = [node.target]
        elif isinstance(node, ast.Assign):
            targets = [one for one in node.targets if isinstance(one, ast.Tuple)]
        found |= {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    return frozenset(found)


def _callers(name: str, scope: Scope) -> list[Place]:
    """The values that a parameter is given, where a few places call the function."""
    if scope.calls is None or scope.function is None or scope.hops >= _HOPS:
        return []
    places = scope.calls.of(scope.function, scope.owner, name, scope.path)
    return places if len(places) <= _CALLED else []


def _given_by_callers(name: str, scope: Scope) -> list[str]:
    """What decides a parameter, where most places that call the function say so."""
    if scope.calls is None or scope.function is None:
        return []
    known = (scope.function, name, scope.hops)
    if known not in scope.calls.told:
        scope.calls.told[known] = _told_by(_callers(name, scope), scope)
    return scope.calls.told[known]


def _told_by(places: list[Place], scope: Scope) -> list[str]:
    told = [found for place in places if (found := frozenset(deciders(place.value, _at(place, scope))))]
    names = list(dict.fromkeys(name for found in told for name in sorted(found)))
    if 2 * len(told) < len(places):
        return []
    return [name for name in names if 2 * sum(name in found for found in told) >= len(told)]


def _at(place: Place, scope: Scope) -> Scope:
    return Scope(
        place.path,
        scope.options,
        place.function,
        place.owner,
        place.value.lineno + 1,
        calls=scope.calls,
        hops=scope.hops + 1,
    )


def _held_by(of: str, scope: Scope) -> str:
    """`parallel`, which a function set to `vllm_config.parallel_config`, as what it was set to."""
    values = set_before(of, scope) if of.isidentifier() and of != "config" else []
    whole = ast.unparse(values[0]) if len(values) == 1 and isinstance(values[0], ast.Attribute) else ""
    return whole if _PART.fullmatch(whole) and "hf" not in whole else of


def _field(of: str, key: str, scope: Scope) -> str:
    of = of if _PART.fullmatch(of) else _held_by(of, scope)
    part = _PART.fullmatch(of)
    held = f"{_SHORT.get(part[1], part[1])}.{key}" if part is not None else ""
    own = f"{part_of(scope.owner.name)}.{key}" if of == "self" and scope.owner is not None else ""
    if of == "self" and scope.path == _ARGUMENTS and f"args.{key}" in scope.options:
        return f"option {scope.options[f'args.{key}']}"
    for name in (held, own if scope.path.startswith(("vllm/config/", "vllm/config.py")) else ""):
        if name in scope.options:
            return f"option {scope.options[name]}"
    if key.endswith("_config"):
        return ""
    if scope.path.startswith(_QUANTIZATION) and key[0] != "_" and not key.isupper():
        own_class = scope.owner is not None and any("QuantizationConfig" in ast.unparse(b) for b in scope.owner.bases)
        if _OF_QUANTIZATION.fullmatch(of) or (of == "self" and own_class):
            return f"model {_QUANTIZED}.{key}"
    inner = _INSIDE_MODEL.fullmatch(of)
    of_model = _OF_MODEL.fullmatch(of) is not None or inner is not None
    of_model = (of_model and _MODELS.match(scope.path) is not None) or _OF_HUB.fullmatch(of) is not None
    if of_model and key != "model_type" and not key.isupper():
        return f"model {inner['part']}.{key}" if inner is not None else f"model {key}"
    if of == "self" and scope.path.startswith(_CONFIGS) and not key.isupper():
        return f"model {key}"
    asked = _REQUESTED.match(scope.path) is not None and _REQUESTS.fullmatch(of) is not None
    return f"request {key}" if (asked or (of == "self" and _OWN_FIELDS.match(scope.path))) and key[0] != "_" else ""


def _entry(of: str, key: str, scope: Scope) -> str:
    extra = next((option for name, option in _EXTRA.items() if name in of), "")
    if not extra and of.rpartition(".")[2] in {"extra_config", "extra"}:
        extra = next((option for mark, option in _EXTRA_OF if mark in scope.path), "")
    return f"extra {extra} {key}" if extra else _field(of, key, scope)


def part_of(name: str) -> str:
    """ParallelConfig → parallel."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("Config")).lower()


def set_before(name: str, scope: Scope) -> list[ast.expr]:
    """The values that a function gave to a name before a line, the last first."""
    rows = _given(scope.function).get(name, []) if scope.function is not None else []
    return [value for line, value in reversed(rows) if line < scope.line][:_VALUES]


@cache
def _given(function: Function) -> dict[str, list[tuple[int, ast.expr]]]:
    """Each name of a function with the values that it gets, by their lines; a loop's name gets what is looped over."""
    made: dict[str, list[tuple[int, ast.expr]]] = {}
    for node in ast.walk(function):
        targets: list[ast.expr] = []
        value = getattr(node, "value", None)
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
            targets = [node.target]
        elif isinstance(node, ast.For | ast.comprehension):
            targets, value = [node.target], node.iter
        if isinstance(value, ast.expr):
            for target in targets:
                for held in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(held, ast.Name):
                        made.setdefault(held.id, []).append((value.lineno, value))
    return {name: sorted(rows, key=lambda row: row[0]) for name, rows in made.items()}


@cache
def attributes(owner: ast.ClassDef) -> dict[str, list[tuple[ast.expr, Function]]]:
    """Each attribute that a class sets or has as a property, with its different values and where they stand."""
    made: dict[str, dict[str, tuple[ast.expr, Function]]] = {}
    for function in owner.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            match node:
                case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value):
                    made.setdefault(name, {}).setdefault(ast.unparse(value), (value, function))
                case ast.AnnAssign(
                    target=ast.Attribute(value=ast.Name(id="self"), attr=name), value=ast.expr() as value
                ):
                    made.setdefault(name, {}).setdefault(ast.unparse(value), (value, function))
        if any("property" in ast.unparse(by) for by in function.decorator_list):
            for node in ast.walk(function):
                if isinstance(node, ast.Return) and node.value is not None:
                    made.setdefault(function.name, {}).setdefault(ast.unparse(node.value), (node.value, function))
    return {name: list(rows.values()) for name, rows in made.items()}

"""Which layers a quantization method has code for: what its class's `get_quant_method` asks of a layer.

The method of a layer is chosen by what the layer is (`isinstance(layer, FusedMoE)`). Where neither that function nor
what it hands the layer on to names experts, it answers None of them; a release whose experts assert that they have a
method (`assert quant_method is not None`, up to 0.11) ends the start there.

Adapters wrap experts (lora/layers/fused_moe.py, from 0.11.1): they ask the method of a model's experts for its scales
(`get_fused_moe_quant_config`), from 0.12 on for a kernel (`select_gemm_impl`, later one of its own, `moe_mk` or
`moe_kernel`). A method each of whose classes gives none has no experts that an adapter could wrap.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from releases.wheel import Wheel

_FILES = r"vllm/model_executor/layers/quantization/.*\.py"
_EXPERTS = "vllm/model_executor/layers/fused_moe/layer.py"
_CHOOSES, _LAYER = "get_quant_method", "layer"
_OF_EXPERTS = frozenset({"FusedMoE", "RoutedExperts"})
_DEPTH = 6
# What is asked of a layer and hands it on to nothing.
_TESTS = frozenset({"isinstance", "getattr", "hasattr", "type"})
_WRAPPER = "vllm/lora/layers/fused_moe.py"
_SCALES, _KERNEL = "get_fused_moe_quant_config", "select_gemm_impl"
_BALANCES = "supports_eplb"
_OWN_KERNEL = re.compile(r"quant_method\.(moe_mk|moe_kernel)\b")
_OF_METHODS = r"vllm/model_executor/layers/(quantization|fused_moe)/.*\.py"
_BASE, _PLAIN = "FusedMoEMethodBase", "UnquantizedFusedMoEMethod"


class Layered:
    """The methods of one wheel."""

    def __init__(self, wheel: Wheel) -> None:
        bodies = [wheel.tree(path).body for path in wheel.paths(_FILES)]
        self.classes = {node.name: node for body in bodies for node in body if isinstance(node, ast.ClassDef)}
        self.functions = {node.name: node for body in bodies for node in body if isinstance(node, ast.FunctionDef)}
        self.asserted = _EXPERTS in wheel.files and _asserts_a_method(wheel.tree(_EXPERTS))
        self.wrapped = wheel.files.get(_WRAPPER, "")
        self.of_layers = {
            node.name: node
            for path in wheel.paths(_OF_METHODS)
            for node in wheel.tree(path).body
            if isinstance(node, ast.ClassDef)
        }

    def no_experts(self, name: str) -> bool:
        """Is it sure that a method ends the start of a model with fused experts? Not where a layer is handed on to
        what was not found."""
        return self.asserted and self._names(name, _CHOOSES, _DEPTH) is False

    def no_adapted_experts(self, name: str) -> bool:
        """Is it sure that an adapter finds nothing to wrap in a method's experts? Those that a checkpoint leaves out
        are another method's."""
        if self.asserted and self._names(name, _CHOOSES, _DEPTH) is False:
            return False  # said already
        made = self._experts(name, _CHOOSES, frozenset())
        return bool(self.wrapped and made) and not any(self._adapted(one) for one in made or ())

    def no_balanced_experts(self, name: str) -> bool:
        """Is it sure that no experts of a method are balanced over ranks (--enable-eplb)? From 0.11.1 on each class
        says it itself; experts assert it where they are made."""
        made = self._experts(name, _CHOOSES, frozenset())
        told = bool(self.of_layers.get(_BASE)) and _BALANCES in self._told(_BASE)
        return bool(told and made) and not any(one == _BASE or self._balanced(one) for one in made or ())

    def _told(self, name: str) -> dict[str, ast.FunctionDef]:
        """The functions of a class and of those before it, each as the nearest has it."""
        line = [self.of_layers[one] for one in self._line(name)]
        return {f.name: f for node in reversed(line) for f in node.body if isinstance(f, ast.FunctionDef)}

    def _balanced(self, name: str) -> bool:
        """May a class of experts say that it is balanced?"""
        return _first(self._told(name)[_BALANCES]) != "return False"

    def _experts(self, owner: str, function: str, seen: frozenset[tuple[str, str]]) -> frozenset[str] | None:
        """The classes of experts that a function may choose among; None where it cannot be followed. Methods hand a
        layer on to each other: one that is followed already adds nothing."""
        if (owner, function) in seen:
            return frozenset()
        seen |= {(owner, function)}
        found = self._method(owner, function) if owner else self.functions.get(function)
        if found is None:
            return None
        named = {node.id for node in ast.walk(found) if isinstance(node, ast.Name)}
        made = {one for one in named if one != _PLAIN and _BASE in self._line(one)}
        for call in _handed_on(found):
            if self._line(ast.unparse(call.func)):
                continue  # a method of a layer that is made
            match call.func:
                case ast.Name(id=name):
                    inner = self._experts("", name, seen)
                case ast.Attribute(value=ast.Name(id=of), attr=name) if of in {"self", "cls"} or of in self.of_layers:
                    inner = self._experts(owner if of in {"self", "cls"} else of, name, seen)
                case ast.Attribute(value=ast.Call(func=of), attr=name):
                    inner = self._experts(ast.unparse(of).partition(".")[0], name, seen)
                case _:
                    inner = None
            if inner is None:
                return None
            made |= inner
        return frozenset(made)

    def _line(self, name: str) -> list[str]:
        """A class and those before it that are here."""
        line: list[str] = []
        while name in self.of_layers and name not in line:
            line.append(name)
            name = next((n for base in self.of_layers[name].bases if (n := ast.unparse(base)) in self.of_layers), "")
        return line

    def _adapted(self, name: str) -> bool:
        """Does a class of experts give an adapter what it asks for?"""
        line, told = [self.of_layers[one] for one in self._line(name)], self._told(name)
        if f".{_KERNEL}(" not in self.wrapped:
            scales = told.get(_SCALES)
            return scales is None or _first(scales) != "return None"
        kept = set(_OWN_KERNEL.findall(self.wrapped))
        own = any(
            isinstance(n, ast.Attribute) and n.attr in kept and isinstance(n.ctx, ast.Store)
            for node in line
            if node.name != _BASE
            for n in ast.walk(node)
        )
        kernel = told.get(_KERNEL)
        return own or kernel is None or not _first(kernel).startswith("raise ")

    def _names(self, owner: str, function: str, depth: int) -> bool | None:
        """Does a function ask whether a layer holds experts? None where it cannot be followed."""
        found = self._method(owner, function) if owner else self.functions.get(function)
        if found is None or not depth:
            return None
        if any(isinstance(node, ast.Name) and node.id in _OF_EXPERTS for node in ast.walk(found)):
            return True
        told = {self._called(call, owner, depth) for call in _handed_on(found)}
        return True if True in told else None if None in told else False

    def _called(self, call: ast.Call, owner: str, depth: int) -> bool | None:
        match call.func:
            case ast.Name(id=name):
                return self._names("", name, depth - 1)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                return self._names(owner, name, depth - 1)
            case _:
                return None

    def _method(self, owner: str, name: str) -> ast.FunctionDef | None:
        """A class's own, or the first of those that it is made of."""
        node = self.classes.get(owner)
        if node is None:
            return None
        own = next((line for line in node.body if isinstance(line, ast.FunctionDef) and line.name == name), None)
        bases = [ast.unparse(base) for base in node.bases]
        return own or next((found for base in bases if (found := self._method(base, name)) is not None), None)


def _first(function: ast.FunctionDef) -> str:
    """The first line of a function that says something."""
    said = [one for one in function.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    return ast.unparse(said[0]) if said else ""


def _handed_on(function: ast.FunctionDef) -> Iterator[ast.Call]:
    """Each call that is given the layer, beside the question of what it is."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _TESTS):
            given = [*node.args, *(word.value for word in node.keywords)]
            if any(isinstance(one, ast.Name) and one.id == _LAYER for one in given):
                yield node


def _asserts_a_method(module: ast.Module) -> bool:
    """Do experts take no None for an answer, where they are made?"""
    made = [
        function
        for node in module.body
        if isinstance(node, ast.ClassDef) and node.name == "FusedMoE"
        for function in node.body
        if isinstance(function, ast.FunctionDef) and function.name == "__init__"
    ]
    tests = [node.test for function in made for node in ast.walk(function) if isinstance(node, ast.Assert)]
    return any(ast.unparse(test) in {"quant_method is not None", "self.quant_method is not None"} for test in tests)

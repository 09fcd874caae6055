"""Which layers a quantization method has code for: what its class's `get_quant_method` asks of a layer.

The method of a layer is chosen by what the layer is (`isinstance(layer, FusedMoE)`). Where neither that function nor
what it hands the layer on to names experts, it answers None of them; a release whose experts assert that they have a
method (`assert quant_method is not None`, up to 0.11) ends the start there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from releases.wheel import Wheel

_FILES = r"vllm/model_executor/layers/quantization/.*\.py"
_EXPERTS = "vllm/model_executor/layers/fused_moe/layer.py"
_CHOOSES, _LAYER = "get_quant_method", "layer"
_OF_EXPERTS = frozenset({"FusedMoE", "RoutedExperts"})
_DEPTH = 6
_TEST = "isinstance"


class Layered:
    """The methods of one wheel."""

    def __init__(self, wheel: Wheel) -> None:
        bodies = [wheel.tree(path).body for path in wheel.paths(_FILES)]
        self.classes = {node.name: node for body in bodies for node in body if isinstance(node, ast.ClassDef)}
        self.functions = {node.name: node for body in bodies for node in body if isinstance(node, ast.FunctionDef)}
        self.asserted = _EXPERTS in wheel.files and _asserts_a_method(wheel.tree(_EXPERTS))

    def no_experts(self, name: str) -> bool:
        """Is it sure that a method ends the start of a model with fused experts? Not where a layer is handed on to
        what was not found."""
        return self.asserted and self._names(name, _CHOOSES, _DEPTH) is False

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


def _handed_on(function: ast.FunctionDef) -> Iterator[ast.Call]:
    """Each call that is given the layer, beside the question of what it is."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id == _TEST):
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

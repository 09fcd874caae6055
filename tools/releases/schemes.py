"""For which groups of a compressed-tensors checkpoint a release has a scheme: one expression a release, and one of
experts.

`_get_scheme_from_parts` (layers/quantization/compressed_tensors/compressed_tensors.py) asks `_is_fp8_w8a8(weights,
inputs)` and its like one after another, and raises where none holds; `get_moe_method` (compressed_tensors_moe) does so
for experts. What it comes to is written down in the names of a
group's own keys: `weights.num_bits`, `inputs.strategy`, `format` (bodies.py).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from releases.assigned import assigned
from releases.bodies import UNKNOWN, Bodies, Here, fails
from releases.wheel import Wheel

_FOLDER = "vllm/model_executor/layers/quantization/compressed_tensors"
_FILE = f"{_FOLDER}/compressed_tensors.py"
_CLASS, _START = "CompressedTensorsConfig", "_get_scheme_from_parts"
_EXPERTS, _START_OF_EXPERTS = "CompressedTensorsMoEMethod", "get_moe_method"
# The names that vLLM's functions have for the parts of a group.
_PARTS = {"weight_quant": "weights", "input_quant": "inputs", "output_quant": "outputs", "format": "format"}
# Enumerations of the package compressed-tensors, whose values are their members' names in small letters.
_ENUMS = {"QuantizationStrategy": "_", "QuantizationType": "_", "CompressionFormat": "-"}


class Schemes(Bodies):
    """The schemes of one wheel."""

    def __init__(self, wheel: Wheel) -> None:
        self.methods: dict[str, ast.FunctionDef] = {}
        self.of_experts: ast.FunctionDef | None = None
        self.functions: dict[str, ast.FunctionDef] = {}
        self.constants: dict[str, ast.expr] = {}
        for path in wheel.paths(rf"{_FOLDER}/(\w+|(schemes|compressed_tensors_moe)/\w+)\.py"):
            for node in wheel.tree(path).body:
                if isinstance(node, ast.ClassDef) and node.name == _CLASS:
                    self.methods = {f.name: f for f in node.body if isinstance(f, ast.FunctionDef)}
                elif isinstance(node, ast.ClassDef) and node.name == _EXPERTS:
                    found = (f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == _START_OF_EXPERTS)
                    self.of_experts = next(found, self.of_experts)
                elif isinstance(node, ast.FunctionDef):
                    self.functions.setdefault(node.name, node)
                for name, value in assigned([node]):
                    if value is not None:
                        self.constants.setdefault(name, value)

    def taken(self) -> str | None:
        """Where there is a scheme; None for a release without the function, and where it cannot be read."""
        start = self.methods.get(_START)
        if start is None:
            return None
        return self._asked(start.body)

    def taken_of_experts(self) -> str | None:
        """Where experts have a method: what is asked once the parts of their group are known."""
        if self.of_experts is None:
            return None
        body = self.of_experts.body
        named = [i for i, line in enumerate(body) if {key for key, _ in assigned([line])} & _PARTS.keys()]
        return self._asked(body[named[-1] + 1 :]) if named else None

    def _asked(self, body: Sequence[ast.stmt]) -> str | None:
        said = self.returned(body, Here("", "", dict(_PARTS)))
        return said if said is not None and fails(ast.parse(said, mode="eval").body) else None

    def other(self, node: ast.expr, here: Here) -> str:
        """What stands in the choice of a scheme."""
        match node:
            case ast.Name(id=name) if name in self.constants:
                return self.written(self.constants[name], here)
            case ast.Attribute(value=inner, attr="value"):
                return self.written(inner, here)
            case ast.Attribute(value=ast.Name(id=enum), attr=member) if enum in _ENUMS:
                return repr(member.lower().replace("_", _ENUMS[enum]))
            case ast.Attribute(value=ast.Name(id="self"), attr="quant_format"):
                return "format"
            case ast.Attribute(value=ast.Name(id=name), attr=key) if here.local.get(name) in _PARTS.values():
                return f"{here.local[name]}.{key}"
            case ast.Call(func=ast.Name(id=name)) if re.match(r"CompressedTensors[A-Z]", name):
                return "True"  # a scheme
            case ast.Call(func=ast.Attribute(value=inner, attr="keys"), args=[]):
                return self._keys(inner)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="self" | "cls" | "quant_config"), attr=name),
                args=args,
                keywords=keys,
            ):
                if name == "_check_scheme_supported":
                    return _of_card(args, keys)
                return self._call(self.methods.get(name), args, here)
            case ast.Call(func=ast.Name(id=name), args=args) if name in self.functions:
                return self._call(self.functions[name], args, here)
            case _:
                return UNKNOWN

    def _call(self, function: ast.FunctionDef | None, args: Sequence[ast.expr], here: Here) -> str:
        if function is None or not here.depth:
            return UNKNOWN
        names = [a.arg for a in function.args.args if a.arg not in {"cls", "self"}]
        local = {name: self.written(arg, here) for name, arg in zip(names, args, strict=False)}
        return self.returned(function.body, Here("", "", local, here.depth - 1)) or UNKNOWN

    def _keys(self, node: ast.expr) -> str:
        value = self.constants.get(node.id) if isinstance(node, ast.Name) else None
        if not isinstance(value, ast.Dict) or not all(isinstance(key, ast.Constant) for key in value.keys):
            return UNKNOWN
        return f"({', '.join(ast.unparse(key) for key in value.keys if key is not None)},)"


def read(wheel: Wheel) -> dict[str, str]:
    """The quantization → where it has a scheme; empty where nobody can read it."""
    schemes = Schemes(wheel)
    found = {"compressed-tensors": schemes.taken(), "compressed-tensors experts": schemes.taken_of_experts()}
    return {name: taken for name, taken in found.items() if taken is not None}


def _of_card(args: Sequence[ast.expr], keys: Sequence[ast.keyword]) -> str:
    """A question about the compute capability, 90 for 9.0, where it is one number that is asked for exactly."""
    exact = any(key.arg == "match_exact" and ast.unparse(key.value) == "True" for key in keys)
    number = args[0].value if args and isinstance(args[0], ast.Constant) else None
    return f"(capability == {number // 10}.{number % 10})" if exact and isinstance(number, int) else UNKNOWN

"""On which cards, and for which experts, each kernel of experts runs that a launch may ask for by name.

A kernel's class answers for the card (`_supports_current_device`) and for experts without a gate
(`_supports_no_act_and_mul`); one that is asked for and says no ends the start (fused_moe/oracle/*.py
`_return_or_raise`). The bodies are written down as one expression (bodies.py) of `capability`, `major` and `gated`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from releases.assigned import assigned
from releases.bodies import DEPTH, UNKNOWN, Bodies, Here, any_of, both, fails
from releases.wheel import Wheel

_FILES = r"vllm/model_executor/layers/fused_moe/.*\.py"
_CARD, _GATE = "_supports_current_device", "_supports_no_act_and_mul"
_CLASSES, _ENDS = "backend_to_kernel_cls", "raise ValueError(_make_log_unsupported("
# The kernels that a variable of the environment asks for, one of which must do (0.15 to 0.23), and their name here.
_LISTED, FLASHINFER = "FLASHINFER_NVFP4_MOE_BACKENDS", "VLLM_USE_FLASHINFER_MOE_FP4"
_NO_CLASS = "raise"
_ELSEWHERE = frozenset({"is_rocm", "is_xpu", "is_cpu", "is_tpu"})
_HERE = frozenset({"is_cuda", "is_cuda_alike"})


class ExpertKernels(Bodies):
    """The kernels of one wheel."""

    def __init__(self, wheel: Wheel) -> None:
        self.classes: dict[str, ast.ClassDef] = {}
        self.apart: list[ast.FunctionDef] = []  # of kernels that are no class (0.15 and 0.16)
        for path in wheel.paths(_FILES):
            for node in wheel.tree(path).body:
                if isinstance(node, ast.ClassDef):
                    self.classes.setdefault(node.name, node)
                elif isinstance(node, ast.FunctionDef) and node.name == _CARD:
                    self.apart.append(node)

    def on(self, oracle: ast.Module, source: str, names: dict[str, str]) -> dict[str, str]:
        """Name of --moe-backend → what its kernels ask, of those that some launch could fail. `names` are the members
        that they stand for."""
        if _ENDS not in source:
            return {}
        made = {name: self._of_member(oracle, member) for name, member in names.items()}
        listed = next((v for name, v in assigned(oracle.body) if name == _LISTED and isinstance(v, ast.List)), None)
        if listed is not None and FLASHINFER in source:
            members = [ast.unparse(one).rpartition(".")[2] for one in listed.elts]
            made[FLASHINFER] = any_of([self._of_member(oracle, member) for member in members])
        return {name: text for name, text in made.items() if fails(ast.parse(text, mode="eval").body)}

    def _of_member(self, oracle: ast.Module, member: str) -> str:
        """What one of a member's classes at least must be asked; unknown where they are not found."""
        named = next((list(_returned(f, member)) for f in oracle.body if _is(f, _CLASSES)), [])
        if named == [_NO_CLASS] and len(self.apart) == 1:
            return self.returned(self.apart[0].body, Here("", "", {}, DEPTH)) or UNKNOWN
        return any_of([self._asked(name) for name in named]) if named else UNKNOWN

    def _asked(self, name: str) -> str:
        ungated = self._answer(name, _GATE)
        return both([self._answer(name, _CARD), "gated" if ungated == "False" else "True"])

    def _answer(self, name: str, method: str) -> str:
        """What a class's method returns, its own or that of the first base that has one."""
        seen: list[str] = []
        while name in self.classes and name not in seen:
            seen.append(name)
            found = next((f for f in self.classes[name].body if _is(f, method)), None)
            if isinstance(found, ast.FunctionDef):
                told = self.returned(found.body, Here(name, name, {}, DEPTH))
                return UNKNOWN if told is None or any(isinstance(n, ast.Raise) for n in found.body) else told
            bases = [ast.unparse(base).rpartition(".")[2] for base in self.classes[name].bases]
            name = next((base for base in bases if base in self.classes), "")
        return UNKNOWN

    def other(self, node: ast.expr, here: Here) -> str:
        """What is asked of the platform (platforms/interface.py)."""
        del here
        match node:
            case ast.Call(func=ast.Attribute(attr=asked), args=[]) if asked in _HERE | _ELSEWHERE:
                return str(asked in _HERE)
            case ast.Call(func=ast.Attribute(attr="has_device_capability"), args=[least]):
                return f"(capability >= {number})" if (number := _number(least)) else UNKNOWN
            case ast.Call(func=ast.Attribute(attr="is_device_capability"), args=[one]):
                return f"(capability == {number})" if (number := _number(one)) else UNKNOWN
            case ast.Call(func=ast.Attribute(attr="is_device_capability_family"), args=[one]):
                return f"(major == {number.partition('.')[0]})" if (number := _number(one)) else UNKNOWN
            case _:
                return UNKNOWN


def _is(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == name


def _number(node: ast.expr) -> str:
    """A compute capability: 90 and (9, 0) are 9.0."""
    match node:
        case ast.Constant(value=int() as whole):
            return f"{whole // 10}.{whole % 10}"
        case ast.Tuple(elts=[ast.Constant(value=int() as major), ast.Constant(value=int() as minor)]):
            return f"{major}.{minor}"
        case _:
            return ""


def _returned(function: ast.stmt, member: str) -> Iterator[str]:
    """The classes that `backend_to_kernel_cls` returns for a member: those of the branch whose test names it."""
    for node in ast.walk(function):
        if isinstance(node, ast.If) and member in [getattr(n, "attr", "") for n in ast.walk(node.test)]:
            for line in node.body:
                match line:
                    case ast.Return(value=ast.Name(id=name)):
                        yield name
                    case ast.Return(value=ast.List(elts=parts)):
                        yield from (part.id for part in parts if isinstance(part, ast.Name))
                    case ast.Raise():
                        yield _NO_CLASS
                    case _:
                        pass

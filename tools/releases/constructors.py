"""What the class behind an attention backend refuses where it is made for a layer: the tests before the `raise` and
`assert` lines of its `__init__`, in the names of what it is given (attention/backends, v1/attention/backends).

A release of two engines has a class for each. The head's size, windows, capped logits and what attends to what are
asked; the type of the cache, which is put together with the card and a library's version, is not.
"""

from __future__ import annotations

import ast

from releases.checkpoints import Checkpoints
from releases.executed import UNKNOWN, State
from releases.wheel import Wheel

_FILES = r"vllm/(v1/)?attention/backends/(?!.*(rocm|cpu|xpu|pallas|hpu|ipex)).*\.py"  # of CUDA
_SECOND = "vllm/v1/"
_NAMED, _MADE, _INIT = "get_name", "get_impl_cls", "__init__"
_ASKED = frozenset({"head_size", "sliding_window", "logits_soft_cap", "attn_type"})
MARK = "_VLLM_V1"  # of a backend that has a class for each engine


class Constructors(Checkpoints):
    """The attention backends of one wheel."""

    def made(self) -> dict[str, dict[str, list[str]]]:
        """Name of a backend → engine → tests, any of which ends the start."""
        made: dict[str, dict[str, list[str]]] = {}
        for path in self.wheel.paths(_FILES):
            for node in self.wheel.tree(path).body:
                if isinstance(node, ast.ClassDef):
                    name, impl = _given(node, _NAMED), _given(node, _MADE)
                    tests = self._tests(path, impl) if name and impl else []
                    if tests:
                        engine = "V1" if path.startswith(_SECOND) else "V0"
                        made.setdefault(name.upper().replace("-", "_").removesuffix(MARK), {})[engine] = tests
        return made

    def _tests(self, path: str, impl: str) -> list[str]:
        family = self.class_named(path, impl)
        found = family.method(_INIT) if family is not None else None
        if family is None or found is None:
            return []
        self.found = []
        given = {one.arg: one.arg for one in (*found[1].args.args, *found[1].args.kwonlyargs) if one.arg in _ASKED}
        self._entered(found[1], found[0], family, [], given, State("", None))
        tests = dict.fromkeys(test for test, _ in self.tests())
        return [test for test in tests if _names(test) <= _ASKED]


def _names(test: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Name)} or {UNKNOWN}


def _given(node: ast.ClassDef, method: str) -> str:
    """What a method of a class returns, where that is one text or one class."""
    for line in node.body:
        if isinstance(line, ast.FunctionDef) and line.name == method:
            match line.body[-1]:
                case ast.Return(value=ast.Constant(value=str() as said)) | ast.Return(value=ast.Name(id=said)):
                    return said
                case _:
                    return ""
    return ""


def read(wheel: Wheel) -> dict[str, dict[str, list[str]]]:
    """The tests of a release."""
    return Constructors(wheel).made()

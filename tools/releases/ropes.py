"""What a release refuses of a model's rope_scaling: the tests behind `raise` and `assert` lines, and the keys that are
taken without a question, of `_get_and_verify_max_len` (vllm/config) and of `get_rope` (layers/rotary_embedding).

A test is written in the keys of that object, as checkpoints.py writes those of a quantization_config. Its name begins
with the function: `length` is asked of each model, `rotary` of those whose class hands the object on (`scaled`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from releases.checkpoints import Checkpoints
from releases.executed import UNKNOWN, State
from releases.models import served
from releases.wheel import Wheel

TABLES = ("ropes", "scaled")
_CONFIG = "config"  # the object, in a test
_MODEL = "the model's"  # what has it
_MODELS, _CALLED = "vllm/model_executor/models", "get_rope"
_KEYS = ("rope_scaling", "rope_parameters")
_LENGTH, _ROTARY = r"vllm/config(/model)?\.py", r"vllm/model_executor/layers/rotary_embedding(/__init__)?\.py"
_ENTRIES = (
    ("length", _LENGTH, "_get_and_verify_max_len", {"hf_config": _MODEL}),
    *(("rotary", _ROTARY, _CALLED, {key: _CONFIG}) for key in _KEYS),
)
_MADE = "_ROPE_DICT"  # embeddings that are there already: at a start none is


class Ropes(Checkpoints):
    """The functions of one wheel."""

    def read(self) -> dict[str, dict[str, object]]:
        """Function and test → nothing more."""
        made: dict[str, dict[str, object]] = {}
        for said, where, name, given in _ENTRIES:
            for path in self.wheel.paths(where):
                found = self.function_named(path, name)
                if found is not None and {one.arg for one in found[1].args.args} >= given.keys():
                    self.found = []
                    self.follow(*found, given)
                    made |= {f"{said}: {test}": {} for test, _ in self.tests() if _of_object(test)}
        return dict(sorted(made.items()))

    def special(self, called: str, args: Sequence[str], behind: tuple[str, ...], line: ast.stmt) -> str | None:
        """Nothing: the object is a plain one."""
        del called, args, behind, line
        return None

    def value(self, node: ast.expr, state: State, line: ast.stmt | None = None) -> str:
        """A key that is taken must be there; a choice is asked behind its test."""
        match node:
            case ast.IfExp(test=asked, body=one, orelse=two):
                test = self.test(asked, state, line or ast.Pass())
                kept = self.value(one, state.past(test), line), self.value(two, state.past(f"(not {test})"), line)
                return f"({kept[0]} if {test} else {kept[1]})" if UNKNOWN not in (*kept, test) else UNKNOWN
            case ast.Call(func=ast.Name(id="getattr"), args=[of, ast.Constant(value=key), *_]) if key in _KEYS:
                return _CONFIG if self.value(of, state, line) == _MODEL else UNKNOWN
            case ast.Attribute(value=of, attr=key) if key in _KEYS and self.value(of, state, line) == _MODEL:
                return _CONFIG
            case ast.Compare(ops=[ast.In()], comparators=[ast.Name(id=name)]) if name == _MADE:
                return "False"
            case ast.Compare(comparators=[ast.Call(func=ast.Name(id="float"))]):
                return "False"  # a model that names no length at all, whose length is infinite
            case ast.Subscript(value=of, slice=ast.Constant(value=str() as key)):
                if self.value(of, state, line) == _CONFIG:
                    self.met((*state.behind, f"(not ({key!r} in {_CONFIG}))"), line or ast.Pass())
                return super().value(node, state, line)
            case _:
                return super().value(node, state, line)

    def test(self, node: ast.expr, state: State, line: ast.stmt) -> str:
        """As `Executed.test`: of several parts each is asked behind those before it."""
        if not isinstance(node, ast.BoolOp):
            return super().test(node, state, line)
        told: list[str] = []
        joint = isinstance(node.op, ast.And)
        for part in node.values:
            told.append(self.test(part, state, line))
            state = state.past(told[-1] if joint else f"(not {told[-1]})")
        return f"({(' and ' if joint else ' or ').join(told)})"


def _of_object(test: str) -> bool:
    names = {node.id for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Name)}
    return names - {UNKNOWN} == {_CONFIG}


def read(wheel: Wheel) -> dict[str, dict[str, dict[str, object]]]:
    """The tests of a release, and the architectures whose own module hands the object on."""
    return {"ropes": Ropes(wheel).read(), "scaled": {name: {} for name in sorted(_scaled(wheel))}}


def _scaled(wheel: Wheel) -> Iterator[str]:
    for name, (module, _) in served(wheel).items():
        text = wheel.files.get(f"{_MODELS}/{module}.py", "")
        if f"{_CALLED}(" in text and any(f"{key}=" in text for key in _KEYS):
            yield name

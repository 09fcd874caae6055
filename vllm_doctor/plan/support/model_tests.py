"""What a model's own classes refuse as they are made: their tests of config.json and of the launch, as the release has
them (history/model_tests.json, read from each wheel by tools/releases/model_tests.py).

A key that config.json does not name has a default of Transformers' own, which nobody knows here; so has one that is
null. A test that asks for it refuses nothing, and makes no start uncertain.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import NamedTuple

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.history import beginning
from vllm_doctor.knowledge.parser.combinations import UNKNOWN, UnknownValue
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.settings import Dependence, Settings
from vllm_doctor.plan.launch.towers import may_be_whole
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.config_json import Section
from vllm_doctor.plan.model.describe import text_section
from vllm_doctor.plan.support.card import methods
from vllm_doctor.plan.support.checkpoint_keys import KeyTest
from vllm_doctor.plan.terms.encoder import without_tower
from vllm_doctor.records import excerpt

_LAYER = "layer"
_RANKS = "tp"
_BACKEND, _OWN_FLASH = "tower_backend", "own_flash"
# What of a launch a test asks for → the option that a refusal names.
_OPTIONS = {
    _RANKS: "--tensor-parallel-size",
    "whole": "--tensor-parallel-size",
    "pp": "--pipeline-parallel-size",
    "expert": "--enable-expert-parallel",
    "lora": "--enable-lora",
    "quant": "--quantization",
    "dtype": "--dtype",
    _BACKEND: "--mm-encoder-attn-backend",
    "capability": "--gpu",
}
_THERE = object()  # an object of the configuration, of which only counts that it is there


class ModelTest(NamedTuple):
    """A test that ends the start where it holds, the class that asks it, and what is said there."""

    text: str
    by: str
    says: str


class _Ask(KeyTest):
    """Answers a test for one launch."""

    def __init__(self, names: Mapping[str, object]) -> None:
        super().__init__({})
        self.names = dict(names)

    def named(self, name: str) -> object:
        return self.names.get(name, UNKNOWN)

    def value(self, node: ast.expr) -> object:
        match node:
            case (
                ast.Subscript(value=of, slice=key) | ast.Call(func=ast.Attribute(value=of, attr="get"), args=[key, *_])
            ) if isinstance(held := self.value(of), Mapping):
                at = self.value(key)
                found = held.get(at) if isinstance(at, str) else None
                return UNKNOWN if found is None else found
            case ast.Compare(left=key, ops=[ast.In()], comparators=[of]) if isinstance(held := self.value(of), Mapping):
                return True if held.get(self.value(key)) is not None else UNKNOWN
            case ast.Call(func=ast.Name(id="max" | "min" as how), args=args):
                told = [self.value(arg) for arg in args]
                whole = [one for one in told if isinstance(one, int)]
                return UNKNOWN if len(whole) != len(told) else max(whole) if how == "max" else min(whole)
            case _:
                return super().value(node)

    def met(self, text: str, layers: int) -> bool:
        """Does a test hold, of one of the layers where it asks for them?"""
        plain, layered = _parts(text)
        if not all(self.value(part) is True for part in plain):
            return False
        for layer in range(layers if layered else 1):
            self.names[_LAYER] = layer
            if all(self.value(part) is True for part in layered):
                return True
        return False


def refusals(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """One refusal for each option, and one for each key of config.json, of the first test of it that holds."""
    if a.config is None or s.gguf is not None or s.config_elsewhere:
        return
    told: set[str] = set()
    for test in _met(a, s, gpu, s.version):
        if gpu is not None and gpu.backend != "CUDA" and not _heads_of_a_tower(test.text):
            continue  # read for CUDA alone
        refusal = _refusal(test, a, s, gpu)
        if refusal.flag not in told:
            told.add(refusal.flag)
            yield refusal


def depends(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Dependence]:
    """A backend that a tower does not take, and that gives way to flash-attn where that is installed."""
    if a.config is None or s.tower_backend is None or gpu is None or gpu.backend != "CUDA":
        return
    sure = _met(a, s, gpu, s.version)
    for test in _met(a, s, gpu, s.version, **{_OWN_FLASH: False}):
        if test not in sure:
            yield Dependence(
                "whether flash-attn is installed",
                f"without it {test.by or a.name} of vLLM {s.version} does not take {s.tower_backend}, and the start "
                f"ends with “{test.says}”; {_variable(s)} without a value settles it",
            )
            return


def _variable(s: Settings) -> str:
    """By what a tower's backend is asked for."""
    return "VLLM_ATTENTION_BACKEND" if s.does.towers_follow_variable else _OPTIONS[_BACKEND]


def _names(a: Architecture, s: Settings, gpu: Card | None) -> dict[str, object]:
    """What the names of a test hold in this launch, but for the config itself."""
    capability = gpu.capability if gpu is not None else None
    return {
        _RANKS: s.parallel.tp,
        "whole": s.parallel.whole_tower,
        "pp": s.parallel.pp,
        "expert": s.parallel.expert,
        "tower": not without_tower(a, s),
        "quant": _THERE if methods(a, s) else None,
        "lora": _THERE if s.loras else None,
        "dtype": s.dtype,
        _BACKEND: s.tower_backend or UNKNOWN,
        "capability": UNKNOWN if capability is None else round(capability * 10),
    }


def _asking(a: Architecture, names: Mapping[str, object]) -> _Ask:
    whole = a.config if a.config is not None else Section({})
    return _Ask({**names, "config": whole.values, "text": text_section(whole).values})


def _met(a: Architecture, s: Settings, gpu: Card | None, version: Version, **other: object) -> tuple[ModelTest, ...]:
    return _met_by(a, version, tuple({**_names(a, s, gpu), **other}.items()))


@lru_cache(maxsize=512)
def _met_by(a: Architecture, version: Version, names: tuple[tuple[str, object], ...]) -> tuple[ModelTest, ...]:
    """The tests that hold. Kept: a search asks it of each launch that it tries, and few differ in these."""
    ask = _asking(a, dict(names))
    return tuple(test for test in _tests(a.name, version) if ask.met(test.text, len(a.layers)))


@lru_cache(maxsize=256)
def _tests(architecture: str, version: Version) -> tuple[ModelTest, ...]:
    """A release's tests of one architecture; those of one that was not read stand only where the releases around it
    agree."""
    start = f"{architecture}: "
    table = beginning("model_tests", "model_tests", start)
    here = [name for name in table.names() if table.exists(name, version)]
    held = [table.value(name, version) for name in here]
    return tuple(
        ModelTest(name.removeprefix(start), str(row.get("in", "")), str(row.get("says", "")))
        for name, row in zip(here, held, strict=True)
    )


@cache
def _parts(text: str) -> tuple[list[ast.expr], list[ast.expr]]:
    """The parts of a test that must hold together: those that ask nothing of a layer, and those that do."""
    tree = ast.parse(text, mode="eval").body
    parts = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]
    layered = [part for part in parts if _asks(part, _LAYER)]
    return [part for part in parts if part not in layered], layered


def _asks(tree: ast.AST, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))


def _refusal(test: ModelTest, a: Architecture, s: Settings, gpu: Card | None) -> Refusal:
    ask = _asking(a, _names(a, s, gpu))
    ask.met(test.text, len(a.layers))
    part = _last(ast.parse(test.text, mode="eval").body)
    by = f"{test.by or a.name} of vLLM {s.version}"
    named = next((name for name in _OPTIONS if _asks(part, name)), None)
    if named in {_RANKS, "whole"}:
        sizes = [n for n in range(1, s.parallel.tp) if test not in _met(a, s, gpu, s.version, tp=n)]
        such = f", such as {', '.join(map(str, sizes[-3:]))}" if sizes else ""
        divided = _divided(part, ask)
        wanted = f"a divisor of {divided}{such}" if divided else f"another size{such}"
        if _asks(ast.parse(test.text), "whole") and not s.parallel.whole_tower and may_be_whole(a, s.version):
            wanted += "; or --mm-encoder-tp-mode data, which keeps the tower whole on each rank"
        return Refusal(_OPTIONS[_RANKS], str(s.parallel.tp), f"{wanted}: {by} ends with “{test.says}”")
    releases = beginning("model_tests", "model_tests", f"{a.name}: ").releases
    later = (release for release in releases if release > s.version and _tests(a.name, release))
    first = next((release for release in later if not _met(a, s, gpu, release, **{_OWN_FLASH: False})), None)
    upgrade = f"; {first} is the first that takes it" if first is not None else ""
    if named is not None:
        value = {"quant": "set", "lora": "set", "expert": "set"}.get(named, str(ask.named(named)))
        flag = _variable(s) if named == _BACKEND else _OPTIONS[named]
        return Refusal(flag, value, f"another value: {by} ends with “{test.says}”{upgrade}")
    nodes = [node for node in ast.walk(part) if isinstance(node, ast.expr)]
    keys = [(path, ask.value(node)) for node in nodes if (path := _path(node))]
    path, held = max(keys, key=lambda one: len(one[0]), default=(("config.json",), UNKNOWN))
    found = excerpt.value(held) if not isinstance(held, UnknownValue) else "as it is"
    return Refusal(".".join(path), found, f"another value: {by} ends with “{test.says}”{upgrade}")


def _last(tree: ast.expr) -> ast.expr:
    """What decides a test: the last of its parts, behind those that only lead there."""
    return _last(tree.values[-1]) if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else tree


@cache
def _heads_of_a_tower(text: str) -> bool:
    """Are these heads that the ranks must divide on any card?"""
    tree = ast.parse(text, mode="eval").body
    named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    keys = [_path(node) for node in ast.walk(_last(tree))]
    return named <= {"config", "tower", _RANKS, "whole"} and any(
        key[0] == "vision_config" and key[-1].endswith("heads") for key in keys if len(key) > 1
    )


def _divided(part: ast.expr, ask: KeyTest) -> str:
    """The number that the ranks do not divide, and the key that has it."""
    for node in ast.walk(part):
        match node:
            case ast.BinOp(left=of, op=ast.Mod()) if isinstance(number := ask.value(of), int) and _path(of):
                return f"{number}, {'.'.join(_path(of))}"
            case _:
                pass
    return ""


def _path(node: ast.AST) -> tuple[str, ...]:
    """The keys that lead to what a node stands for; none of what is no key of config.json."""
    match node:
        case ast.Subscript(value=ast.Name(id="config" | "text"), slice=ast.Constant(value=str() as key)):
            return (key,)
        case ast.Subscript(value=of, slice=ast.Constant(value=str() as key)) if inner := _path(of):
            return (*inner, key)
        case _:
            return ()

"""What a release's quantization refuses of a checkpoint's quantization_config, by its own tests of that object's keys
(history/checkpoints.json, read from each wheel by tools/releases/checkpoints.py).

The object is there in full, so a test is answered as Python would; what it asks beside the keys is unknown and refuses
nothing. Where a release may take the checkpoint by one of several methods, each of them must refuse it. A key that is
not there counts where a later release does without it: that is another form of a checkpoint, not a short description.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache

from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.parser.combinations import UNKNOWN, OptionTest, UnknownValue
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.support.card import methods
from vllm_doctor.records import excerpt

_CONFIG = "quantization_config"
_TYPES = {"dict": dict, "list": list, "tuple": tuple, "str": str, "int": int, "bool": bool, "float": float, "set": set}
_OF_TEXT = frozenset({"lower", "upper", "strip", "startswith", "endswith", "replace", "split"})
_MADE = {"len": len, "str": str, "int": int, "bool": bool, "list": tuple, "tuple": tuple, "set": tuple}
_SHORT = 60
_ABSENT = "no "
# AutoRound's own class, by its name while there is one and by its newer one since: no other takes such a checkpoint.
_ROUNDED = ("auto-round", "inc")


def refusals(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """One refusal, of the first test that holds, where nothing else is told of the checkpoint's format."""
    config = a.quantization
    if config is None or s.gguf is not None or s.quantization is not None:
        return
    told = _refused(a, s, s.version)
    if told is None or any(one.flag in {_CONFIG, "--quantization"} for one in s.refusals):
        return
    table = history("checkpoints", "checkpoints")
    later = (release for release in table.releases if release > s.version)
    first = next((release for release in later if _taken(a, s, release) and _refused(a, s, release) is None), None)
    found, needed = told
    if found.startswith(_ABSENT) and first is None:
        return  # what no release does without, a description has left out
    upgrade = f"; {first} is the first that takes it" if first is not None else ""
    method = config.text("quant_method") or "the checkpoint"
    yield Refusal(_CONFIG, f"{method}: {found}", f"{needed}{upgrade}")


def _taken(a: Architecture, s: Settings, version: Version) -> list[str]:
    """The methods by which a release may take the checkpoint."""
    asked, table = methods(a, s), history("models", "quantizations")
    rounded = "auto-round" in asked
    here = [method for method in (_ROUNDED if rounded else asked) if table.exists(method, version)]
    return here[:1] if rounded else here


def _refused(a: Architecture, s: Settings, version: Version) -> tuple[str, str] | None:
    """What each of these methods refuses; None where one of them does not."""
    config = a.quantization.values if a.quantization is not None else {}
    told = [_first(method, version, config) for method in _taken(a, s, version)]
    return None if not told or None in told else told[-1]


def _first(method: str, version: Version, config: Mapping[str, object]) -> tuple[str, str] | None:
    """What is found and what would do, of the first test of a method that holds."""
    for text in _tests(version).get(method, ()):
        ask, tree = KeyTest(config), _tree(text)
        if ask.value(tree) is True:
            return _told(tree, ask, version)
    return None


@lru_cache(maxsize=64)
def _tests(version: Version) -> Mapping[str, tuple[str, ...]]:
    """A release's tests by method; those of one that was not read stand only where the releases around it agree."""
    table = history("checkpoints", "checkpoints")
    made: dict[str, list[str]] = {}
    for name in table.names():
        if table.exists(name, version):
            method, _, test = name.partition(": ")
            made.setdefault(method, []).append(test)
    return {method: tuple(tests) for method, tests in made.items()}


@cache
def _tree(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


class KeyTest(OptionTest):
    """Answers a test as Python would, of one object of JSON."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self.config = config

    def named(self, name: str) -> object:
        """The object itself; nothing else has a name."""
        return self.config if name == "config" else UNKNOWN

    def shown(self, name: str) -> str:
        """The name as it stands."""
        return name

    def value(self, node: ast.expr) -> object:
        """As `OptionTest.value`, with keys, choices and plain calls."""
        match node:
            case ast.List(elts=parts):
                told = [self.value(part) for part in parts]
                return UNKNOWN if any(isinstance(one, UnknownValue) for one in told) else told
            case ast.IfExp(test=test, body=one, orelse=two):
                asked = self.value(test)
                return asked if isinstance(asked, UnknownValue) else self.value(one if asked else two)
            case ast.Subscript(value=of, slice=key):
                held, at = self.value(of), self.value(key)
                if isinstance(held, dict) and isinstance(at, str):
                    return held.get(at, UNKNOWN)
                if isinstance(held, list | tuple) and isinstance(at, int) and -len(held) <= at < len(held):
                    return held[at]
                return UNKNOWN
            case ast.Call(func=ast.Name(id="isinstance"), args=[of, kinds]):
                held, names = self.value(of), [n.id for n in ast.walk(kinds) if isinstance(n, ast.Name)]
                if isinstance(held, UnknownValue) or not set(names) <= _TYPES.keys():
                    return UNKNOWN
                return isinstance(held, tuple(_TYPES[name] for name in names))
            case ast.Call(func=func, args=args, keywords=[]):
                told = [self.value(arg) for arg in args]
                return UNKNOWN if any(isinstance(one, UnknownValue) for one in told) else self._called(func, told)
            case _:
                return super().value(node)

    def _called(self, func: ast.expr, args: list[object]) -> object:
        try:
            match func:
                case ast.Name(id=name) if name in _MADE and len(args) == 1:
                    return _MADE[name](args[0])  # type: ignore[operator]
                case ast.Attribute(value=of, attr="get"):
                    held = self.value(of)
                    return held.get(*args) if isinstance(held, dict) else UNKNOWN
                case ast.Attribute(value=of, attr=name) if name in _OF_TEXT:
                    held = self.value(of)
                    return getattr(held, name)(*args) if isinstance(held, str) else UNKNOWN
                case _:
                    return UNKNOWN
        except (TypeError, ValueError):
            return UNKNOWN


def _told(tree: ast.expr, ask: KeyTest, version: Version) -> tuple[str, str]:
    """What the keys of the part that decides hold, and what would do in their place."""
    held = list(_parts(tree, ask))
    part, listed = next(((one, many) for one in reversed(held) if (many := _listed(one, ask))), (held[-1], ()))
    keys = [(".".join(path), _at(ask.config, path)) for path in dict.fromkeys(_paths(part, ask))]
    there = [f"{key} {excerpt.value(value)}" for key, value in keys if not isinstance(value, UnknownValue)]
    shown = ", ".join(there or [f"{_ABSENT}{key}" for key, _ in keys])[:_SHORT]
    names = " or ".join(key for key, _ in keys)
    match part:
        case _ if listed:
            key = there[-1].partition(" ")[0] if there else names
            words = [str(one) for one in listed]
            return (
                shown,
                f"{key} {' or '.join(filter(None, [', '.join(words[:-1]), words[-1]]))}, which {version} takes",
            )
        case ast.UnaryOp(op=ast.Not(), operand=ast.Compare(left=ast.Constant(), ops=[ast.In()])):
            return shown, f"{names} in quantization_config, which {version} asks for"
        case _:
            return shown, f"a checkpoint of another form: {version} does not take this one"


def _listed(part: ast.expr, ask: KeyTest) -> tuple[object, ...]:
    """The values that a part wants; none for one of another form, such as how many a list has."""
    match part:
        case (
            ast.Compare(left=ast.Call(func=ast.Name()))
            | ast.UnaryOp(operand=ast.Compare(left=ast.Call(func=ast.Name())))
        ):
            return ()
        case ast.UnaryOp(op=ast.Not(), operand=ast.Compare(ops=[ast.In()], comparators=[many])):
            listed = ask.value(many)
            return tuple(listed) if isinstance(listed, list | tuple) else ()
        case (
            ast.UnaryOp(op=ast.Not(), operand=ast.Compare(ops=[ast.Eq()], comparators=[one]))
            | ast.Compare(ops=[ast.NotEq()], comparators=[one])
        ):
            return (ask.value(one),)
        case _:
            return ()


def _parts(node: ast.expr, ask: KeyTest) -> Iterator[ast.expr]:
    """The parts of a test that hold together."""
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            for part in parts:
                yield from _parts(part, ask)
        case ast.BoolOp(op=ast.Or(), values=parts):
            yield from _parts(next(part for part in parts if ask.value(part) is True), ask)
        case _:
            yield node


def _paths(node: ast.expr, ask: KeyTest) -> Iterator[tuple[str, ...]]:
    """The keys of the object that a part asks of, the longest path of each; of a choice those of what is chosen."""
    match node:
        case ast.IfExp(test=test, body=one, orelse=two):
            yield from _paths(one if ask.value(test) is True else two, ask)
        case ast.Compare(left=left, ops=[ast.In() | ast.Eq() | ast.NotEq()]) if not isinstance(left, ast.Constant):
            yield from _paths(left, ask)
        case ast.Subscript() | ast.Call(func=ast.Attribute(attr="get")) if path := _path(node):
            yield path
        case ast.Compare(left=ast.Constant(value=str() as key), ops=[ast.In()], comparators=[of]) if isinstance(
            of, ast.Name
        ) or _path(of):
            yield (*_path(of), key)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _paths(child, ask)  # type: ignore[arg-type]


def _path(node: ast.expr) -> tuple[str, ...]:
    match node:
        case ast.Subscript(value=of, slice=ast.Constant(value=str() as key)):
            inner = _path(of)
        case ast.Call(func=ast.Attribute(value=of, attr="get"), args=[ast.Constant(value=str() as key), *_]):
            inner = _path(of)
        case _:
            return ()
    return (*inner, key) if inner or isinstance(of, ast.Name) else ()


def _at(config: Mapping[str, object], path: tuple[str, ...]) -> object:
    held: object = config
    for key in path:
        if not isinstance(held, dict) or key not in held:
            return UNKNOWN
        held = held[key]
    return held

"""Which of its embedding and its head a model adapts, beside its linear layers: the names of `embedding_modules` in its
class, or in the language model that it is built from (lora/utils.py get_supported_lora_modules asks every module)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from releases.assigned import assigned
from releases.follow import Class, Follower
from releases.traits import LostError
from releases.wheel import Wheel

_NAMES = "embedding_modules"
LOST = "lost"


def read(wheel: Wheel) -> dict[str, str]:
    """Architecture → the names, with a space between; "lost" of one that cannot be followed; nothing of others."""
    if not any(_NAMES in text for text in wheel.files.values()):
        return {}
    return dict(_all(Follower(wheel)))


def _all(follower: Follower) -> Iterator[tuple[str, str]]:
    for name in follower.homes:
        try:
            found = sorted({one for part in follower.built(name) for one in _nearest(follower, part) or ()})
        except LostError:
            found = [LOST]
        if found:
            yield name, " ".join(found)


def _nearest(follower: Follower, part: Class) -> frozenset[str] | None:
    """The names that a class or the nearest of its bases sets; None where none does."""
    for module, node in (part, *follower.over(*part)):
        for key, value in assigned(node.body):
            if key == _NAMES and value is not None:
                return _keys(follower, module, value)
    return None


def _keys(follower: Follower, module: str, value: ast.expr) -> frozenset[str]:
    match value:
        case ast.Dict(keys=keys):
            return frozenset(str(k.value) for k in keys if isinstance(k, ast.Constant))
        case ast.List(elts=keys):
            return frozenset(str(k.value) for k in keys if isinstance(k, ast.Constant))
        case ast.Attribute(value=ast.Name(id=other), attr=attr) if attr == _NAMES:
            found = (_nearest(follower, one) for one in follower.classes.found(module, other, 12))
            return frozenset(name for names in found for name in names or ())
        case _:
            raise LostError(ast.unparse(value))

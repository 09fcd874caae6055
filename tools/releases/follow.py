"""The classes that an architecture is built from: from the registry through what a class names, from module to module,
and from a multimodal class to the language model that it has the registry build."""

from __future__ import annotations

import ast
from functools import cache

from releases.models import served
from releases.traits import LostError, Traits
from releases.wheel import Wheel

_MODELS = "vllm.model_executor.models"
# What a multimodal class calls to have its language model built, by the name of an architecture.
_BUILDS = "init_vllm_registered_model"
_DEPTH = 12

Class = tuple[str, ast.ClassDef]


class Follower:
    """The architectures of one wheel and their classes, each with its module."""

    def __init__(self, wheel: Wheel) -> None:
        self.classes = Traits(wheel)
        self.homes = {name: _home(*found) for name, found in served(wheel).items()}
        self.named = cache(self._named)
        self.bases = cache(self._bases)

    def start(self, architecture: str) -> list[Class]:
        """The classes that the registry may mean. Raises LostError."""
        return list(self.classes.found(*self.homes[architecture], _DEPTH))

    def parts(self, architecture: str) -> set[Class]:
        """All classes that are named, bases too. Raises LostError."""
        seen: set[Class] = set()
        left = self.start(architecture)
        while left:
            one = left.pop()
            if one not in seen:
                seen.add(one)
                left += [c for c in self.named(*one) if c not in seen]
        return seen

    def built(self, architecture: str) -> set[Class]:
        """Those of which there may be an object: a base alone is none, but has its own built. Raises LostError."""
        seen: set[Class] = set()
        left = self.start(architecture)
        while left:
            one = left.pop()
            if one in seen:
                continue
            seen.add(one)
            bases = self.over(*one)
            left += [c for part in (one, *bases) for c in self.named(*part) if c not in bases and c not in seen]
        return seen

    def over(self, module: str, node: ast.ClassDef) -> list[Class]:
        """All bases of a class, the nearest first."""
        made: list[Class] = []
        left = list(self.bases(module, node))
        while left:
            base = left.pop(0)
            if base not in made:
                made.append(base)
                left += self.bases(*base)
        return made

    def _named(self, module: str, node: ast.ClassDef) -> tuple[Class, ...]:
        """The classes of models that a class names. Raises LostError for one that has any model built within it."""
        names = sorted({n.id for n in ast.walk(node) if isinstance(n, ast.Name)})
        made = [one for name in names for one in self._of_models(module, name)]
        if _BUILDS in names:
            said = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
            inner = sorted(said & set(self.homes))
            if not inner:
                raise LostError(node.name)
            for name in inner:
                made += self.start(name)
        return tuple(made)

    def _bases(self, module: str, node: ast.ClassDef) -> tuple[Class, ...]:
        names = [base.id for base in node.bases if isinstance(base, ast.Name)]
        return tuple(one for name in names for one in self._of_models(module, name))

    def _of_models(self, module: str, name: str) -> list[Class]:
        try:
            found = self.classes.found(module, name, _DEPTH)
        except LostError:
            return []
        return [(home, one) for home, one in found if ".models." in f"{home}."]


def _home(module: str, cls: str) -> tuple[str, str]:
    return module if module.startswith("vllm.") else f"{_MODELS}.{module}", cls

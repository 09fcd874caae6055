"""What a release's quantizations refuse of a checkpoint's quantization_config: the tests behind `raise` and `assert`
lines of each `from_config` and of the class that it makes (model_executor/layers/quantization).

A test is written in the keys of that object: `(config['bits'] not in (2, 3, 4, 8))`, behind each test that it stands
behind. Its name begins with the method: `inc: …`. What asks for a layer, the card or another library is left out.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache

from releases.executed import UNKNOWN, Executed, Family
from releases.wheel import Wheel

_FOLDER = "vllm/model_executor/layers/quantization"
_CONFIG = "config"
_HOPS = 6


class Checkpoints(Executed):
    """The quantizations of one wheel."""

    def __init__(self, wheel: Wheel) -> None:
        super().__init__()
        self.wheel = wheel
        self.decided: set[int] = set()  # the lines that raise behind a test that was written down, by their nodes' ids
        self.table = cache(self._table)

    def read(self) -> dict[str, dict[str, object]]:
        """Method and test → nothing more."""
        made: dict[str, dict[str, object]] = {}
        start = f"{_FOLDER}/__init__.py"
        for method, name in sorted(self._methods(start).items()):
            family = self.class_named(start, name)
            if family is None:
                continue
            self.found = []
            self.start(family, "from_config", [_CONFIG])
            for test, line in self.tests():
                if any(isinstance(n, ast.Name) and n.id == _CONFIG for n in ast.walk(ast.parse(test))):
                    made[f"{method}: {test}"] = {}
                    self.decided.add(id(line))
        return dict(sorted(made.items()))

    def _methods(self, path: str) -> dict[str, str]:
        """Each method with the name of its class."""
        made: dict[str, str] = {}
        for node in ast.walk(self.wheel.tree(path)) if path in self.wheel.files else ():
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(value, ast.Name) and value.id.endswith("Config"):
                        made[str(key.value)] = value.id
        return made

    def special(self, called: str, args: Sequence[str], behind: tuple[str, ...], line: ast.stmt) -> str | None:
        """QuantizationConfig.get_from_keys, which raises where none of the keys is there, and get_from_keys_or."""
        if called not in {"get_from_keys", "get_from_keys_or"} or len(args) < 2:
            return None
        held, listed = args[:2]
        keys = ast.literal_eval(listed) if listed != UNKNOWN else ()
        if held == UNKNOWN or not keys or not all(isinstance(key, str) for key in keys):
            return UNKNOWN
        if called == "get_from_keys":
            absent = " and ".join(f"(not ({key!r} in {held}))" for key in keys)
            self.met((*behind, f"({absent})"), line)
        made = args[2] if called == "get_from_keys_or" and len(args) > 2 else f"{held}[{keys[-1]!r}]"
        for key in reversed(keys if called == "get_from_keys_or" else keys[:-1]):
            made = f"({held}[{key!r}] if ({key!r} in {held}) else {made})"
        return made

    def class_named(self, module: str, name: str) -> Family | None:
        """The class that a name of a module stands for, with its bases."""
        found = self._at(module, name, _HOPS)
        if found is None or not isinstance(found[1], ast.ClassDef):
            return None
        home, node = found[0], found[1]
        bases = (self.class_named(home, base.id) for base in node.bases if isinstance(base, ast.Name))
        return Family(home, node, tuple(base for base in bases if base is not None))

    def function_named(self, module: str, name: str) -> tuple[str, ast.FunctionDef] | None:
        """The function that a name of a module stands for."""
        found = self._at(module, name, _HOPS)
        return (found[0], found[1]) if found is not None and isinstance(found[1], ast.FunctionDef) else None

    def constant_named(self, module: str, name: str) -> tuple[str, ast.expr] | None:
        """What a module gives a name."""
        found = self._at(module, name, _HOPS)
        return (found[0], found[1]) if found is not None and isinstance(found[1], ast.expr) else None

    def _at(self, module: str, name: str, hops: int) -> tuple[str, ast.AST] | None:
        if module not in self.wheel.files or not hops:
            return None
        held = self.table(module).get(name)
        if isinstance(held, tuple):
            return self._at(held[0], held[1], hops - 1)
        return (module, held) if held is not None else None

    def _table(self, module: str) -> dict[str, ast.AST | tuple[str, str]]:
        """What the names of a module stand for; a name that is given twice stands for nothing."""
        made: dict[str, ast.AST | tuple[str, str]] = {}
        twice: set[str] = set()
        for node in ast.walk(self.wheel.tree(module)):
            if isinstance(node, ast.ImportFrom):
                home = self._home(node, module)
                made |= {one.asname or one.name: (home, one.name) for one in node.names if home}
        for node in self.wheel.tree(module).body:
            match node:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                    held: ast.AST = node
                case ast.Assign(targets=[ast.Name(id=name)], value=held):
                    pass
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as held):
                    pass
                case _:
                    continue
            if name in made and not isinstance(made[name], tuple):
                twice.add(name)
            made[name] = held
        return {name: held for name, held in made.items() if name not in twice}

    def _home(self, node: ast.ImportFrom, module: str) -> str:
        parts = (node.module or "").split(".") if node.module else []
        if node.level:
            parts = [*module.split("/")[: -node.level], *parts]
        plain = "/".join(parts)
        return next((path for path in (f"{plain}.py", f"{plain}/__init__.py") if path in self.wheel.files), "")


def read(wheel: Wheel) -> dict[str, dict[str, object]]:
    """The tests of a release."""
    return Checkpoints(wheel).read()

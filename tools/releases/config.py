"""Dataclass fields and type aliases of vLLM's configuration: what an option's type, default and choices resolve to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from releases.assigned import assigned

Hint = tuple[str, tuple[object, ...]]  # ("int", ()), ("Literal", ("a", "b")), ("list", ("int",)), ("None", ())


class Classes:
    """Fields of all configuration classes, and what each `x_kwargs` variable was made of."""

    def __init__(self, modules: Iterable[ast.Module]) -> None:
        self.fields: dict[str, dict[str, tuple[str | None, str | None]]] = {}  # class → field → (type, default)
        self.bases: dict[str, tuple[str, ...]] = {}
        self.types: dict[str, str] = {}
        self.tables: dict[str, str] = {}
        self.listed_by_validator: set[str] = set()  # fields of which the class takes what a Literal lists, no more
        for module in modules:
            for node in module.body:
                self._top(node)
            for deep in ast.walk(module):
                self._table(deep)
            self.listed_by_validator |= set(_listed_by_validator(module))

    def _table(self, node: ast.AST) -> None:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Name)
            and node.value.func.id == "get_kwargs"
            and node.value.args
        ):
            self.tables[node.targets[0].id] = ast.unparse(node.value.args[0])

    def _top(self, node: ast.stmt) -> None:
        if isinstance(node, ast.ClassDef):
            listed = self.fields.setdefault(node.name, {})
            self.bases[node.name] = tuple(ast.unparse(base) for base in node.bases)
            for each in node.body:
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    default = None if each.value is None else ast.unparse(each.value)
                    listed[each.target.id] = (ast.unparse(each.annotation), default)
        for name, value in assigned([node]):
            if value is not None:
                self.types[name] = ast.unparse(value)

    def listed(self, name: str, depth: int = 6) -> dict[str, tuple[str | None, str | None]]:
        """A class's fields with those of its bases, the bases' first."""
        if depth == 0 or name not in self.fields:
            return {}
        made: dict[str, tuple[str | None, str | None]] = {}
        for base in self.bases.get(name, ()):
            made |= self.listed(base, depth - 1)
        return made | self.fields[name]

    def default(self, source: str | None, depth: int = 4) -> str | None:
        """`ModelConfig.dtype` and `get_field(ModelConfig, "dtype")` → the default of that field; else the source."""
        if source is None or depth == 0:
            return source
        named = re.fullmatch(r"(\w+)\.(\w+)", source) or re.fullmatch(r"get_field\((\w+), ['\"](\w+)['\"]\)", source)
        if named and named[2] in self.listed(named[1]):
            return self.default(self.listed(named[1])[named[2]][1], depth - 1)
        inner = re.match(r"Field\(default=([^,()]+|'[^']*')[,)]", source)
        return inner[1] if inner else source

    def owner(self, name: str, table: str = "") -> tuple[str | None, str | None] | None:
        """(type, default) of a field as the class that owns it has it; `table` is the variable that holds its fields
        (`scheduler_kwargs = get_kwargs(SchedulerConfig)`)."""
        said = self.listed(self.tables.get(table, ""))
        if name in said:
            return said[name]
        return next((own[name] for cls, own in self.fields.items() if cls.endswith("Config") and name in own), None)

    def hints(self, source: str | None) -> set[Hint]:
        """The parts of a type as vLLM's own `get_type_hints` splits it: unions apart, `Annotated` peeled."""
        if source is None:
            return set()
        try:
            return self._hints(ast.parse(source.strip("'\""), mode="eval").body, 8)
        except SyntaxError:
            return set()

    def _hints(self, node: ast.expr, depth: int) -> set[Hint]:
        if depth == 0:
            return {("?", ())}
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self._hints(node.left, depth) | self._hints(node.right, depth)
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                return self.hints(node.value)
            return {("None", ())} if node.value is None else {("?", ())}
        if isinstance(node, ast.Attribute):
            return {(node.attr, ())}
        if isinstance(node, ast.Name):
            alias = self.types.get(node.id)
            if alias is None:
                return {(node.id, ())}
            return self._hints(ast.parse(alias, mode="eval").body, depth - 1)
        if isinstance(node, ast.Subscript):
            name = ast.unparse(node.value).rpartition(".")[2]
            inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if name in {"Optional", "Union"}:
                found = {hint for each in inner for hint in self._hints(each, depth - 1)}
                return found | ({("None", ())} if name == "Optional" else set())
            if name in {"Annotated", "SkipValidation", "InitVar", "ClassVar", "Final"}:
                return self._hints(inner[0], depth - 1)
            if name == "Literal":
                return {("Literal", tuple(v for each in inner for v in self._values(each, depth - 1)))}
            return {
                (name.lower() if name in {"List", "Tuple", "Set", "Dict"} else name, tuple(map(ast.unparse, inner)))
            }
        if isinstance(node, ast.Call):  # Annotated types are made by functions in places; what they return is not known
            return {("?", ())}
        return {("?", ())}

    def _values(self, node: ast.expr, depth: int) -> list[object]:
        if isinstance(node, ast.Constant):
            return [node.value]
        return [v for name, values in self._hints(node, depth) if name == "Literal" for v in values]


def _listed_by_validator(module: ast.Module) -> Iterator[str]:
    """Fields whose validator raises for what a list made of a Literal lacks: `NAMES = list(get_args(Names))`.

    The test is `value not in NAMES`, or a function of the module that returns `value in NAMES`.
    """
    lists = {name for name, value in assigned(module.body) if value is not None and "get_args(" in ast.unparse(value)}
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    asking = {f.name for f in functions if any(_asks(node, lists) for node in f.body if isinstance(node, ast.Return))}
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and any(
            isinstance(part, ast.If) and isinstance(part.body[0], ast.Raise) and _asks(part.test, lists | asking)
            for part in node.body
        ):
            for call in node.decorator_list:
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "field_validator":
                    yield from (a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str))


def _asks(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))

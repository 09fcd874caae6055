"""What the keys of a release's JSON options may be, and in which numbers its options may lie: from the classes that
pydantic validates, so that what stands here is refused by the release itself.

`--attention-config.backend FLASH` and `--attention-config '{"backend": "FLASH"}'` are one key of one class. A key whose
validator may change a value before it is judged has no entry, but for one that looks a name up in an enumeration.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from releases.assigned import assigned
from releases.config import Classes
from releases.wheel import Wheel

_CONFIGS = r"vllm/config(/\w+)?\.py"
_UTILS = "vllm/config/utils.py"
_BOUNDS = ("ge", "gt", "le", "lt")
# What pydantic makes of JSON: a tuple and a set are written as a list.
_PLAIN = {"bool": "bool", "str": "str", "list": "list", "tuple": "list", "set": "list", "dict": "dict"}


@dataclass(frozen=True)
class Validated:
    """A class that pydantic validates; `closed` where it refuses a key that it has not got."""

    node: ast.ClassDef
    module: ast.Module
    closed: bool


class Fields:
    """The keys of a release's configuration, class by class."""

    def __init__(self, wheel: Wheel) -> None:
        self._wheel = wheel
        self._classes = Classes([wheel.tree(path) for path in wheel.paths(_CONFIGS)])
        self._found = _validated(wheel)

    def section(self, options: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
        """`AttentionConfig` and each `AttentionConfig.backend` → what is known of it: of the classes that options take
        (`config`), and of those that are keys of these."""
        made: dict[str, dict[str, object]] = {}
        todo = [str(option["config"]) for option in options.values() if "config" in option]
        while todo:
            name = todo.pop()
            if name in self._found and name not in made:
                made[name] = {"closed": True} if self._found[name].closed else {}
                for key in self._classes.listed(name):
                    made[f"{name}.{key}"] = said = self.key(name, key)
                    todo += [str(said["config"])] if "config" in said else []
        return {name: made[name] for name in sorted(made)}

    def key(self, name: str, key: str) -> dict[str, object]:
        """What is known of a class's key: `choices` (`any_case` where its case does not count), `type` and `range` of a
        number, `config` for a class of its own; nothing for a class that pydantic does not validate."""
        listed = self._classes.listed(name)
        if name not in self._found or key not in listed:
            return {}
        kind, default = listed[key]
        if kind is None or "SkipValidation" in kind:
            return {}
        first = list(_first_validators(self._found[name].node, key))
        if first:
            words = _looked_up(self._wheel, self._found[name].module, first)
            return {"choices": words, "any_case": True} if words else {}
        return self._by_type(name, kind, default)

    def _by_type(self, name: str, kind: str | None, default: str | None) -> dict[str, object]:
        hints = self._classes.hints(kind)
        own = {hint[0] for hint in hints} - {"None"}
        made: dict[str, object] = {}
        if own == {"Literal"}:
            literals = [v for hint, values in hints if hint == "Literal" for v in values if v is not None]
            made["choices"] = list(dict.fromkeys(literals))
        elif len(own) == 1:
            one = next(iter(own))
            values = [value for _, value in enumeration(self._wheel, self._found[name].module, one)]
            if one in {"int", "float"}:
                made |= {"type": one} | ({"range": limits} if (limits := bounds(default)) else {})
            elif one in _PLAIN:
                made["type"] = _PLAIN[one]
            elif one in self._found:
                made["config"] = one
            elif values and None not in values:
                made["choices"] = values
        return made | ({"optional": True} if made and "None" in {hint[0] for hint in hints} else {})


def _validated(wheel: Wheel) -> dict[str, Validated]:
    """The configuration's classes that pydantic validates. One with a validator of the whole that runs first is left
    out: it may change anything."""
    utils = wheel.files.get(_UTILS, "")
    pydantic = "from pydantic.dataclasses import dataclass" in utils
    closing = re.search(r"ConfigDict\([^)]*extra=['\"]forbid['\"]", utils) is not None
    made: dict[str, Validated] = {}
    for path in wheel.paths(_CONFIGS):
        module = wheel.tree(path)
        own = "from pydantic.dataclasses import dataclass" in wheel.files[path]
        for node in module.body:
            if isinstance(node, ast.ClassDef):
                said = {re.match(r"\w+", ast.unparse(d))[0] for d in node.decorator_list}  # type: ignore[index]
                if (("config" in said and pydantic) or ("dataclass" in said and own)) and not _changed_whole(node):
                    made[node.name] = Validated(node, module, "config" in said and pydantic and closing)
    return made


def _changed_whole(node: ast.ClassDef) -> bool:
    return any(
        "model_validator" in ast.unparse(d) and "after" not in ast.unparse(d)
        for line in node.body
        if isinstance(line, ast.FunctionDef)
        for d in line.decorator_list
    )


def bounds(default: str | None) -> dict[str, object]:
    """`ge`, `gt`, `le` and `lt` of a `Field(…)`, as far as they are plain numbers."""
    if default is None or not default.startswith("Field("):
        return {}
    call = ast.parse(default, mode="eval").body
    given = call.keywords if isinstance(call, ast.Call) else []
    made: dict[str, object] = {}
    for keyword in given:
        if keyword.arg in _BOUNDS:
            try:
                made[keyword.arg] = ast.literal_eval(keyword.value)
            except ValueError:
                continue
    return made


def _first_validators(node: ast.ClassDef, key: str) -> Iterator[ast.FunctionDef]:
    """The functions that see a key's value before pydantic judges it."""
    for line in node.body:
        for call in line.decorator_list if isinstance(line, ast.FunctionDef) else ():
            text = ast.unparse(call)
            given = call.args if isinstance(call, ast.Call) else []
            names = {each.value for each in given if isinstance(each, ast.Constant)}
            handed_on = "skip_none" in getattr(line, "name", "")  # None alone, past the judge
            first = text.startswith("field_validator") and "mode='after'" not in text and bool(names & {key, "*"})
            if isinstance(line, ast.FunctionDef) and first and not handed_on:
                yield line


def _looked_up(wheel: Wheel, module: ast.Module, functions: list[ast.FunctionDef]) -> list[object]:
    """The names of `return Enumeration[value.upper()]`, and the words beside them that the function itself takes."""
    made: list[object] = []
    for function in functions:
        looked = re.findall(r"return (\w+)\[value\.upper\(\)\]", ast.unparse(function))
        if len(looked) != 1:
            return []
        made += [name for name, _ in enumeration(wheel, module, looked[0])]
        made += re.findall(r"value\.lower\(\) == '(\w+)'", ast.unparse(function))
    return list(dict.fromkeys(made))


def enumeration(wheel: Wheel, module: ast.Module, name: str) -> list[tuple[str, object]]:
    """(name, value) of the members of an enumeration that a module has or imports, None for a value that is computed;
    empty for what is none."""
    where = [module]
    for node in module.body:
        if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names):
            path = f"{node.module.replace('.', '/')}.py"
            where += [wheel.tree(path)] if path in wheel.files else []
    for each in where:
        for node in each.body:
            if (
                isinstance(node, ast.ClassDef)
                and node.name == name
                and any(ast.unparse(base).endswith("Enum") for base in node.bases)
            ):
                return [
                    (member, value.value if isinstance(value, ast.Constant) else None)
                    for member, value in assigned(node.body)
                    if value is not None and not member.startswith("_")
                ]
    return []

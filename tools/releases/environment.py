"""The variables that vllm/envs.py reads, with the defaults that its annotations state and what it does with a text.

`reads` says that a variable's text is turned into a number or read as JSON, `choices` which texts it allows. They are
written down of a release that reads all of its variables as it starts (`enable_envs_cache`): one that it cannot read
ends that start.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from releases.wheel import Wheel

_NAME = re.compile(r"[A-Z][A-Z0-9_]+")
_LISTS = {"env_with_choices", "env_list_with_choices", "env_set_with_choices"}
_ASKED = re.compile(r"os\.(getenv|environ\.get)")
_LOGGER = r"vllm/logger\.py"

Functions = Mapping[str, ast.FunctionDef]


def read(wheel: Wheel) -> dict[str, dict[str, object]]:
    """Every variable; none for a release from before vllm/envs.py."""
    if "vllm/envs.py" not in wheel.files:
        return {}
    module = wheel.tree("vllm/envs.py")
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    stated: dict[str, str | None] = {}
    names: set[str] = set()
    said: dict[str, dict[str, object]] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id.isupper():
            stated[node.target.id] = None if node.value is None else ast.unparse(node.value)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str) and _NAME.fullmatch(key.value):
                    names.add(key.value)
                    if (kind := _reads(key.value, value, functions)) and _read_at_start(functions):
                        said.setdefault(key.value, {})["reads"] = kind
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _LISTS:
            said |= dict(_listed(node))
    for name in _levels(wheel):
        if name in names:
            said.setdefault(name, {})["reads"] = "level"
    return {name: {"default": stated.get(name), **said.get(name, {})} for name in sorted(names)}


def _read_at_start(functions: Functions) -> bool:
    """Does the release read all variables once, as the engine starts?"""
    cache = functions.get("enable_envs_cache")
    return cache is not None and any(
        isinstance(node, ast.For) and ast.unparse(node.iter) == "environment_variables" for node in ast.walk(cache)
    )


def _listed(call: ast.Call) -> Iterator[tuple[str, dict[str, object]]]:
    """The texts of `env_with_choices(NAME, default, [..], case_sensitive)`; `many` where they stand between commas."""
    given = dict(zip(("env_name", "default", "choices", "case_sensitive"), call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    name, listed, case = given.get("env_name"), given.get("choices"), given.get("case_sensitive")
    if isinstance(name, ast.Constant) and isinstance(listed, ast.List | ast.Tuple):
        texts = [v.value for v in listed.elts if isinstance(v, ast.Constant)]
        if texts and len(texts) == len(listed.elts):
            record: dict[str, object] = {"choices": texts}
            if isinstance(case, ast.Constant) and case.value is False:
                record["any_case"] = True
            if isinstance(call.func, ast.Name) and call.func.id != "env_with_choices":
                record["many"] = True
            yield str(name.value), record


def _reads(name: str, value: ast.expr, functions: Functions) -> str:
    """ "int", "float" or "json": what the text of a variable is turned into, by `int(os.getenv(NAME))`, by a function
    that is handed it, or in a function that asks for it itself."""
    if isinstance(value, ast.Name) and value.id in functions:
        return _turned(functions[value.id], _own_names(functions[value.id], name), name)
    if not isinstance(value, ast.Lambda):
        return ""
    for call in ast.walk(value.body):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.args and _asks(call.args[0], name):
            helper = functions.get(call.func.id)
            if call.func.id in {"int", "float"}:
                return call.func.id
            if helper is not None and helper.args.args:
                return _turned(helper, {helper.args.args[0].arg}, name)
    return ""


def _own_names(function: ast.FunctionDef, name: str) -> set[str]:
    """The variables of a function that hold the text of an environment variable."""
    return {
        node.targets[0].id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _asks(node.value, name)
    }


def _turned(function: ast.FunctionDef, holders: set[str], name: str) -> str:
    """What a function turns the text into that stands in one of these variables."""
    text = ast.unparse(function)
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and call.args:
            inner = call.args[0]
            if (isinstance(inner, ast.Name) and inner.id in holders) or _asks(inner, name):
                done = ast.unparse(call.func)
                if done in {"int", "float"}:
                    return done
                if done == "json.loads":
                    return "json-or-file" if "open(" in text else "json"
    return ""


def _asks(node: ast.expr, name: str) -> bool:
    """Is it the text of this variable: `os.getenv(NAME, …)`, `os.environ[NAME]`, a number's `int(…)` around it?"""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "strip":
        return _asks(node.func.value, name)
    if isinstance(node, ast.Call) and ast.unparse(node.func) in {"int", "float"} and node.args:
        return _asks(node.args[0], name)
    if isinstance(node, ast.Call) and _ASKED.fullmatch(ast.unparse(node.func)) and node.args:
        return isinstance(node.args[0], ast.Constant) and node.args[0].value == name
    return (
        isinstance(node, ast.Subscript)
        and ast.unparse(node.value) == "os.environ"
        and isinstance(node.slice, ast.Constant)
        and node.slice.value == name
    )


def _levels(wheel: Wheel) -> Iterator[str]:
    """Variables that are a level of Python's logging as they stand: `"level": envs.VLLM_LOGGING_LEVEL`."""
    for path in wheel.paths(_LOGGER):
        for node in ast.walk(wheel.tree(path)):
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == "level":
                        yield ast.unparse(value).rpartition(".")[2]

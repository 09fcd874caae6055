"""Options that a release refuses together: the tests behind its own `raise`, where they ask for nothing but options.

`if args.enable_log_outputs and not args.enable_log_requests: raise` is written down as the expression that it tests, in
the options' names. A test that asks for the model, the card or a function is left out, and so is one of a field that
the release may change first.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from releases.config import Classes
from releases.wheel import Wheel

_FRONT = r"vllm/entrypoints/.*\.py"
_START = "validate_parsed_serve_args"
_ARG_UTILS = "vllm/engine/arg_utils.py"
_CONFIGS = r"vllm/config(/\w+)?\.py"
_DEPTH = 6

# The name of what a field or an argument is asked by, or None where nobody knows what it holds.
Named = Callable[[ast.expr], str | None]


@dataclass(frozen=True)
class _Place:
    """Where tests are looked for: what names mean there, and functions that it may call."""

    named: Named
    functions: Mapping[str, ast.FunctionDef]


def read(
    wheel: Wheel, options: Mapping[str, Mapping[str, object]], fields: Mapping[str, object]
) -> dict[str, dict[str, object]]:
    """Expression → of which class it is (none: of the options themselves), and the defaults of that class's keys."""
    taken = {name.replace("-", "_") for name in options}
    made: dict[str, dict[str, object]] = {test: {} for test in _of_arguments(wheel, taken)}
    classes = Classes([wheel.tree(path) for path in wheel.paths(_CONFIGS)])
    nodes = {
        node.name: node
        for path in wheel.paths(_CONFIGS)
        for node in wheel.tree(path).body
        if isinstance(node, ast.ClassDef)
    }
    handed = handed_on(wheel, taken)
    for name, node in nodes.items():
        if name in fields:
            known = _unchanged(node, classes)
            for test in _of_class(node, {key: key for key in known}):
                defaults = {key: known[key] for key in sorted(_names(test)) if key in known}
                made[f"{name}: {test}"] = {"class": name, "defaults": defaults}
        if name in handed:
            known = _unchanged(node, classes)
            made |= {test: {} for test in _of_class(node, {k: v for k, v in handed[name].items() if k in known})}
    return {test: made[test] for test in sorted(made)}


def _of_arguments(wheel: Wheel, taken: set[str]) -> Iterator[str]:
    functions: dict[str, ast.FunctionDef] = {}
    for path in wheel.paths(_FRONT):
        if "def validate_" in wheel.files[path]:
            for node in wheel.tree(path).body:
                if isinstance(node, ast.FunctionDef) and [a.arg for a in node.args.args] == ["args"]:
                    functions.setdefault(node.name, node)

    def named(node: ast.expr) -> str | None:
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "getattr"
            and len(node.args) > 1
            and ast.unparse(node.args[0]) == "args"
            and isinstance(node.args[1], ast.Constant)
        ):
            return str(node.args[1].value) if node.args[1].value in taken else None
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "args":
            return node.attr if node.attr in taken else None
        return None

    if _START in functions:
        yield from _tests(functions[_START].body, [], _Place(named, functions), _DEPTH)


def _of_class(node: ast.ClassDef, known: Mapping[str, str]) -> Iterator[str]:
    """The tests of a class's validators of the whole, which see what was given."""

    def named(part: ast.expr) -> str | None:
        own = isinstance(part, ast.Attribute) and ast.unparse(part.value) == "self"
        return known.get(part.attr) if own else None  # type: ignore[attr-defined]

    for line in node.body:
        if isinstance(line, ast.FunctionDef) and _validates(line):
            yield from _tests(line.body, [], _Place(named, {}), _DEPTH)


def _validates(function: ast.FunctionDef) -> bool:
    said = [ast.unparse(d) for d in function.decorator_list]
    return function.name == "__post_init__" or any("model_validator" in text and "after" in text for text in said)


def _unchanged(node: ast.ClassDef, classes: Classes) -> dict[str, str | None]:
    """Field → default of those that the class leaves as they were given and whose default is plain."""
    text = ast.unparse(node)
    made: dict[str, str | None] = {}
    for name, (_, default) in classes.listed(node.name).items():
        if name.startswith("_"):
            continue
        plain = classes.default(default)
        validated = re.search(rf"field_validator\([^)]*'({name}|\*)'", text)
        changed = re.search(rf"\bself\.{name}(: [^=\n]+)? ([-+*/]?=) |setattr\(self, '{name}'", text)
        if plain is not None and not changed and not validated and literal(plain):
            made[name] = plain
    return made


def literal(text: str) -> bool:
    """Is it a plain value of Python?"""
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return False
    return True


def handed_on(wheel: Wheel, taken: set[str], *, as_given: bool = True) -> dict[str, dict[str, str]]:
    """Class → its field → the option that it is made of as it was given: `ParallelConfig(nnodes=self.nnodes, …)`; not
    `as_given`: what the start itself changed before, too."""
    module = wheel.tree(_ARG_UTILS)
    own = re.findall(r"\bself\.(\w+)(?:: [^=\n]+)? [-+*/]?= ", ast.unparse(module)) if as_given else ()
    changed = set(own)
    made: dict[str, dict[str, str]] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.endswith("Config"):
            for given in node.keywords:
                value = given.value
                if (
                    given.arg
                    and isinstance(value, ast.Attribute)
                    and ast.unparse(value.value) == "self"
                    and value.attr in taken - changed
                ):
                    made.setdefault(node.func.id, {})[given.arg] = value.attr
    return made


def _tests(lines: list[ast.stmt], behind: list[str], place: _Place, depth: int) -> Iterator[str]:
    """The tests of some lines, each with those that it stands behind."""
    behind = list(behind)
    for line in lines:
        if depth and isinstance(line, ast.Expr) and isinstance(line.value, ast.Call):
            called = place.functions.get(ast.unparse(line.value.func))
            if called is not None and [ast.unparse(a) for a in line.value.args] == ["args"]:
                yield from _tests(called.body, behind, place, depth - 1)
        elif isinstance(line, ast.If):
            test = _written(line.test, place.named)
            ends = line.body[-1]
            if test is not None and isinstance(line.body[0], ast.Raise):
                yield " and ".join([*behind, test])
            elif test is not None and depth:
                yield from _tests(line.body, [*behind, test], place, depth - 1)
            if isinstance(ends, ast.Return):
                if test is None:
                    if _only_of_others(line.test):
                        continue
                    return
                behind.append(f"(not {test})")
        elif isinstance(line, ast.Return | ast.Raise):
            return


def _only_of_others(test: ast.expr) -> bool:
    """Does it leave alone what is no `vllm serve`?"""
    return "args.subparser not in ('serve'" in ast.unparse(test)


def _written(node: ast.expr, named: Named) -> str | None:
    """A test in the options' names; None where it asks for anything else."""
    made: str | None = None
    name = named(node)
    if name is not None:
        made = name
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str | None):
        made = repr(node.value)
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        parts = [_written(each, named) for each in node.elts]
        made = f"({', '.join(map(str, parts))},)" if parts and None not in parts else None
    elif isinstance(node, ast.BoolOp):
        parts = [_written(each, named) for each in node.values]
        word = " and " if isinstance(node.op, ast.And) else " or "
        made = f"({word.join(map(str, parts))})" if None not in parts else None
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        inner = _written(node.operand, named)
        made = None if inner is None else f"(not {inner})" if isinstance(node.op, ast.Not) else f"-{inner}"
    elif isinstance(node, ast.Compare):
        parts = [_written(each, named) for each in (node.left, *node.comparators)]
        if None not in parts:
            whole = ast.Compare(ast.Name("a"), node.ops, [ast.Name("a") for _ in node.comparators])
            signs = re.split(r"\ba\b", ast.unparse(whole))[1:-1]
            made = "(" + "".join(x for pair in zip(parts, [*signs, ""], strict=True) for x in pair if x) + ")"
    return made


def _names(test: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(test, mode="eval")) if isinstance(node, ast.Name)}

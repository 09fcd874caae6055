"""Which option or variable must be on for a line of vLLM to run (knowledge/behind/vllm.json).

A test above a line, a `return` before it, the tests above every call of its function and above every use of its class:
`if self.speculative_config:` holds wherever the drafter's code fails. Names are followed to where they were set, an
attribute that begins as None or False to the lines that set it, a function to what it returns. What stays unknown
asks for nothing, so a line has at most too few rows.
"""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from releases import options
from releases.calls import Function, parameters
from releases.checks import handed_on
from releases.deciders import Scope, attributes, held, part_of, set_before
from releases.fields import Fields
from releases.functions import ASIDE
from releases.guards import SIGNS, named, value_of
from releases.walked import Place, Test, Walked, bare
from releases.wheel import Wheel

FILE = Path(__file__).resolve().parents[2] / "vllm_doctor" / "knowledge" / "behind" / "vllm.json"
_SOURCE = "vLLM's wheels, read by tools/release.py behind"
_ARGUMENTS = "vllm/engine/arg_utils.py"
_CONFIGS = r"vllm/config(/\w+)?\.py"
_WHOLE = {"VllmConfig", "EngineConfig"}
# Of models and kernels only what they name counts: nothing that a launch turns on is decided there. Classes of the
# configuration they name as types.
_NAMED_ONLY = re.compile(r"vllm/(?:(?:model_executor/)?models/|transformers_utils/configs/)|vllm/.*/(?:ops|kernels)/")
_NAME = re.compile(r"\b(?!\w+Config\b)[A-Za-z_]\w{3,}")
_PARTS = ("speculative_config", "lora_config")
_DEPTH, _ROUNDS, _BASES = 5, 20, 12
# A name that more functions have tells of none of them who calls it.
_SAME_NAME = 2
# So many calls of a function tell what it is given.
_CALLERS = 6
# What a row may end with: the way in which something is on. Another way in which it is off is nobody's feature.
_ON = (" on", " is not None")
_ASKED = re.compile(r" (?:>=? \d+|== ['\"][^'\"]+['\"]|in [\[({].*)$")
_CONSTANT = re.compile(r"[A-Z]\w*\.[A-Z_]+")
_TO_OFF = ("disable-", "enforce-", "skip-")

Rows = frozenset[str]
_NONE: Rows = frozenset()
_Value = tuple[ast.expr, Place]


class Reader:
    """Reads each content once: most files are the same in the next release."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], Walked] = {}

    def release(self, wheel: Wheel) -> dict[str, dict[str, str]]:
        """The rows of a release, by the path without `vllm/` and by the function's name."""
        here = {(path, text): path for path, text in wheel.files.items() if path.startswith("vllm/")}
        self._before = {key: self._before.get(key) or _of_file(wheel, path) for key, path in here.items()}
        return Behind(wheel, options.read(wheel, Fields(wheel)), self._before.values()).rows()


def _of_file(wheel: Wheel, path: str) -> Walked:
    made = Walked()
    if _NAMED_ONLY.match(path) or ASIDE.match(path):
        for name in set(_NAME.findall(wheel.files[path])):
            made.uses[name].append(Place(path))
    else:
        made.walk(wheel.tree(path).body, Place(path))
    return made


class Behind:
    """The rows of one release."""

    def __init__(self, wheel: Wheel, taken: Mapping[str, Mapping[str, object]], files: Iterable[Walked]) -> None:
        self._options = {**_handed_on(wheel, taken), **named(wheel, taken), **_of_passes(wheel)}
        self._read = Walked()
        for one in files:
            self._read.add(one)
        self._parts = self._optional_parts(taken)
        self._known: dict[tuple[ast.expr, bool], Rows] = {}
        self._of_function: dict[Function, Rows | None] = dict.fromkeys(self._read.functions)
        self._of_class: dict[str, Rows | None] = dict.fromkeys(self._read.classes)
        self._settle()

    def rows(self) -> dict[str, dict[str, str]]:
        """Path → function → `12-30 option a on;…`, by lines below the function's first; `*` is all of it."""
        made: dict[str, dict[str, str]] = defaultdict(dict)
        for function, (name, place) in self._read.functions.items():
            first, last = function.lineno, function.end_lineno or function.lineno
            whole = self._of_function[function] or _NONE
            told = [f"* {row}" for row in sorted(whole)]
            blocks = sorted(set(self._read.blocks[function]), key=lambda one: (one[0], -one[1]))
            for begin, end, test in blocks:
                here = replace(place, function=function, line=begin)
                lines = f"{begin - first}-{min(end, last) - first}"
                told += [f"{lines} {row}" for row in sorted(self._implied(test, here) - whole)]
            if told:
                made[place.path.removeprefix("vllm/")][name] = ";".join(dict.fromkeys(told))
        return made

    def _optional_parts(self, taken: Mapping[str, Mapping[str, object]]) -> dict[str, str]:
        """Parts of the configuration that are None unless an option asks for them, under the names of all the code."""
        found = {
            name.removeprefix("."): f"option {option}"
            for name, option in self._options.items()
            if name.startswith(".") and name.endswith("_config") and taken.get(option, {}).get("default") == "None"
        }
        for function, (_, place) in self._read.functions.items():
            whole = ast.walk(function) if place.path == _ARGUMENTS else ()
            calls = (node for node in whole if isinstance(node, ast.Call) and getattr(node.func, "id", "") in _WHOLE)
            for given in (one for call in calls for one in call.keywords if one.arg in _PARTS):
                asked = self._asked_by(given.value, replace(place, function=function))
                if given.arg is not None and asked:
                    found[given.arg] = asked
        return found

    def _asked_by(self, value: ast.expr, place: Place) -> str:
        """The option without which a part of the configuration is None."""
        scope = self._scope(replace(place, line=value.lineno))
        match value:
            case ast.Name(id=name) if values := set_before(name, scope):
                return self._asked_by(values[0], place)
            case ast.IfExp(test=test, orelse=ast.Constant(value=None)):
                return held(test, scope)
            case ast.Call(func=ast.Attribute(attr=name), keywords=keywords):
                for asked in (one for function in self._read.called[name] for one in _none_for(function)):
                    given = next((one.value for one in keywords if one.arg == asked), None)
                    own = ast.parse(asked, mode="eval").body if asked.startswith("self.") else None
                    node = given or own
                    if node is not None and (told := held(node, scope)):
                        return told
        return ""

    def _settle(self) -> None:
        """Functions and classes by their uses, until nothing changes: what uses itself asks for nothing by that."""
        for _ in range(_ROUNDS):
            classes = {
                name: self._by_uses(name, nodes) if len(nodes) == 1 else _NONE
                for name, nodes in self._read.classes.items()
            }
            changed = classes != self._of_class
            self._of_class = classes
            for function, (_, place) in self._read.functions.items():
                now = self._whole(function, place)
                changed |= now != self._of_function[function]
                self._of_function[function] = now
            if not changed:
                break

    def _whole(self, function: Function, place: Place) -> Rows | None:
        """What holds in all of a function: what its class asks for, where it is made, and each call of it."""
        alone = len(self._read.called[function.name]) <= _SAME_NAME and not function.name.startswith("__")
        own = self._of_class.get(place.owner.name) if place.owner is not None else _NONE
        known = [own, self._at(place), self._by_uses(function.name, ()) if alone else _NONE]
        told = [one for one in known if one is not None]
        return None if len(told) < len(known) and not any(told) else _NONE.union(*told)

    def _by_uses(self, name: str, classes: Iterable[ast.ClassDef]) -> Rows | None:
        """What holds at each use; None where all uses are in what has not been told yet."""
        uses = [one for one in self._read.uses.get(name, ()) if one.owner is None or one.owner not in classes]
        made: Rows | None = None if uses else _NONE
        for use in uses:
            here = self._at(use)
            if here is not None:
                made = here if made is None else made & here
            if made is not None and not made:
                break
        return made

    def _at(self, place: Place) -> Rows | None:
        """What holds at a place; None where nothing is told of its function or class yet."""
        told = _NONE.union(*(self._implied(test, replace(place, line=test.node.lineno)) for test in place.tests))
        if place.function is None and place.owner is None:
            return told
        outer = self._of_class.get(place.owner.name) if place.owner is not None and place.function is None else _NONE
        if place.function is not None and place.function in self._of_function:
            outer = self._of_function[place.function]
        return told | outer if outer is not None else (told or None)

    def _scope(self, place: Place) -> Scope:
        return Scope(place.path, self._options, place.function, place.owner, place.line)

    def _implied(self, test: Test, place: Place) -> Rows:
        key = (test.node, test.met)
        if key not in self._known:
            self._known[key] = _NONE  # a name that is set by itself
            self._known[key] = frozenset(filter(_is_on, self._of_test(test, place, _DEPTH)))
        return self._known[key]

    def _of_test(self, test: Test, place: Place, depth: int) -> Rows:
        node, met = test.node, test.met
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return self._of_test(Test(inner, not met), place, depth)
            case ast.BoolOp(op=op, values=parts):
                told = [self._of_test(Test(part, met), place, depth) for part in parts]
                return _NONE.union(*told) if isinstance(op, ast.And) == met else frozenset.intersection(*told)
            case ast.NamedExpr(value=inner) | ast.Call(func=ast.Name(id="bool"), args=[inner]):
                return self._of_test(Test(inner, met), place, depth)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._of_comparison(left, SIGNS[type(op)][not met], right, place, depth)
            case ast.Call(func=ast.Name(id="hasattr"), args=[of, ast.Constant(value=str() as name)]) if met:
                return self._of_value(Test(ast.copy_location(ast.Attribute(of, name), node), met=True), place, depth)
        if part := self._part(node):
            switch = "enable" in part
            return frozenset({f"{part} {_IS[switch, met]}"})
        if one := held(node, self._scope(place)):
            return frozenset({f"{one} {_IS[True, met]}"})
        return self._of_value(test, place, depth)

    def _of_comparison(self, left: ast.expr, sign: str, right: ast.expr, place: Place, depth: int) -> Rows:
        one = held(left, self._scope(place)) if not self._part(left) else ""
        none = isinstance(right, ast.Constant) and right.value in (None, False)
        if none and not one and sign in {"is not", "is", "!=", "=="}:
            return self._of_test(Test(left, sign in {"is not", "!="}), place, depth)
        value = value_of(right) or (ast.unparse(right) if _CONSTANT.fullmatch(ast.unparse(right)) else "")
        return frozenset({f"{one} {sign} {value}"}) if one and value else _NONE

    def _part(self, node: ast.expr) -> str:
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        return self._parts.get(name, "")

    def _of_value(self, test: Test, place: Place, depth: int) -> Rows:
        """What holds where a name, an attribute or what a function returns is no None and no False."""
        given = list(self._given(test.node, place)) if depth else []
        if test.met:
            given = [(value, at) for value, at in given if not _nothing(value)]
        elif len(given) != 1:
            return _NONE
        told: Rows | None = None
        for value, at in given:
            behind = [replace(at, line=one.node.lineno) for one in at.tests] if test.met else []
            here = [self._of_test(one, where, depth - 1) for one, where in zip(at.tests, behind, strict=False)]
            if not isinstance(value, ast.Constant):
                here.append(self._of_test(Test(value, test.met), replace(at, line=value.lineno), depth - 1))
            told = _NONE.union(*here) if told is None else told & _NONE.union(*here)
            if not told:
                break
        return told or _NONE

    def _given(self, node: ast.expr, place: Place) -> Iterator[_Value]:
        """Each value that a name, an attribute of its class or a call of a function may have, and where it is given."""
        match node:
            case ast.Name(id=name):
                values = set_before(name, self._scope(place))
                yield from ((value, self._read.set_at.get(value, place)) for value in values)
                if not values:
                    yield from self._of_callers(name, place)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name) if place.owner is not None:
                yield from self._of_attribute(name, place.owner)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                yield from self._returned(name)
            case ast.Attribute(attr=name) if any(_is_property(one) for one in self._read.called.get(name, ())):
                yield from self._returned(name)

    def _of_attribute(self, name: str, owner: ast.ClassDef) -> Iterator[_Value]:
        """What a class and those that it is made from set an attribute to."""
        for one in self._with_bases(owner):
            at = Place(self._read.paths[one], one)
            for value, function in attributes(one).get(name, []):
                yield value, self._read.set_at.get(value, replace(at, function=function))
            for line in one.body:
                match line:
                    case (
                        ast.Assign(targets=[ast.Name(id=given)], value=ast.expr() as value)
                        | ast.AnnAssign(target=ast.Name(id=given), value=ast.expr() as value)
                    ) if given == name:
                        yield value, at

    def _returned(self, name: str) -> Iterator[_Value]:
        """What the one function of a name returns."""
        functions = self._read.called.get(name, [])
        for function in functions if len(functions) == 1 else []:
            place = replace(self._read.functions[function][1], function=function, tests=())
            for line in ast.walk(function):
                if isinstance(line, ast.Return) and line.value is not None:
                    yield line.value, self._read.set_at.get(line.value, place)

    def _of_callers(self, name: str, place: Place) -> list[_Value]:
        """What each call gives a parameter; nothing where one of many calls, or of those that hide it, is not read."""
        function = place.function
        if function is None or function not in self._read.functions or name not in parameters(function):
            return []
        owner = place.owner
        made = owner is not None and function.name == "__init__"
        called = owner.name if made and owner is not None else function.name
        known = self._read.classes if made else self._read.called
        calls = self._read.calls.get(called, [])
        if len(known.get(called, ())) > 1 or len(calls) > _CALLERS:
            return []
        given = [(_argument(call, function, name, method=owner is not None), at) for call, at in calls]
        told = [(value, at) for value, at in given if value is not None]
        return told if len(told) == len(given) else []

    def _with_bases(self, owner: ast.ClassDef) -> list[ast.ClassDef]:
        found, left = [owner], [owner]
        while left and len(found) < _BASES:
            for base in left.pop().bases:
                known = self._read.classes.get(bare(base), ())
                for one in known if len(known) == 1 else ():
                    if one not in found:
                        found.append(one)
                        left.append(one)
        return found


# How a switch, and what has a value, is written where it is met and where it is not.
_IS = {(True, True): "on", (True, False): "off", (False, True): "is not None", (False, False): "is None"}


def _handed_on(wheel: Wheel, taken: Mapping[str, object]) -> dict[str, str]:
    """part.field → the option that it is made of, what the start itself decides where it is left out among them."""
    made = handed_on(wheel, {name.replace("-", "_") for name in taken}, as_given=False)
    return {f"{part_of(one)}.{key}": name.replace("_", "-") for one, keys in made.items() for key, name in keys.items()}


def _of_passes(wheel: Wheel) -> dict[str, str]:
    """The compiler's passes, each a key inside a key of one option."""
    nodes = (node for path in wheel.paths(_CONFIGS) for node in ast.walk(wheel.tree(path)))
    found = next((one for one in nodes if isinstance(one, ast.ClassDef) and one.name == "PassConfig"), None)
    given = (one.target for one in found.body if isinstance(one, ast.AnnAssign)) if found is not None else ()
    return {f"pass.{one.id}": f"compilation-config pass_config.{one.id}" for one in given if isinstance(one, ast.Name)}


def _argument(call: ast.Call, function: Function, name: str, *, method: bool) -> ast.expr | None:
    """What a call gives a parameter; its default where it gives none, None where that cannot be told."""
    given = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    value = next((one.value for one in call.keywords if one.arg == name), None)
    position = given.index(name) - method if name in given else -1
    if value is None and 0 <= position < len(call.args):
        return call.args[position]
    hidden = any(one.arg is None for one in call.keywords) or any(isinstance(one, ast.Starred) for one in call.args)
    return value or (None if hidden else _default(function, name))


def _is_property(function: Function) -> bool:
    return any("property" in ast.unparse(one) for one in function.decorator_list)


def _default(function: Function, name: str) -> ast.expr | None:
    given = function.args
    last = zip(reversed([*given.posonlyargs, *given.args]), reversed(given.defaults), strict=False)
    named_alone = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    return next((value for one, value in (*last, *named_alone) if one.arg == name), None)


def _is_on(row: str) -> bool:
    """Is it a way in which something is on that a launch may do without?"""
    kind, _, rest = row.partition(" ")
    if kind not in {"option", "variable"}:
        return False
    name = rest.partition(" ")[0]
    if row.endswith(" off"):
        return name.startswith(_TO_OFF) or "DISABLE" in name
    return row.endswith(_ON) or _ASKED.search(rest) is not None


def _nothing(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value in (None, False)


def _none_for(function: Function) -> Iterator[str]:
    """What a function may return None for where it is None."""
    for node in function.body:
        match node:
            case ast.If(test=ast.Compare(left=left, ops=[ast.Is()], comparators=[ast.Constant(value=None)]), body=body):
                returned = (one for line in body for one in ast.walk(line) if isinstance(one, ast.Return))
                if any(one.value is None or _nothing(one.value) for one in returned):
                    yield ast.unparse(left)


def table(releases: Mapping[str, Mapping[str, Mapping[str, str]]]) -> str:
    """The file's text, of all releases, oldest first. A function's row has `since:rows` wherever its rows changed,
    parted by bars; a row is the lines below its first (`*`: all) and the number of what is on there."""
    conditions = sorted({row.partition(" ")[2] for held in releases.values() for told in _told(held) for row in told})
    number = {condition: i for i, condition in enumerate(conditions)}
    paths = sorted({path for held in releases.values() for path in held})
    files = {path: _of_path([held.get(path, {}) for held in releases.values()], number) for path in paths}
    listed = ",\n".join(f"{json.dumps(path)}: {json.dumps(told)}" for path, told in files.items())
    head = f'"source": {json.dumps(_SOURCE)},\n"releases": {json.dumps(list(releases))}'
    return f'{{{head},\n"conditions": {json.dumps(conditions, indent=0)},\n"files": {{\n{listed}\n}}}}\n'


def _told(held: Mapping[str, Mapping[str, str]]) -> Iterator[list[str]]:
    return (rows.split(";") for functions in held.values() for rows in functions.values())


def _of_path(releases: list[Mapping[str, str]], number: Mapping[str, int]) -> str:
    names = sorted({name for functions in releases for name in functions})
    return "\n".join(f"{name}\t{_runs([functions.get(name, '') for functions in releases], number)}" for name in names)


def _runs(releases: list[str], number: Mapping[str, int]) -> str:
    made, before = [], ""
    for at, rows in enumerate(releases):
        if rows != before:
            parted = (row.partition(" ") for row in rows.split(";") if row)
            made.append(f"{at}:" + ",".join(f"{lines} {number[condition]}" for lines, _, condition in parted))
        before = rows
    return "|".join(made)

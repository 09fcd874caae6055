"""What decides each refusal of a release: the tests above its `raise`, followed to options, keys and fields.

A refusal is found again by its file and by its sentence with a hole for each value. Only those are written down of
which something is known: what decides them, or, in code that has a request in its hands, the sentence alone, which
vLLM wrote and no client.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from releases import texts
from releases.calls import Calls
from releases.deciders import Scope, deciders, held, told_once
from releases.joint import Joint
from releases.wheel import Wheel

_LEFT_OUT = re.compile(
    r"vllm/(?:benchmarks|assets|third_party|vllm_flash_attn|profiler|triton_utils|usage|grpc|examples)/.*"
    r"|.*(?:/ops/|/cute/|tilelang|_kernels?\.py|/kernels/).*|vllm/(?:collect_env|_\w+)\.py"
)
SIGNS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Gt: (">", "<="), ast.GtE: (">=", "<"), ast.Lt: ("<", ">="), ast.LtE: ("<=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}  # fmt: skip
NEGATED = {**dict(SIGNS.values()), "on": "off", "off": "on"}
_ROW = re.compile(r"(?P<head>.+?) (?P<sign>is not|not in|is|in|==|!=|>=|<=|>|<|on|off)(?P<value> .*|)")
_WORD = re.compile(r"[A-Za-z]{3,}")
_LETTERS, _MOST, _LONGEST = 8, 4, 300
# A sentence that quotes more things tells of none of them that it was refused.
_QUOTES = 2
_TURNED_ON = ("option ", "extra ", "variable ")
# What an assertion asks of the code itself, and the signs of a plain test of something that a person sets.
_OF_CODE = re.compile(r"isinstance\(|hasattr\(|callable\(|\.(?:shape|dtype|ndim|device)\b")
_SIGNED = re.compile(r" (?:is|is not|in|not in|==|!=|>=|<=|>|<) \S|\w (?:on|off)$")
_BARE = (ast.Name, ast.Attribute, ast.Subscript)
_OF_REQUESTS = re.compile(
    r"vllm/(?:entrypoints|renderers|parser|tool_parsers|reasoning|inputs|multimodal|tokenizers|sampling_params"
    r"|pooling_params|connections|logits_process|lora)|vllm/v1/(?:structured_output|engine)/|vllm/model_executor/models/"
    r"|vllm/models/|vllm/distributed/weight_transfer/"
)
# In code of models only methods that read items of a request.
_OF_ITEMS = re.compile(r"placeholder|_process_|_parse_|get_replacement|image|audio|video")


@dataclass(frozen=True)
class _At:
    """A place in a module, and the tests that hold there, each with whether it is met; those that others left by."""

    scope: Scope
    tests: tuple[tuple[ast.expr, bool, bool], ...] = ()
    left_by: tuple[ast.expr, ...] = ()

    def behind(self, test: ast.expr, *, met: bool, other: bool = False) -> _At:
        """`other`: in the branch for all that an `if` and its `elif` do not name, where no one value is asked for."""
        return replace(self, tests=(*self.tests, (test, met, other)))


def read(wheel: Wheel, options: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
    """File and sentence → what decides it, by the nearest test that asks for anything."""
    known = named(wheel, options)
    made: dict[str, dict[str, object]] = {}
    read_ones = [path for path in wheel.files if path.startswith("vllm/") and not _LEFT_OUT.fullmatch(path)]
    calls = Calls({path: wheel.tree(path) for path in read_ones})
    for path in read_ones:
        if "raise " in wheel.files[path]:
            for line in wheel.tree(path).body:
                for sentence, told, at in _of(line, _At(Scope(path, known, calls=calls))):
                    if told or _shown(at):
                        made.setdefault(f"{path}: {sentence}", {"by": told} if told else {})
    return dict(sorted(made.items()))


def _shown(at: _At) -> bool:
    """May a request be in the hands of this code?"""
    path, function = at.scope.path, at.scope.function
    of_items = "models/" not in path or (function is not None and _OF_ITEMS.search(function.name) is not None)
    return _OF_REQUESTS.match(path) is not None and of_items


def named(wheel: Wheel, options: Mapping[str, Mapping[str, object]]) -> dict[str, str]:
    """part.field → its option; `args.x` for each option; a key of an option that takes JSON behind its name."""
    made = {f"args.{name.replace('-', '_')}": name for name in options}
    joint = Joint(wheel, options)
    for option, row in options.items():
        owner = str(row.get("config", ""))
        part = next((p for p, node in joint.classes.items() if node.name == owner), None)
        if part is not None:
            given = joint.listed.listed(owner)
            keys = (k for k, (_, default) in given.items() if "init=False" not in str(default))
            made |= {f"{part}.{key}": f"{option} {key}" for key in keys if not key.startswith("_")}
    return made | {name: option.replace("_", "-") for name, option in joint.options.items()}


def _of(node: ast.AST, at: _At) -> Iterator[tuple[str, list[str], _At]]:
    match node:
        case ast.ClassDef(body=body):
            yield from _lines(body, _At(replace(at.scope, owner=node, function=None)))
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
            yield from _lines(body, _At(replace(at.scope, function=node)))
        case ast.Raise(exc=ast.Call(args=[said, *_])):
            yield from _raised(said, at)
        case ast.Assert(test=test, msg=ast.expr() as said):
            yield from _raised(said, at.behind(test, met=False))
        case ast.Assert(test=test, msg=None):
            yield from _asserted(node, at.behind(test, met=False))
        case ast.If(test=test, body=body, orelse=other):
            yield from _lines(body, at.behind(test, met=True))
            yield from _lines(other, at.behind(test, met=False, other=True))
        case ast.Try(body=body, handlers=handlers, orelse=other, finalbody=last):
            yield from _lines([*body, *other, *last], at)
            tried = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return | ast.Assign) else None
            inside = _At(at.scope) if tried is None else _At(at.scope).behind(tried, met=True, other=True)
            for handler in handlers:
                yield from _lines(handler.body, inside)
        case ast.With() | ast.For() | ast.While() | ast.AsyncFor() | ast.AsyncWith():
            yield from _lines([*node.body, *getattr(node, "orelse", [])], at)
        case ast.Match(cases=cases):
            for case in cases:
                yield from _lines(case.body, at)


def _lines(lines: list[ast.stmt], at: _At) -> Iterator[tuple[str, list[str], _At]]:
    for line in lines:
        yield from _of(line, at)
        match line:
            case ast.If(test=test, body=[*_, ast.Return() | ast.Continue()], orelse=[]):
                at = replace(at, left_by=(*at.left_by, test))


def _raised(said: ast.expr, at: _At) -> Iterator[tuple[str, list[str], _At]]:
    sentence = _sentence(said, at.scope)
    if sentence:
        here = replace(at, scope=replace(at.scope, line=said.lineno))
        yield sentence, _decided(here) or _quoted(said, here.scope), here


def _asserted(line: ast.Assert, at: _At) -> Iterator[tuple[str, list[str], _At]]:
    """An assertion without words is told by its own line, which a traceback shows; one of several lines is not. Only
    what is asked plainly counts, and what is to divide: the rest are words of one part to another."""
    here = replace(at, scope=replace(at.scope, line=line.lineno), tests=at.tests[-1:], left_by=())
    if line.lineno != line.end_lineno or _OF_CODE.search(ast.unparse(line.test)):
        return
    divides = any(isinstance(node, ast.Mod) for node in ast.walk(line.test))
    told = [row for row in _decided(here) if not row.startswith("request ") and (divides or _SIGNED.search(row))]
    if told:
        yield ast.unparse(line), told, here


def _sentence(said: ast.expr, scope: Scope) -> str:
    """The text that an exception is raised with; a name's is what the function set it to."""
    if isinstance(said, ast.Name) and scope.function is not None:
        given = [
            n.value
            for n in ast.walk(scope.function)
            if isinstance(n, ast.Assign) and [ast.unparse(t) for t in n.targets] == [said.id] and n.lineno < said.lineno
        ]
        said = given[-1] if given else said
    match said:
        case ast.Call(func=ast.Attribute(value=ast.Constant() as plain_text, attr="format")):
            said = plain_text
        case ast.Constant() | ast.JoinedStr() | ast.BinOp():
            pass
        case _:
            return ""
    module = ast.Module(body=[ast.Return(value=said)], type_ignores=[])
    plain = next(iter(texts.templates(module)), "").replace(texts.HOLE, "{}")[:_LONGEST]
    return plain if len("".join(_WORD.findall(plain))) >= _LETTERS else ""


def _decided(at: _At) -> list[str]:
    """What decides the nearest test of which anything is known; of those around it only what they ask plainly."""
    for distance, (test, met, other) in enumerate(reversed(at.tests)):
        told = _agreeing(_of_test(test, at.scope, met=met, plainly=distance > 0))
        if distance:
            # a feature that the launch turns on leads there; of a model or a request an outer test says too little
            told = {row: None for row in told if row.startswith(_TURNED_ON)}
        if other:
            told = {row.partition(" != ")[0].partition(" not in ")[0]: None for row in told}
        if told:
            return list(told)[:_MOST]
    for test in reversed(at.left_by):
        # what comes after it is for all others, of which no one value is asked for
        told = dict.fromkeys(_of_test(test, at.scope, met=False, plainly=bool(at.tests)))
        told = {row.partition(" != ")[0].partition(" not in ")[0]: None for row in told}
        told = {row: None for row in told if not at.tests or row.startswith(_TURNED_ON)}
        if told:
            return list(told)[:_MOST]
    return []


def _quoted(said: ast.expr, scope: Scope) -> list[str]:
    """What the sentence quotes, where no test tells: the value that was refused."""
    held = [one.value for one in ast.walk(said) if isinstance(one, ast.FormattedValue)]
    told = dict.fromkeys(row for value in held for row in deciders(value, scope))
    return list(told) if len(told) <= _QUOTES else []


def _of_test(test: ast.expr, scope: Scope, *, met: bool, plainly: bool) -> Iterator[str]:
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            yield from _of_test(inner, scope, met=not met, plainly=plainly)
        case ast.BoolOp(values=parts):
            for part in parts:
                yield from _of_test(part, scope, met=met, plainly=plainly)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if (one := _one(left, scope)) and value_of(right):
            yield f"{one} {SIGNS[type(op)][not met]} {value_of(right)}"
        case _ if one := _one(test, scope):
            yield f"{one} {'on' if met else 'off'}"
        case ast.Name() | ast.Attribute() if (set_to := told_once(test, scope)) and _each_holds(set_to[0], met=met):
            yield from _of_test(*set_to, met=met, plainly=plainly)
        case _ if one := _switch(test, scope):
            yield f"{one} {'on' if met else 'off'}"
        case _ if not plainly:
            yield from deciders(test, scope)


def _each_holds(node: ast.expr, *, met: bool) -> bool:
    """Is an expression a test, and one of which each part holds here?"""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not) and _each_holds(node.operand, met=not met)
    every = isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And if met else ast.Or)
    return every or isinstance(node, ast.Compare) or not isinstance(node, ast.BoolOp | ast.Call | ast.Constant)


def _agreeing(rows: Iterator[str]) -> dict[str, None]:
    """Each row once; of one thing that is asked two opposite ways only its name."""
    told = dict.fromkeys(rows)
    parted = {row: _parted(row) for row in told}
    opposite = {head for head, sign, value in parted.values() if f"{head} {NEGATED.get(sign)}{value}" in told}
    return dict.fromkeys(head if head in opposite else row for row, (head, _, _) in parted.items())


def _parted(row: str) -> tuple[str, str, str]:
    """`option a > 1` → `option a`, `>`, ` 1`."""
    found = _ROW.fullmatch(row)
    return (found["head"], found["sign"], found["value"]) if found is not None else (row, "", "")


def _one(node: ast.expr, scope: Scope) -> str:
    """The one thing whose bare value an expression is."""
    called = isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("getattr", ".get", "_size"))
    return held(node, scope) if called or isinstance(node, _BARE) else ""


def _switch(node: ast.expr, scope: Scope) -> str:
    """The one thing that a launch turns on and that decides a name's value, whatever was made of it."""
    found = deciders(node, scope) if isinstance(node, _BARE) else ()
    return found[0] if len(found) == 1 and found[0].startswith(_TURNED_ON) else ""


def value_of(node: ast.expr) -> str:
    """A value that is written in the test itself; torch's types are written without torch."""
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "torch":
        return repr(node.attr)
    try:
        held = ast.literal_eval(node)
    except ValueError:
        return ""
    return ast.unparse(node) if len(str(held)) < 80 else ""

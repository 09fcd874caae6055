"""A function of vLLM's followed line by line with names for values: behind which tests it ends in an error.

What `__init__` and its like make of what they are given is written in those names: `weight_bits not in
self.SUPPORTED_BITS` is `(config['bits'] not in (2, 3, 4, 8))`. Branches are followed and joined, methods of the same
family and functions of the same module are followed with what they are given. `unknown` stands for the rest, and a test
that nobody could answer is left out. A subclass says where the classes are and what else a call may stand for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from releases.joint import decidable, folded

UNKNOWN = "unknown"
_DEPTH = 8
_LONG = 3000  # characters of a value that is followed no further
# Methods of texts, lists and dictionaries that a reader of tests can answer too.
_PLAIN = frozenset({"lower", "upper", "strip", "startswith", "endswith", "get", "replace", "split"})
_CALLS = frozenset({"len", "isinstance", "str", "int", "bool", "list", "tuple", "set"})
_CHANGES = frozenset({"append", "extend", "update", "pop", "remove", "add", "clear", "insert", "setdefault", "popitem"})
_SUMS = (ast.Add, ast.Sub, ast.Mult, ast.Mod, ast.FloorDiv)
_TYPES = frozenset({"dict", "list", "tuple", "str", "int", "bool", "float", "set"})


@dataclass(frozen=True)
class Family:
    """A class where it stands, with its bases behind it."""

    module: str
    node: ast.ClassDef
    bases: tuple[Family, ...] = ()

    def method(self, name: str) -> tuple[Family, ast.FunctionDef] | None:
        """The nearest method of a name."""
        for line in self.node.body:
            if isinstance(line, ast.FunctionDef) and line.name == name:
                return self, line
        return next((found for base in self.bases if (found := base.method(name)) is not None), None)

    def constant(self, name: str) -> tuple[Family, ast.expr] | None:
        """What the class, or the nearest of its bases, gives a name."""
        for line in self.node.body:
            match line:
                case ast.Assign(targets=[ast.Name(id=said)], value=value) if said == name:
                    return self, value
                case ast.AnnAssign(target=ast.Name(id=said), value=ast.expr() as value) if said == name:
                    return self, value
                case _:
                    pass
        return next((found for base in self.bases if (found := base.constant(name)) is not None), None)


@dataclass(frozen=True)
class State:
    """What the names hold, and the tests that led here."""

    module: str
    family: Family | None
    names: Mapping[str, str] = field(default_factory=dict)
    behind: tuple[str, ...] = ()
    depth: int = _DEPTH
    own: frozenset[str] = frozenset()  # names that stand for the class or its instance
    inner: Mapping[str, ast.FunctionDef] = field(default_factory=dict)  # functions within the function

    def past(self, test: str) -> State:
        """The same behind one test more."""
        return replace(self, behind=(*self.behind, test))


@dataclass
class _Result:
    """What a function gives back on each way to its end; `ended`: it gives back nothing on the way that is left."""

    given: list[tuple[tuple[str, ...], str]] = field(default_factory=list)


class Executed:
    """Follows functions of one wheel."""

    def __init__(self) -> None:
        self.found: list[tuple[str, ast.stmt]] = []

    def class_named(self, module: str, name: str) -> Family | None:
        """The class that a name of a module stands for."""
        raise NotImplementedError

    def function_named(self, module: str, name: str) -> tuple[str, ast.FunctionDef] | None:
        """The function that a name of a module stands for, with its own module."""
        raise NotImplementedError

    def constant_named(self, module: str, name: str) -> tuple[str, ast.expr] | None:
        """What a module gives a name, with the module where it stands."""
        raise NotImplementedError

    def special(self, called: str, args: Sequence[str], behind: tuple[str, ...], line: ast.stmt) -> str | None:
        """What a call of a method of this name gives back, where a subclass knows it."""
        del called, args, behind, line
        return None

    def met(self, behind: Sequence[str], line: ast.stmt) -> None:
        """A way to an error: the tests that it stands behind."""
        self.found.append((_all(behind), line))

    def start(self, family: Family, method: str, given: Sequence[str]) -> None:
        """Follow a method of a class from the first line; what it is given stands for its parameters."""
        found = family.method(method)
        if found is not None:
            self._entered(found[1], found[0], family, list(given), {}, State("", None))

    def follow(self, module: str, function: ast.FunctionDef, given: Mapping[str, str]) -> None:
        """Follow a function of a module from the first line, with what some of its parameters stand for."""
        self._entered(function, module, None, [], given, State("", None))

    def tests(self) -> Iterator[tuple[str, ast.stmt]]:
        """The tests that were met, with the line that raises."""
        for test, line in self.found:
            try:
                plain = folded(test)
            except (RecursionError, SyntaxError):
                continue
            if plain not in {"True", "False"} and decidable(plain):
                yield plain, line

    def _entered(  # noqa: PLR0917
        self,
        function: ast.FunctionDef,
        home: Family | str,
        asked: Family | None,
        args: list[str],
        keywords: Mapping[str, str],
        caller: State,
        fields: Mapping[str, str] | None = None,
        *,
        inner: bool = False,
    ) -> str:
        """What a function gives back, followed with what it is given and the fields of its instance; one within
        another knows its names."""
        if not caller.depth:
            return UNKNOWN
        behind, depth = caller.behind, caller.depth - 1
        module = home if isinstance(home, str) else home.module
        listed = [*function.args.posonlyargs, *function.args.args]
        own: frozenset[str] = frozenset()
        static = any(ast.unparse(d) == "staticmethod" for d in function.decorator_list)
        if isinstance(home, Family) and not static and listed:
            own, listed = frozenset({listed[0].arg}), listed[1:]
        names = dict.fromkeys([one.arg for one in (*listed, *function.args.kwonlyargs)], UNKNOWN)
        state = State(module, asked, {}, (), depth, own)
        if inner:
            state, fields = replace(state, own=caller.own), caller.names
        for one, default in zip(reversed(listed), reversed(function.args.defaults), strict=False):
            names[one.arg] = self.value(default, state)
        for one, given in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
            if given is not None:
                names[one.arg] = self.value(given, state)
        names |= {one.arg: given for one, given in zip(listed, args, strict=False)}
        names |= {key: given for key, given in keywords.items() if key in names}
        result = _Result()
        self._run(function.body, replace(state, names={**(fields or {}), **names}, behind=behind), result)
        given_back = UNKNOWN if not result.given else result.given[-1][1]
        for path, value in reversed(result.given[:-1]):
            test = _all(path[len(behind) :])
            given_back = value if test == "True" else _chosen(test, value, given_back)
        return given_back

    def _run(self, lines: Sequence[ast.stmt], state: State, result: _Result) -> State | None:
        """Follow some lines; the state behind them, None where no way leads there."""
        for line in lines:
            after = self._line(line, state, result)
            if after is None:
                return None
            state = after
        return state

    def _line(self, line: ast.stmt, state: State, result: _Result) -> State | None:
        match line:
            case (
                ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value)
            ) if name := target_of(target, state):
                return _with(state, name, self.value(value, state, line))
            case ast.If(test=asked, body=body, orelse=other):
                return self._branched(self.test(asked, state, line), body, other, state, result)
            case ast.Raise():
                self.met(state.behind, line)
                return None
            case ast.Assert(test=asked):
                test = self.test(asked, state, line)
                self.met((*state.behind, f"(not {test})"), line)
                return state
            case ast.Return(value=value):
                result.given.append((state.behind, "None" if value is None else self.value(value, state, line)))
                return None
            case ast.Expr(value=ast.Call() as call):
                return self._called(call, state, line)
            case ast.With(body=body):
                return self._run(body, state, result)
            case ast.FunctionDef(name=name):
                return replace(state, inner={**state.inner, name: line})
            case ast.Try(body=body, handlers=[handler], orelse=[], finalbody=[]):
                return self._tried(line, body, handler.body, state, result)
            case ast.Expr() | ast.Pass() | ast.Import() | ast.ImportFrom():
                return state
            case ast.Continue() | ast.Break():
                return None
            case _:
                return _forgotten(line, state)

    def _tried(
        self, line: ast.Try, body: list[ast.stmt], instead: list[ast.stmt], state: State, result: _Result
    ) -> State | None:
        """Lines whose error is caught, followed where the only error is one that `special` knows: a key that is not
        there. Whatever else may raise within them, nobody knows what is behind them."""
        calls = [node for part in body for node in ast.walk(part) if isinstance(node, ast.Call)]
        before, tried = len(self.found), _Result()
        known = len(calls) == 1 and all(isinstance(part, ast.Assign | ast.Return) for part in body)
        after = self._run(body, state, tried) if known else None
        errors = [test for test, _ in self.found[before:]]
        del self.found[before:]
        if not known or len(errors) != 1 or after is not None or len(tried.given) != 1:
            return _forgotten(line, state)
        result.given.append(((*state.behind, f"(not ({errors[0]}))"), tried.given[0][1]))
        return self._run(instead, replace(state, behind=(*state.behind, f"({errors[0]})")), result)

    def _called(self, call: ast.Call, state: State, line: ast.stmt) -> State:
        """A call for its own sake: it may end the start, or change what a name holds."""
        self.value(call, state, line)
        match call.func:
            case ast.Attribute(value=of, attr=how) if how in _CHANGES and (name := target_of(of, state)):
                return _with(state, name, UNKNOWN)
            case ast.Attribute(value=ast.Name(id=of), attr=how) if of in state.own and state.family is not None:
                method = state.family.method(how)
                return state if method is None else replace(state, names={**state.names, **_set_in(method[1])})
            case _:
                return state

    def _branched(
        self, test: str, body: list[ast.stmt], other: list[ast.stmt], state: State, result: _Result
    ) -> State | None:
        one = self._run(body, replace(state, behind=(*state.behind, test)), result)
        two = self._run(other, replace(state, behind=(*state.behind, f"(not {test})")), result)
        if one is None or two is None:
            left = one or two
            only_raise = isinstance((other if two is None else body)[-1], ast.Raise)
            # What is asked behind a line that ends the start is asked whether or not it does: it ends either way.
            return replace(left, behind=state.behind) if left is not None and only_raise else left
        names = {
            name: held if held == two.names.get(name) else _chosen(test, held, two.names.get(name, UNKNOWN))
            for name, held in one.names.items()
        }
        names |= {
            name: _chosen(test, state.names.get(name, UNKNOWN), held)
            for name, held in two.names.items()
            if name not in names
        }
        return replace(state, names=names)

    def test(self, node: ast.expr, state: State, line: ast.stmt) -> str:
        """An expression of which only counts whether it holds."""
        match node:
            case ast.BoolOp(op=op, values=parts):
                word = " and " if isinstance(op, ast.And) else " or "
                return f"({word.join(self.test(part, state, line) for part in parts)})"
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return f"(not {self.test(inner, state, line)})"
            case ast.NamedExpr():
                return UNKNOWN
            case _:
                return self.value(node, state, line)

    def value(self, node: ast.expr, state: State, line: ast.stmt | None = None) -> str:  # noqa: PLR0912
        """An expression in the names of what is known."""
        at = line if line is not None else ast.Pass()
        made = UNKNOWN
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None):
                return repr(node.value)
            case ast.Name(id=name) if name in state.names:
                return state.names[name]
            case ast.Name(id=name) if name in _TYPES:
                return name
            case ast.Name(id=name):
                constant = self.constant_named(state.module, name)
                return _literal(constant[1]) if constant is not None else UNKNOWN
            case ast.Attribute() if name := target_of(node, state):
                return self._own(name.removeprefix("self."), state)
            case ast.Attribute(value=ast.Name(id=of), attr=name):
                family = self.class_named(state.module, of)
                found = family.constant(name) if family is not None else None
                return _literal(found[1]) if found is not None else UNKNOWN
            case ast.BoolOp(op=op, values=[first, *others]):
                made = self.value(others[-1], state, line)
                for part in reversed([first, *others[:-1]]):
                    held = self.value(part, state, line)
                    made = _chosen(held, held, made) if isinstance(op, ast.Or) else _chosen(held, made, held)
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                held = self.test(inner, state, at)
                return UNKNOWN if held == UNKNOWN else f"(not {held})"
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                held = self.value(inner, state, line)
                return UNKNOWN if held == UNKNOWN else f"(-{held})"
            case ast.IfExp(test=asked, body=one, orelse=two):
                made = _chosen(self.test(asked, state, at), self.value(one, state, line), self.value(two, state, line))
            case ast.List(elts=parts):
                told = [self.value(part, state, line) for part in parts]
                return UNKNOWN if UNKNOWN in told else f"[{', '.join(told)}]"
            case ast.Tuple(elts=parts) | ast.Set(elts=parts):
                told = [self.value(part, state, line) for part in parts]
                return UNKNOWN if UNKNOWN in told else f"({', '.join(told)}{',' if told else ''})"
            case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _SUMS):
                made = _joined(self.value(left, state, line), op, self.value(right, state, line))
            case ast.Compare(left=left, ops=ops, comparators=others):
                told = [self.value(part, state, line) for part in (left, *others)]
                pairs = [_compared(a, op, b) for a, op, b in zip(told, ops, told[1:], strict=False)]
                made = pairs[0] if len(pairs) == 1 else f"({' and '.join(pairs)})"
            case ast.Subscript(value=of, slice=ast.Constant(value=key)):
                held = self.value(of, state, line)
                made = UNKNOWN if held == UNKNOWN else f"{held}[{key!r}]"
            case ast.Call():
                made = self._call(node, state, at)
            case _:
                return UNKNOWN
        return made if len(made) < _LONG else UNKNOWN

    def _own(self, name: str, state: State) -> str:
        """A field of the instance: what it was given, what the class gives it, or what a property makes of it."""
        if f"self.{name}" in state.names:
            return state.names[f"self.{name}"]
        family = state.family
        found = family.constant(name) if family is not None else None
        if found is not None:
            return _literal(found[1])
        method = family.method(name) if family is not None else None
        if method is not None and any(ast.unparse(d) == "property" for d in method[1].decorator_list):
            return self._entered(method[1], method[0], family, [], {}, state, _fields(state))
        return UNKNOWN

    def _call(self, node: ast.Call, state: State, line: ast.stmt) -> str:  # noqa: PLR0912
        if any(isinstance(arg, ast.Starred) for arg in node.args) or any(k.arg is None for k in node.keywords):
            return UNKNOWN
        args = [self.value(arg, state, line) for arg in node.args]
        keywords = {str(k.arg): self.value(k.value, state, line) for k in node.keywords}
        match node.func:
            case ast.Name(id=name) if name in state.own:
                return self._made(state.family, args, keywords, state)
            case ast.Name(id=name) if name in _CALLS and args:
                return UNKNOWN if UNKNOWN in args else f"{name}({', '.join(args)})"
            case ast.Name(id=name) if name in state.inner:
                return self._entered(state.inner[name], state.module, state.family, args, keywords, state, inner=True)
            case ast.Name(id=name):
                family = self.class_named(state.module, name)
                if family is not None:
                    return self._made(family, args, keywords, state)
                found = self.function_named(state.module, name)
                if found is not None:
                    return self._entered(found[1], found[0], None, args, keywords, state)
                return UNKNOWN
            case ast.Attribute(value=of, attr=name):
                own = isinstance(of, ast.Name) and of.id in state.own
                above = isinstance(of, ast.Call) and isinstance(of.func, ast.Name) and of.func.id == "super"
                known = self.special(name, args, state.behind, line)
                if known is not None:
                    return known
                family = state.family if own else None
                if isinstance(of, ast.Name) and of.id not in state.names and not own:
                    family = self.class_named(state.module, of.id)
                if family is not None and not above:
                    method = family.method(name)
                    if method is None:
                        return UNKNOWN
                    return self._entered(
                        method[1], method[0], family, args, keywords, state, _fields(state) if own else None
                    )
                held = self.value(of, state, line)
                if held != UNKNOWN and name in _PLAIN and UNKNOWN not in args and not keywords:
                    return f"{held}.{name}({', '.join(args)})"
                return UNKNOWN
            case _:
                return UNKNOWN

    def _made(self, family: Family | None, args: list[str], keywords: Mapping[str, str], state: State) -> str:
        """An instance is made: its own first lines are followed."""
        method = family.method("__init__") if family is not None else None
        if family is not None and method is not None:
            self._entered(method[1], method[0], family, args, keywords, state)
        return UNKNOWN


def target_of(node: ast.expr, state: State) -> str:
    """The name that holds what a node stands for: a local one, or a field of the instance."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=of), attr=name) if of in state.own:
            return f"self.{name}"
        case _:
            return ""


def _fields(state: State) -> dict[str, str]:
    return {name: held for name, held in state.names.items() if name.startswith("self.")}


def _set_in(function: ast.FunctionDef) -> dict[str, str]:
    """The fields that a method sets: unknown behind a call of it."""
    stored = (n for n in ast.walk(function) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
    return {f"self.{node.attr}": UNKNOWN for node in stored}


def _with(state: State, name: str, held: str) -> State:
    return replace(state, names={**state.names, name: held})


def _forgotten(line: ast.stmt, state: State) -> State:
    """Lines that are not followed: what they may set is unknown behind them."""
    names = dict(state.names)
    for node in ast.walk(line):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                names[name] = UNKNOWN
            case ast.Attribute(value=ast.Name(id=of), attr=name, ctx=ast.Store()) if of in state.own:
                names[f"self.{name}"] = UNKNOWN
            case ast.Call(func=ast.Attribute(value=of, attr=how)) if how in _CHANGES and (held := target_of(of, state)):
                names[held] = UNKNOWN
            case ast.Subscript(value=of, ctx=ast.Store()) if held := target_of(of, state):
                names[held] = UNKNOWN
            case _:
                pass
    return replace(state, names=names)


def _chosen(test: str, one: str, two: str) -> str:
    if one == two:
        return one
    if UNKNOWN in {one, two} and test == UNKNOWN:
        return UNKNOWN
    made = f"({one} if {test} else {two})"
    return made if len(made) < _LONG else UNKNOWN


def _compared(one: str, op: ast.cmpop, two: str) -> str:
    if UNKNOWN in {one, two}:
        return UNKNOWN
    if isinstance(op, ast.NotIn):
        return f"(not ({one} in {two}))"
    return f"({one}{ast.unparse(ast.Compare(ast.Name('a'), [op], [ast.Name('b')]))[1:-1]}{two})"


def _joined(one: str, op: ast.operator, two: str) -> str:
    if UNKNOWN in {one, two}:
        return UNKNOWN
    return f"({one}{ast.unparse(ast.BinOp(ast.Name('a'), op, ast.Name('b')))[1:-1]}{two})"


def _all(tests: Sequence[str]) -> str:
    return " and ".join(f"({test})" for test in dict.fromkeys(tests) if test != "True") or "True"


def _literal(node: ast.expr) -> str:
    """A value that stands there, sets as tuples and a dictionary as its keys; else nobody knows."""
    match node:
        case ast.Call(func=ast.Name(id="frozenset" | "set" | "tuple" | "list"), args=[inner]):
            return _literal(inner)
        case ast.Dict(keys=keys) if keys and all(isinstance(key, ast.Constant) for key in keys):
            return _literal(ast.Tuple([key for key in keys if key is not None], ast.Load()))
        case ast.List(elts=parts):
            told = [_literal(part) for part in parts]
            return UNKNOWN if UNKNOWN in told else f"[{', '.join(told)}]"
        case ast.Set(elts=parts) | ast.Tuple(elts=parts):
            told = [_literal(part) for part in parts]
            return UNKNOWN if UNKNOWN in told else f"({', '.join(told)}{',' if told else ''})"
        case ast.Constant(value=bool() | int() | float() | str() | None):
            return repr(node.value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            return ast.unparse(node)
        case _:
            return UNKNOWN

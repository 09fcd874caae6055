"""What a release's configuration refuses of its parts together: the tests behind its own `raise` and its `assert`.

`checks.py` writes down what a class asks of its own keys as they were given. This one follows the configuration as it
is put together: `if self.parallel_config.pipeline_parallel_size > 1: raise` is the expression
`(parallel.pipeline_parallel_size > 1)`, behind each test that it stands behind. A name is a part of the configuration
and its field, property or method without arguments. `unknown` stands for what is asked of anything else, so a test that
nobody could answer "yes" is left out. With each test stand the options that its fields are made of as they were given,
their defaults, and what the release may have made of them before it asks: `becomes` has the values that it may set, the
text of a variable of the environment (`envs.NAME`) among them; `moved` are names whose values are computed, `filled`
those that are computed where they hold nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from releases.assigned import assigned
from releases.checks import handed_on, literal
from releases.config import Classes
from releases.wheel import Wheel

_CONFIGS = r"vllm/(config(/\w+)?|engine/arg_utils)\.py"
_ARGS = "args"  # EngineArgs, whose fields are the options
_CHANGES = (
    r"vllm/(config(/\w+)?|engine/arg_utils|platforms/(interface|cuda)|model_executor/models/config|v1/core/\w+)\.py"
)
_DEPTH = 5
# Parts that are there only where something is asked for: what their classes ask is asked behind that.
_OPTIONAL = frozenset({"speculative", "lora", "kv_transfer", "ec_transfer", "kv_events", "multimodal", "reasoning"})
_NAMES = {"vllm": "", "kvtransfer": "kv_transfer", "ectransfer": "ec_transfer", "kvevents": "kv_events"}
_NAMES |= {"engine_args": _ARGS}
_NAMES |= {"multi_modal": "multimodal", "lo_ra": "lora", "pass": "passes"}
# What is asked of the model or decided elsewhere: the reader knows it by its name.
_KEPT = frozenset({"whole.use_v2_model_runner"})
_FOLLOWED = frozenset({"", "parallel", "speculative"})
_ENUMS = frozenset({"CUDAGraphMode", "CompilationMode", "AttentionBackendEnum", "MambaBackendEnum"})
# What a card is asked for, by its compute capability times ten.
_CAPABILITIES = frozenset({"has_device_capability", "is_device_capability", "is_device_capability_family"})
_OWN = ("Config", "EngineArgs")
UNKNOWN = "unknown"
# Beside the configuration: functions that ask the whole of it at each start of which this holds. The second runner's
# own is asked where the first one refuses ranks that share a prompt (config/vllm.py).
_BESIDE: tuple[tuple[str, str, str], ...] = (
    ("vllm/model_executor/layers/mamba/abstract.py", "MambaBase.get_kv_cache_spec", "model.recurrent_layers"),
    ("vllm/v1/worker/gpu_model_runner.py", "GPUModelRunner.get_kv_cache_spec", "envs.VLLM_USE_V1"),
    ("vllm/v1/worker/gpu/pcp_manager.py", "PCPManager.validate_config", "parallel.prefill_context_parallel_size > 1"),
)
# Drafters' own classes on the first runner: what each asks where it is made for a drafter that is a model of its own,
# which writes slots beside the model's (needs_extra_input_slots).
_BESIDE_SLOTS = 'speculative.method == "draft_model" and model.on_first_runner'
_DRAFTERS = (
    ("draft_model.py", "DraftModelProposer"),
    ("eagle.py", "SpecDecodeBaseProposer"),
    ("llm_base_proposer.py", "SpecDecodeBaseProposer"),
)
_ASKS = ("_raise_if_multimodal", "_raise_if_padded_drafter_batch_disabled")
_BESIDE += tuple(
    (f"vllm/v1/spec_decode/{file}", f"{of}.{asks}", _BESIDE_SLOTS) for file, of in _DRAFTERS for asks in _ASKS
)
# A field of theirs, and what it holds.
_OF_DRAFTERS = {"supports_mm_inputs": "model.takes_items"}
_ALONE_ON_V2 = 'unsupported.append("prefill context parallel")'


@dataclass(frozen=True)
class _Here:
    """Where a test is read: of which part `self` is, what the local names stand for, what was changed so far."""

    part: str
    local: Mapping[str, str] = field(default_factory=dict)
    several: frozenset[str] = frozenset()  # local names that are set more than once: they stand for nothing
    lists: Mapping[str, list[str]] = field(default_factory=dict)  # each: the tests behind which something joins it


def _part(class_name: str) -> str:
    """ParallelConfig → parallel; the whole configuration has no name."""
    bare = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", class_name.removesuffix("Config")).lower()
    return _NAMES.get(bare, bare)


class Joint:
    """The tests of one wheel."""

    def __init__(self, wheel: Wheel, options: Mapping[str, Mapping[str, object]]) -> None:
        self.wheel = wheel
        trees = [wheel.tree(path) for path in wheel.paths(_CONFIGS)]
        self.classes = {_part(n.name): n for t in trees for n in t.body if isinstance(n, ast.ClassDef)}
        self.listed = Classes(trees)
        self.constants = _constants(trees)
        functions = [f for t in trees for f in t.body if isinstance(f, ast.FunctionDef)]
        self.alone = {f.name: f for f in functions if sum(f.name == other.name for other in functions) == 1}
        self.functions = {
            part: {f.name: f for f in node.body if isinstance(f, ast.FunctionDef)}
            for part, node in self.classes.items()
        }
        taken = {name.replace("-", "_") for name in options}
        handed = handed_on(wheel, taken)
        self.options = {f"{_part(name)}.{key}": option for name, made in handed.items() for key, option in made.items()}
        self.options |= {f"{_ARGS}.{name}": name for name in taken}
        self.moved, self.filled, self.becomes = _changed(wheel)
        self.decided: set[int] = (
            set()
        )  # the `raise` and `assert` lines behind the tests that were written down, by their nodes' ids

    def tests(self) -> dict[str, dict[str, object]]:
        """Expression → options, defaults and moved names of the fields in it."""
        made: dict[str, dict[str, object]] = {}
        for part, functions in self.functions.items():
            behind = [f"({part} is not None)"] if part in _OPTIONAL else []
            for function in functions.values():
                for here in _entries(part, function):
                    made |= self._met(function, behind, here)
        for path, name, behind_it in _BESIDE:
            found = _method(self.wheel, path, name)
            alone = _ALONE_ON_V2 in self.wheel.files.get("vllm/config/vllm.py", "")
            if found is not None and (alone or "pcp_manager" not in path):
                made |= self._met(found, [f"({behind_it})"], _inside("other", found))
        return {test: made[test] for test in sorted(made)}

    def _met(self, function: ast.FunctionDef, behind: list[str], here: _Here) -> dict[str, dict[str, object]]:
        """The tests of one function that somebody could answer."""
        made: dict[str, dict[str, object]] = {}
        for found, line in self._of(function.body, behind, here, _DEPTH):
            test = folded(found)
            if test not in {"True", "False"} and decidable(test) and "other." not in test:
                made[test] = self._record(test)
                self.decided.add(id(line))
        return made

    def _record(self, test: str) -> dict[str, object]:
        names = sorted(_dotted(ast.parse(test, mode="eval").body))
        options = {name: self.options[name] for name in names if name in self.options}
        defaults = {name: known for name in names if (known := self._default(name)) is not None}
        moved = [name for name in names if name in self.moved]
        filled = [name for name in names if name in self.filled - self.moved]
        becomes = {name: self.becomes[name] for name in names if name in self.becomes and name not in self.moved}
        parts = {"options": options, "defaults": defaults, "moved": moved, "filled": filled, "becomes": becomes}
        return {key: value for key, value in parts.items() if value}

    def _default(self, name: str) -> str | None:
        part, _, key = name.partition(".")
        node = self.classes.get(part)
        _, default = self.listed.listed(node.name).get(key, (None, None)) if node is not None else (None, None)
        plain = self.listed.default(default) if default is not None else None
        return plain if plain is not None and literal(plain) else None

    def _of(  # noqa: PLR0912
        self, lines: list[ast.stmt], behind: list[str], here: _Here, depth: int
    ) -> Iterator[tuple[str, ast.stmt]]:
        behind = list(behind)
        for line in lines:
            match line:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ):
                    if isinstance(value, ast.Call) and depth:
                        yield from self._called(value, behind, here, depth)
                    here = self._named(here, name, value)
                case ast.Expr(value=ast.Call(func=ast.Attribute(ast.Name(id=name), attr=how), args=[more])) if (
                    name in here.lists and how in {"append", "extend"}
                ):
                    some = [self._written(more, here)] if how == "extend" else []
                    here.lists[name].append(_and([*behind, *some]))
                case ast.Expr(value=ast.Call() as call) if depth:
                    yield from self._called(call, behind, here, depth)
                case ast.If(test=asked, body=body, orelse=other):
                    test = self._written(asked, here)
                    yield from self._of(body, [*behind, test], here, depth)
                    yield from self._of(other, [*behind, f"(not {test})"], here, depth)
                    if isinstance(body[-1], ast.Return | ast.Continue):
                        behind.append(f"(not {test})")
                case ast.With(body=body):
                    yield from self._of(body, behind, here, depth)
                case ast.For(target=ast.Name(id=name), iter=several, body=body):
                    held = self._written(several, here)
                    inside = replace(here, local={**here.local, name: name}, several=here.several - {name})
                    for test, raising in self._of(body, [], inside, depth) if UNKNOWN not in held else ():
                        if UNKNOWN not in test:
                            yield _and([*behind, f"any(({test}) for {name} in {held})"]), raising
                case ast.Assert(test=asked):
                    test = self._written(asked, here)
                    yield _and([*behind, f"(not {test})"]), line
                case ast.Raise():
                    if behind:
                        yield _and(behind), line
                    return
                case ast.Return():
                    return
                case _:
                    pass

    def _named(self, here: _Here, name: str, value: ast.expr) -> _Here:
        if name in here.several:
            return replace(here, local={**here.local, name: UNKNOWN})
        if isinstance(value, ast.List) and not value.elts:
            return replace(here, lists={**here.lists, name: []})
        return replace(here, local={**here.local, name: self._written(value, here)})

    def _called(self, call: ast.Call, behind: list[str], here: _Here, depth: int) -> Iterator[tuple[str, ast.stmt]]:
        """The tests of a method of a part, or of a function of its module, with what it is given."""
        match call.func:
            case ast.Attribute(value=inner, attr=name):
                of = self._written(inner, here)
                part = "" if of == "self" else of
                function = self.functions.get(part, {}).get(name)
                if function is None or _validates(function):
                    return
            case ast.Name(id=name) if name in self.alone:
                part, function = "", self.alone[name]
            case _:
                return
        inside = _inside(part, function)
        listed = [one.arg for one in function.args.args if one.arg not in {"self", "cls"}]
        given = dict(zip(listed, call.args, strict=False)) | {str(k.arg): k.value for k in call.keywords}
        told = {name: self._written(value, here) for name, value in given.items() if name not in inside.several}
        known = {name: text for name, text in told.items() if not self._whole_part(name)}
        rest = {name: UNKNOWN for name in listed if name not in known and not self._whole_part(name)}
        yield from self._of(function.body, behind, replace(inside, local={**rest, **known}), depth - 1)

    def _written(self, node: ast.expr, here: _Here) -> str:  # noqa: PLR0912
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None):
                return repr(node.value)
            case ast.Name(id="self"):
                return here.part or "self"
            case ast.Name(id=name):
                if name in here.local:
                    return here.local[name]
                if name in self.constants:
                    return self.constants[name]
                if name in here.lists:
                    return _or(here.lists[name])
                if self._whole_part(name):
                    return self._whole_part(name)
                return {"envs": "envs", "current_platform": "platform", "vllm_config": "self"}.get(name, UNKNOWN)
            case ast.Attribute(value=ast.Name(id="torch"), attr=kind):
                return repr(kind) if re.fullmatch(r"(b?float|u?int)\d+\w*", kind) else UNKNOWN
            case ast.Attribute(value=ast.Name(id=name), attr=member) if name in _ENUMS:
                return repr(member)
            case ast.Attribute(value=inner, attr=key):
                return self._field(self._written(inner, here), key)
            case ast.Call(func=ast.Name(id="getattr"), args=[of, ast.Constant(value=str() as key), *_]):
                return self._field(self._written(of, here), key)
            case ast.Call(func=ast.Attribute(value=of, attr=key), args=[], keywords=[]):
                return self._field(self._written(of, here), key)
            case ast.List(elts=[ast.Constant()]):
                return "True"  # something is listed
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                told = [self._written(part, here) for part in parts]
                return f"({', '.join(told)},)" if told and UNKNOWN not in told else UNKNOWN
            case ast.BoolOp(op=op, values=parts):
                word = " and " if isinstance(op, ast.And) else " or "
                return f"({word.join(self._written(part, here) for part in parts)})"
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return f"(not {self._written(inner, here)})"
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return f"-{self._written(inner, here)}"
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Mod() | ast.FloorDiv(), right=right):
                made = ast.BinOp(ast.Name("a"), node.op, ast.Name("b"))
                sign = ast.unparse(made)[1:-1]
                one, two = self._written(left, here), self._written(right, here)
                return UNKNOWN if UNKNOWN in {one, two} else f"({one}{sign}{two})"
            case ast.Compare(left=left, ops=ops, comparators=others):
                lists = [ast.Tuple(part.elts) if isinstance(part, ast.List) and part.elts else part for part in others]
                told = [self._written(part, here) for part in (left, *lists)]
                pairs = [_compared(one, op, two) for one, op, two in zip(told, ops, told[1:], strict=False)]
                return f"({_and(pairs)})" if len(pairs) > 1 else pairs[0]
            case ast.Subscript(value=of, slice=ast.Constant(value=int() as at)):
                held = self._written(of, here)
                return UNKNOWN if UNKNOWN in held else f"{held}[{at}]"
            case ast.NamedExpr(value=value):
                return self._written(value, here)
            case ast.Call(func=ast.Name(id="get_layers_from_vllm_config"), args=[_, ast.Name(id="MambaBase")]):
                return "model.recurrent_layers"
            case ast.Call(func=ast.Name(id="len"), args=[of]):
                held = self._written(of, here)
                return UNKNOWN if UNKNOWN in held else f"len({held})"
            case ast.Call(
                func=ast.Attribute(value=of, attr="startswith" | "endswith" as how), args=[ast.Constant(value)]
            ):
                held = self._written(of, here)
                return UNKNOWN if UNKNOWN in held else f"{held}.{how}({value!r})"
            case ast.Call(func=ast.Name(id="any" | "all" as how), args=[ast.GeneratorExp(elt=test, generators=[each])]):
                return self._each(how, test, each, here)
            case ast.Call(func=ast.Attribute(value=of, attr=asked), args=[ast.Constant(value=int() as least)]) if (
                asked in _CAPABILITIES and self._written(of, here) == "platform"
            ):
                return f"platform.{asked}({least})"
            case _:
                return UNKNOWN

    def _each(self, how: str, test: ast.expr, each: ast.comprehension, here: _Here) -> str:
        """Whether a test holds of one of several values, or of all of them."""
        held = self._written(each.iter, here)
        if UNKNOWN in held or each.ifs or not isinstance(each.target, ast.Name):
            return UNKNOWN
        name = each.target.id
        asked = self._written(test, replace(here, local={**here.local, name: name}, several=here.several - {name}))
        if UNKNOWN in asked:
            return UNKNOWN
        some = f"any(({asked if how == 'any' else f'(not {asked})'}) for {name} in {held})"
        return some if how == "any" else f"(not {some})"

    def _field(self, of: str, key: str) -> str:
        """A part of the whole, or a field of a part; a method of one line is what it returns."""
        if of == UNKNOWN or not re.fullmatch(r"\w+(\.\w+)?", of):
            return UNKNOWN
        if of == "self" and key == "vllm_config":
            return of
        if of == "other" and key in _OF_DRAFTERS:
            return _OF_DRAFTERS[key]
        if (of, key) == ("model.hf_config", "model_type"):
            return f"{of}.{key}"
        if self._whole_part(key):
            return self._whole_part(key)
        named = f"{'whole' if of == 'self' else of}.{key}"
        if "." in of:
            return UNKNOWN
        part = "" if of == "self" else of
        function = self.functions.get(part, {}).get(key)
        if function is None or named in _KEPT or part not in _FOLLOWED:
            return named
        return self._returned(function.body, _inside(part, function)) or named

    def _whole_part(self, name: str) -> str:
        """parallel_config → parallel; nothing for what is no part."""
        stem = name.removesuffix("_config")
        part = _NAMES.get(stem, stem)
        return part if stem != name and part in self.classes else ""

    def _returned(self, lines: list[ast.stmt], here: _Here) -> str | None:
        """What a method without arguments returns, as one expression; None where that is more than a test."""
        held: list[str] = []
        behind: list[str] = []
        for at, line in enumerate(lines):
            match line:
                case ast.Expr(value=ast.Constant()) | ast.ImportFrom() | ast.Import():
                    continue
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ):
                    here = self._named(here, name, value)
                case ast.If(test=asked, body=[ast.Return(value=ast.expr() as value)], orelse=[]):
                    test = self._written(asked, here)
                    held.append(_and([*behind, test, self._written(value, here)]))
                    behind.append(f"(not {test})")
                case ast.If() | ast.Expr():
                    list(self._of([line], behind, here, 0))  # what joins the lists
                case ast.Return(value=ast.expr() as value):
                    return _or([*held, _and([*behind, self._written(value, here)])])
                case _:
                    return None
            if at > 60:
                return None
        return None


def read(wheel: Wheel, options: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
    """Expression → what its names are made of."""
    return Joint(wheel, options).tests()


def _inside(part: str, function: ast.FunctionDef) -> _Here:
    stored = [n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return _Here(part, several=frozenset(name for name in stored if stored.count(name) > 1))


def _method(wheel: Wheel, path: str, name: str) -> ast.FunctionDef | None:
    """A method of a class of a file, if it is there."""
    owner, _, called = name.partition(".")
    for node in wheel.tree(path).body if path in wheel.files else ():
        if isinstance(node, ast.ClassDef) and node.name == owner:
            return next((f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == called), None)
    return None


def _entries(part: str, function: ast.FunctionDef) -> Iterator[_Here]:
    """A validator of the whole part, or of each of the fields that it names, whose value its parameter is."""
    here = _inside(part, function)
    if _validates(function):
        yield here
    for call in function.decorator_list:
        match call:
            case ast.Call(func=ast.Name(id="field_validator"), args=fields) if len(function.args.args) > 1:
                value = function.args.args[1].arg
                for field_name in fields:
                    if isinstance(field_name, ast.Constant) and value not in here.several:
                        yield replace(here, local={value: f"{part or 'whole'}.{field_name.value!s}"})
            case _:
                pass


def _constants(trees: Iterable[ast.Module]) -> dict[str, str]:
    """Names in capitals that one module gives a value that stands there."""
    made: dict[str, set[str]] = {}
    for tree in trees:
        for name, value in assigned(tree.body):
            inner = value.args[0] if isinstance(value, ast.Call) and len(value.args) == 1 else value
            if name.isupper() and inner is not None:
                made.setdefault(name, set()).add(ast.unparse(inner))
    known = {name: texts.pop() for name, texts in made.items() if len(texts) == 1}
    return {name: _tupled(text) for name, text in known.items() if literal(text) and text[0] not in "{["} | {
        name: _tupled(text) for name, text in known.items() if literal(text) and text[0] in "{[" and ":" not in text
    }


def _tupled(text: str) -> str:
    """A list or a set as a tuple."""
    found = ast.literal_eval(text)
    return repr(tuple(sorted(found) if isinstance(found, set) else found)) if isinstance(found, list | set) else text


def _compared(one: str, op: ast.cmpop, two: str) -> str:
    sign = ast.unparse(ast.Compare(ast.Name("a"), [op], [ast.Name("b")]))[1:-1]
    return UNKNOWN if UNKNOWN in {one, two} else f"({one}{sign}{two})"


# A launch has one model, which is not a part of another.
_ALWAYS = {"model is not None": True, "model is None": False, "model.is_submodel_config": False, "model": True}


def folded(test: str) -> str:
    """A test without what always holds."""
    return ast.unparse(_fold(ast.parse(test, mode="eval").body))


def _fold(node: ast.expr) -> ast.expr:
    if ast.unparse(node) in _ALWAYS:
        return ast.Constant(_ALWAYS[ast.unparse(node)])
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            inner = _fold(inner)
            if isinstance(inner, ast.Constant):
                return ast.Constant(not inner.value)
            return inner.operand if isinstance(inner, ast.UnaryOp) and isinstance(inner.op, ast.Not) else _no(inner)
        case ast.BoolOp(op=op, values=values):
            ends = isinstance(op, ast.Or)  # what decides an `or`
            parts: dict[str, ast.expr] = {}
            for part in map(_fold, values):
                if isinstance(part, ast.Constant) and isinstance(part.value, bool | None):
                    if bool(part.value) is ends:
                        return ast.Constant(ends)
                elif isinstance(part, ast.BoolOp) and type(part.op) is type(op):
                    parts |= {ast.unparse(p): p for p in part.values}
                else:
                    parts[ast.unparse(part)] = part
            if any(ast.unparse(_fold(_no(part))) in parts for part in parts.values()):
                return ast.Constant(ends)  # a test and its contrary
            kept = list(parts.values())
            return ast.BoolOp(op, kept) if len(kept) > 1 else kept[0] if kept else ast.Constant(not ends)
        case _:
            return node


def _no(node: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), node)


def _changed(wheel: Wheel) -> tuple[frozenset[str], frozenset[str], dict[str, list[str]]]:
    """Names (part.field) that some line of the start may set: to what is computed, whatever they hold, and where they
    hold nothing; and to which values that stand there."""
    moved: set[str] = set()
    filled: set[str] = set()
    becomes: dict[str, list[str]] = {}
    for path in wheel.paths(_CHANGES):
        for node in wheel.tree(path).body:
            own = _part(node.name) if isinstance(node, ast.ClassDef) and node.name.endswith(_OWN) else None
            for target, value, behind in _set(node, ()):
                of, field_name = ast.unparse(target.value), target.attr
                found = re.fullmatch(r"(?:.*\.)?(\w+)_config", of)
                part = own if of == "self" else found[1] if found else None
                if part is None:
                    continue
                name, plain = f"{part}.{field_name}", _plain(value)
                if plain is not None:
                    becomes.setdefault(name, []).append(plain)
                    continue
                empty = any(f"{of}.{field_name} is None" in test or test == f"not {of}.{field_name}" for test in behind)
                (filled if empty else moved).add(name)
    return frozenset(moved), frozenset(filled), {name: sorted(set(made)) for name, made in becomes.items()}


def _plain(value: ast.expr | None) -> str | None:
    """A value as it stands there: a constant, a member of a listed enum, or a variable of the environment."""
    match value:
        case ast.Constant(value=bool() | int() | float() | str() | None):
            return repr(value.value)
        case ast.Attribute(value=ast.Name(id=name), attr=member) if name in _ENUMS:
            return repr(member)
        case ast.Attribute(value=ast.Name(id="envs"), attr=member):
            return f"envs.{member}"
        case _:
            return None


def _set(node: ast.AST, behind: tuple[str, ...]) -> Iterator[tuple[ast.Attribute, ast.expr | None, tuple[str, ...]]]:
    """Each field that is set within a node, to what (None where it is computed), and the tests that this stands
    behind."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        value = None if isinstance(node, ast.AugAssign) else node.value
        yield from ((target, value, behind) for target in targets if isinstance(target, ast.Attribute))
    for child in ast.iter_child_nodes(node):
        inside = isinstance(node, ast.If) and child in node.body
        yield from _set(child, (*behind, ast.unparse(node.test)) if inside else behind)  # type: ignore[attr-defined]


def _validates(function: ast.FunctionDef) -> bool:
    said = [ast.unparse(d) for d in function.decorator_list]
    validates = any("model_validator" in text and "after" in text for text in said)
    return validates or function.name in {"__post_init__", "create_engine_config"}


def _and(tests: list[str]) -> str:
    """All of them; one that stands within another is said once."""
    return " and ".join(dict.fromkeys(test for test in tests if test != "True")) or "True"


def _or(tests: list[str]) -> str:
    return f"({' or '.join(f'({test})' for test in dict.fromkeys(tests))})" if tests else "False"


def _dotted(node: ast.expr) -> set[str]:
    made = {ast.unparse(n) for n in ast.walk(node) if isinstance(n, ast.Attribute)}
    inner = {n.value.id for n in ast.walk(node) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)}
    return made | {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id not in inner}


def decidable(test: str) -> bool:
    """Can it hold whatever the unknown is? Each `unknown` then stands beside an `or`."""
    return _holds(ast.parse(test, mode="eval").body)


def _holds(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name):
            return name != UNKNOWN
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_holds(part) for part in parts)
        case ast.BoolOp(op=ast.Or(), values=parts):
            return any(_holds(part) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return _fails(inner)
        case _:
            return True


def _fails(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name):
            return name != UNKNOWN
        case ast.BoolOp(op=ast.And(), values=parts):
            return any(_fails(part) for part in parts)
        case ast.BoolOp(op=ast.Or(), values=parts):
            return all(_fails(part) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return _holds(inner)
        case _:
            return True

"""What each attention backend takes, as its class says it, and in which order a release tries them.

From 0.11.1 on a backend answers for a head's size, the type of the cache, the compute capability and more, each in a
method of its own (v1/attention/backend.py AttentionBackend.validate_configuration). The body of such a method is
written down as one expression (bodies.py). An expression that can never be False is left out: it refuses nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from releases.assigned import assigned
from releases.bodies import DEPTH, UNKNOWN, Bodies, Here, any_of, both, fails, no
from releases.wheel import Wheel

# What is asked of a launch → the method that answers, and the name that the method has for it.
_QUESTIONS = {
    "head_size": ("supports_head_size", "head_size"),
    "kv_cache_dtype": ("supports_kv_cache_dtype", "kv_cache_dtype"),
    "dtype": ("supports_dtype", "dtype"),
    "block_size": ("supports_block_size", "block_size"),
    "capability": ("supports_compute_capability", "capability"),
    "attn_type": ("supports_attn_type", "attn_type"),
    "sink": ("supports_sink", ""),
    "mm_prefix": ("supports_mm_prefix", ""),
    "mla": ("is_mla", ""),
    "sparse": ("is_sparse", ""),
    "dcp": ("supports_dcp", ""),
    "pcp": ("supports_pcp", ""),
}
# What the kernels' own class says of these, where a release asks after the choice (v1/worker/cp_utils.py).
_OF_KERNELS = {"dcp": "can_return_lse_for_decode", "pcp": "supports_pcp"}
_SIZES = "get_supported_kernel_block_sizes"
_BASE = "AttentionBackend"
_COMPOSES = "create_composite_attention_backend"
# The backends of latent attention stand on a class that lies beside its layer from 0.15 on.
_FILES = r"vllm/((v1/)?attention/(backend|backends/.*)|model_executor/layers/attention/mla_attention)\.py"
_ORDER = "_get_backend_priorities"
_PLATFORM = "vllm/platforms/cuda.py"
_CACHES = r"vllm/config/(cache|__init__)\.py"
_ENUM = "AttentionBackendEnum"


class Backends(Bodies):
    """The backends of one wheel."""

    def __init__(self, wheel: Wheel) -> None:
        self.classes: dict[str, ast.ClassDef] = {}
        self.composed: dict[str, tuple[str, ...]] = {}
        self.numbers: dict[str, int] = {}
        for path in wheel.paths(_FILES):
            for node in wheel.tree(path).body:
                match node:
                    case ast.ClassDef():
                        self.classes.setdefault(node.name, node)
                    case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int() as number)):
                        self.numbers[name] = number
                    case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=by), args=parts)):
                        if by == _COMPOSES:
                            self.composed[name] = tuple(part.id for part in parts if isinstance(part, ast.Name))
        self.caches = _literals(wheel, "CacheDType")

    def takes(self, name: str) -> dict[str, str]:
        """Question → expression, of those that some launch could fail. One that is composed of two takes nothing that
        neither of them takes."""
        if name in self.composed:
            each = [self.takes(part) for part in self.composed[name]]
            asked = set.intersection(*map(set, each)) if each else set()
            return {one: any_of([takes[one] for takes in each]) for one in _QUESTIONS if one in asked}
        line = self._line(name)
        if not line or line[-1] != _BASE or self._method(_BASE, "validate_configuration") is None:
            return {}
        found = {question: self._answer(name, question) for question in _QUESTIONS}
        return {question: text for question, text in found.items() if fails(ast.parse(text, mode="eval").body)}

    def _line(self, name: str) -> list[str]:
        """A class and those before it, up to the first that is not here."""
        line: list[str] = []
        while name in self.classes and name not in line:
            line.append(name)
            known = [ast.unparse(base).partition("[")[0] for base in self.classes[name].bases]
            name = next((base for base in known if base in self.classes), "")
        return line

    def _method(self, name: str, method: str) -> tuple[str, ast.FunctionDef] | None:
        for owner in self._line(name):
            for line in self.classes[owner].body:
                if isinstance(line, ast.FunctionDef) and line.name == method:
                    return owner, line
        return None

    def _answer(self, name: str, question: str) -> str:
        method, argument = _QUESTIONS[question]
        if question in _OF_KERNELS:
            own = self._method(_BASE, method) is not None
            return self._of_kernel(name, method if own else _OF_KERNELS[question])
        told = self._call(name, name, method, {argument: question} if argument else {}, DEPTH)
        if question == "block_size" and told == UNKNOWN:
            return self._blocks(name)
        return told

    def _call(self, asked: str, start: str, method: str, local: Mapping[str, str], depth: int) -> str:
        """What a method returns, as one expression."""
        found = self._method(start, method)
        if found is None or not depth:
            return UNKNOWN
        owner, function = found
        names = [a.arg for a in function.args.args if a.arg not in {"cls", "self"}]
        given = {**local, **(dict(zip(names[:1], local.values(), strict=False)) if local else {})}
        return self.returned(function.body, Here(asked, owner, given, depth)) or UNKNOWN

    def written(self, node: ast.expr, here: Here) -> str:
        """A launch has a value of each question: none of them is None."""
        match node:
            case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(value=None)]):
                known = self.written(left, here) != UNKNOWN
                return str(isinstance(op, ast.IsNot)) if known else UNKNOWN
            case _:
                return super().written(node, here)

    def other(self, node: ast.expr, here: Here) -> str:
        """What stands in a backend's methods."""
        match node:
            case ast.Name(id=name) if name.endswith("capability"):
                return "capability"
            case ast.Attribute(value=ast.Name(id="torch"), attr=kind):
                return repr(kind)
            case ast.Attribute(value=ast.Name(id="AttentionType"), attr=kind):
                return repr(kind.lower())
            case ast.Attribute(value=ast.Name(id="cls"), attr=name):
                return self._listed(here.asked, name)
            case ast.Attribute(value=of, attr="major") if self.written(of, here) == "capability":
                return "major"
            case ast.Call(func=ast.Name(id="DeviceCapability"), args=args, keywords=keys):
                parts = [*args, *(key.value for key in keys)]
                whole = [str(part.value) for part in parts if isinstance(part, ast.Constant)]
                return ".".join([*whole, "0"][:2]) if len(whole) == len(parts) else UNKNOWN
            case ast.Call(func=ast.Attribute(value=of, attr="startswith"), args=[ast.Constant(value=str() as word)]):
                return self._begins(self.written(of, here), word)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="current_platform"), attr=asked), args=args):
                return _of_platform(asked, args)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="cls"), attr=method), args=args):
                return self._inner(here.asked, method, args, here)
            case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=method), args=args):
                above = self._line(here.owner)[1:2]
                return self._inner(above[0], method, args, here) if above else UNKNOWN
            case _:
                return UNKNOWN

    def _inner(self, start: str, method: str, args: Sequence[ast.expr], here: Here) -> str:
        given = {str(at): self.written(arg, here) for at, arg in enumerate(args)}
        return self._call(here.asked, start, method, given, here.depth - 1)

    def _begins(self, of: str, word: str) -> str:
        """A text that begins so is one of those that the release lists."""
        if of != "kv_cache_dtype" or not self.caches:
            return UNKNOWN
        found = tuple(name for name in self.caches if name.startswith(word))
        return f"(kv_cache_dtype in {found!r})" if found else "False"

    def _listed(self, name: str, attribute: str) -> str:
        """A list that a class or one before it has."""
        for owner in self._line(name):
            for key, value in assigned(self.classes[owner].body):
                if key == attribute and value is not None:
                    return self.written(value, Here(owner, owner, {}))
        return UNKNOWN

    def _blocks(self, name: str) -> str:
        """A block is a multiple of some size that the kernel takes; of several lists any may be the one."""
        found = self._method(name, _SIZES)
        lists = [node.value for node in ast.walk(found[1]) if isinstance(node, ast.Return)] if found else []
        if not lists or found is None:
            return UNKNOWN
        bound = {
            node.target.id: self._returned_sizes(name, node.value.func.attr)
            for node in ast.walk(found[1])
            if isinstance(node, ast.NamedExpr)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute)
        }
        sizes = {size for value in lists for size in _sizes(value, bound)}
        if None in sizes or not sizes:
            return UNKNOWN
        return any_of([f"(block_size % {size} == 0)" for size in sorted(size for size in sizes if size is not None)])

    def _returned_sizes(self, name: str, method: str) -> tuple[int | None, ...]:
        """The numbers that a method may return; None among them for what is no plain one."""
        found = self._method(name, method)
        if found is None:
            return (None,)
        values = [node.value for node in ast.walk(found[1]) if isinstance(node, ast.Return)]
        told = [value for value in values if not (isinstance(value, ast.Constant) and value.value is None)]
        return tuple(self._number(value) for value in told)

    def _number(self, value: ast.expr | None) -> int | None:
        match value:
            case ast.Constant(value=int() as number):
                return number
            case ast.Name(id=name):
                return self.numbers.get(name)
            case _:
                return None

    def _of_kernel(self, name: str, attribute: str) -> str:
        """What the class of the kernels says of itself (AttentionImplBase.supports_dcp)."""
        found = self._method(name, "get_impl_cls")
        last = found[1].body[-1] if found else None
        if not isinstance(last, ast.Return) or not isinstance(last.value, ast.Name):
            return UNKNOWN
        return self._listed(last.value.id, attribute)


def read(wheel: Wheel) -> Backends:
    """The backends of a wheel."""
    return Backends(wheel)


def order(wheel: Wheel) -> dict[str, dict[str, object]]:
    """Condition → the backends that are tried where it holds, in their order; `maybe` are those that may be left
    out."""
    made: dict[str, dict[str, object]] = {}
    for node in wheel.tree(_PLATFORM).body if _PLATFORM in wheel.files else ():
        if isinstance(node, ast.FunctionDef) and node.name == _ORDER:
            for test, names, maybe in _lists(node, node.body, []):
                made[test] = {"names": names, **({"maybe": maybe} if maybe else {})}
    return made


def _lists(
    function: ast.FunctionDef, lines: Sequence[ast.stmt], behind: list[str]
) -> Iterator[tuple[str, list[str], list[str]]]:
    for line in lines:
        match line:
            case ast.If(test=asked, body=body, orelse=other):
                test = _asked(asked)
                yield from _lists(function, body, [*behind, test])
                yield from _lists(function, other, [*behind, no(test)])
            case ast.Return(value=ast.List(elts=parts)):
                sure = {part.attr for part in parts if isinstance(part, ast.Attribute)}
                names = [name for part in parts for name in _named(function, part)]
                yield both(behind), names, [name for name in names if name not in sure]


def _named(function: ast.FunctionDef, part: ast.expr) -> list[str]:
    """The backends of one place of a list; of a list that is put in, all that it may have."""
    inside = [n.attr for n in ast.walk(part) if isinstance(n, ast.Attribute) and ast.unparse(n.value) == _ENUM]
    if inside or not isinstance(part, ast.Starred):
        return inside
    word = ast.unparse(part.value)
    # Names that are put into the list stand in lines of their own: all that the function names before may be there.
    lines = [
        n
        for n in ast.walk(function)
        if isinstance(n, ast.Assign) or (isinstance(n, ast.Expr) and word in ast.unparse(n))
    ]
    found = (n for line in lines for n in ast.walk(line) if isinstance(n, ast.Attribute))
    return list(dict.fromkeys(n.attr for n in found if ast.unparse(n.value) == _ENUM))


def _asked(node: ast.expr) -> str:
    """A condition of the order in the names of the questions."""
    match node:
        case ast.Name(id="use_mla"):
            return "mla"
        case ast.BoolOp(op=op, values=parts):
            told = [_asked(part) for part in parts]
            return both(told) if isinstance(op, ast.And) else any_of(told)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return no(_asked(inner))
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=int() as number)]):
            return f"(major == {number})" if ast.unparse(left).endswith("capability.major") else UNKNOWN
        case _:
            return UNKNOWN


def _sizes(value: ast.expr | None, bound: Mapping[str, Sequence[int | None]]) -> Iterator[int | None]:
    """The sizes of a list, a multiple as its base; None for what is not a plain list of them. `bound` has the numbers
    that an `if` above the list has given names to."""
    for part in value.elts if isinstance(value, ast.List) else [None]:
        match part:
            case ast.Constant(value=int() as size):
                yield size
            case ast.Call(func=ast.Name(id="MultipleOf"), args=[ast.Constant(value=int() as size)]):
                yield size
            case ast.Name(id=name) if name in bound:
                yield from bound[name]
            case _:
                yield None


def _literals(wheel: Wheel, name: str) -> tuple[str, ...]:
    for path in wheel.paths(_CACHES):
        for key, value in assigned(wheel.tree(path).body):
            if key == name and value is not None:
                told = [n.value for n in ast.walk(value) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
                return tuple(told)
    return ()


def _of_platform(asked: str, args: Sequence[ast.expr]) -> str:
    number = args[0].value if len(args) == 1 and isinstance(args[0], ast.Constant) else None
    if asked in {"is_cuda", "is_cuda_alike"}:
        return "True"
    if re.fullmatch(r"is_(rocm|xpu|cpu|tpu|out_of_tree)", asked):
        return "False"
    if not isinstance(number, int):
        return UNKNOWN
    signs = {"is_device_capability": "==", "has_device_capability": ">="}
    if asked == "is_device_capability_family":
        return f"(major == {number // 10})"
    return f"(capability {signs[asked]} {number // 10}.{number % 10})" if asked in signs else UNKNOWN

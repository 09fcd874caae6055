"""Every regular expression of the package, and for each the texts that would make a bad one slow.

A slow pattern is one that looks at a text again and again: two repeats that can take the same characters, or a repeat
that every place of the text starts anew. So for each repeat the texts are what leads to it, many times what it takes,
and an end that fails; and the pattern's own beginning many times over.
"""

import ast
import importlib
import pkgutil
import re
import re._constants as op
import re._parser as parser  # what Python itself reads a pattern with
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import vllm_doctor
from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.log.match import catalogue, messages

PACKAGE = Path(vllm_doctor.__file__).parent
# Run by a maintainer over vLLM's own source, never over what others wrote.
OURS = {"extract.py", "extract_kernels.py"}
METHODS = ("match", "fullmatch", "search", "finditer", "findall", "sub", "subn", "split")
_FEW = 64
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)
_ALPHABET = "a0A -_./:\"'[{(=,\t\n;%|é"
_CATEGORIES = {
    op.CATEGORY_DIGIT: r"\d", op.CATEGORY_NOT_DIGIT: r"\D", op.CATEGORY_SPACE: r"\s", op.CATEGORY_NOT_SPACE: r"\S",
    op.CATEGORY_WORD: r"\w", op.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip


class Found(NamedTuple):
    """One expression, where it stands, and how it is asked."""

    text: str | bytes
    flags: int
    where: str
    methods: tuple[str, ...]


def everything() -> list[Found]:
    """All expressions: compiled ones of every module and its tables, lazy ones, messages, and those in calls of re."""
    found: dict[tuple[str | bytes, int], str] = {}
    for module in pkgutil.walk_packages(vllm_doctor.__path__, "vllm_doctor."):
        try:
            importlib.import_module(module.name)
        except ImportError:
            continue  # what loads NVIDIA's library
    for name, module in list(sys.modules.items()):
        if name.startswith("vllm_doctor") and Path(module.__file__ or "").name not in OURS:
            _held(vars(module), name, found, set())
    for message in messages():
        if message.regex:
            found.setdefault((message.regex, 0), f"message {message.id}")
    source = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    kept = [Found(text, flags, where, _asked(where, source)) for (text, flags), where in found.items()]
    return [*kept, *_in_calls()]


def _held(value: Any, where: str, found: dict[tuple[str | bytes, int], str], seen: set[int], depth: int = 0) -> None:
    if id(value) in seen or depth > 6:
        return
    seen.add(id(value))
    if isinstance(value, re.Pattern):
        found.setdefault((value.pattern, value.flags & ~re.UNICODE), where)
    elif isinstance(value, Pattern):
        found.setdefault((value.text, int(value.flags)), where)
    elif isinstance(value, dict):
        for name, item in list(value.items()):
            if depth or not name.startswith("__"):
                _held(item, where if depth else f"{where}.{name}", found, seen, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            _held(item, where, found, seen, depth + 1)
    elif type(value).__module__.startswith("vllm_doctor"):
        for name in getattr(value, "__struct_fields__", None) or getattr(value, "__dict__", ()):
            _held(getattr(value, name, None), where, found, seen, depth + 1)


def _asked(where: str, source: str) -> tuple[str, ...]:
    """By which methods its name is asked: a private one in its own module, another one anywhere."""
    if where.startswith("message "):
        message = catalogue()[where.removeprefix("message ")]
        method = {"start": "match", "whole": "fullmatch", "": "search"}[message.place]
        return (method, "finditer") if message.id in _gone_through(source) else (method,)
    module, _, name = where.rpartition(".")
    if name.startswith("_") and (path := sys.modules[module].__file__) is not None:
        source = Path(path).read_text()
    name = re.escape(name)
    asked = set(re.findall(rf"\b{name}\.({'|'.join(METHODS)})\(", source))
    return tuple(sorted({_kind(method) for method in asked})) or ("finditer",)


@lru_cache(maxsize=1)
def _gone_through(source: str) -> frozenset[str]:
    """Messages of which every one in a text is asked for."""
    return frozenset(re.findall(r'(?:each|without)\(\s*"([^"]+)"', source))


def _kind(method: str) -> str:
    return method if method in {"match", "fullmatch", "search"} else "finditer"


def _in_calls() -> Iterator[Found]:
    """`re.search("…", text)`: the expression stands in the call."""
    for path in PACKAGE.rglob("*.py"):
        if path.name in OURS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            first = node.args[0]
            of_re = isinstance(node.func.value, ast.Name) and node.func.value.id == "re" and node.func.attr in METHODS
            if of_re and isinstance(first, ast.Constant) and isinstance(first.value, str | bytes):
                rest = [*node.args[1:], *(word.value for word in node.keywords)]
                names = [x.attr for a in rest for x in ast.walk(a) if isinstance(x, ast.Attribute)]
                flags = [getattr(re, n) for n in names if isinstance(getattr(re, n, None), re.RegexFlag)]
                yield Found(first.value, int(sum(flags)), f"{path.name}:{node.lineno}", (_kind(node.func.attr),))


Tree = Sequence[tuple[Any, Any]]


def adversaries(text: str | bytes, flags: int) -> list[tuple[str, str]]:
    """(what comes once, what is repeated); nothing for an expression whose every repeat is short."""
    tree: Tree = list(parser.parse(text, flags))  # type: ignore[arg-type]
    places = list(_repeats(tree, ""))
    if not places:
        return []
    found: dict[tuple[str, str], None] = {}
    for lead, body in places:
        for pick in range(4):
            pump = _sample(body, pick, least=1, branch=pick)
            found |= dict.fromkeys([(lead, pump), ("", lead + pump), ("", lead), (lead, pump + " ")])
        found["", lead + _sample(body, 0, least=1) * 3] = None
    for pick in range(3):
        for branch in range(6):
            for least in (0, 1, 3):
                whole = _sample(tree, pick, least=least, branch=branch)
                cut = whole[: len(whole) // 2]
                found |= dict.fromkeys([("", whole), ("", whole[:-1]), ("", f"{whole} "), ("", cut)])
    found |= dict.fromkeys(("", sign) for sign in {*"a0 -.\"'/=", *_literals(tree)})
    return [(once, core) for once, core in found if core]


def _repeats(tree: Tree, before: str) -> Iterator[tuple[str, Tree]]:
    """A text that leads to each long repeat, and what it repeats."""
    for at, (kind, value) in enumerate(tree):
        lead = before + _sample(tree[:at])
        if kind in _REPEATS and value[1] >= _FEW:
            yield lead, list(value[2])
        for inner in _inside(kind, value):
            yield from _repeats(inner, lead)


def _inside(kind: Any, value: Any) -> list[Tree]:
    if kind in _REPEATS:
        return [list(value[2])]
    if kind is op.BRANCH:
        return [list(branch) for branch in value[1]]
    if kind is op.SUBPATTERN:
        return [list(value[3])]
    if kind in {op.ASSERT, op.ASSERT_NOT}:
        return [list(value[1])]
    return [list(value)] if kind is op.ATOMIC_GROUP else []


def _sample(tree: Tree, pick: int = 0, least: int = 0, branch: int = 0) -> str:
    """A text that it matches, with `least` turns of each repeat that may have none."""
    parts: list[str] = []
    for kind, value in tree:
        if kind is op.LITERAL:
            parts.append(chr(value))
        elif kind is op.NOT_LITERAL:
            parts.append(_sign([(op.NEGATE, None), (op.LITERAL, value)], pick))
        elif kind is op.ANY:
            parts.append(_ALPHABET[pick])
        elif kind is op.IN:
            parts.append(_sign(value, pick))
        elif kind is op.BRANCH:
            parts.append(_sample(list(value[1][branch % len(value[1])]), pick, least, branch))
        elif kind in _REPEATS:
            turns = max(value[0], min(least, value[1]))
            parts.append(_sample(list(value[2]), pick, least, branch) * min(turns, 8))
        elif kind in {op.SUBPATTERN, op.ATOMIC_GROUP}:
            parts.append(_sample(_inside(kind, value)[0], pick, least, branch))
    return "".join(parts)


def _sign(items: Any, pick: int) -> str:
    fits = _class(items)
    good = [sign for sign in _ALPHABET if fits(sign)]
    listed = [chr(value) for kind, value in items if kind is op.LITERAL] or ["\x01"]
    return good[pick % len(good)] if good else listed[0]


def _class(items: Any) -> Callable[[str], bool]:
    def fits(sign: str) -> bool:
        hit = any(
            (kind is op.LITERAL and ord(sign) == value)
            or (kind is op.RANGE and value[0] <= ord(sign) <= value[1])
            or (kind is op.CATEGORY and re.match(_CATEGORIES[value], sign) is not None)
            for kind, value in items
        )
        return hit != any(kind is op.NEGATE for kind, _ in items)

    return fits


def _literals(tree: Tree) -> Iterator[str]:
    for kind, value in tree:
        if kind is op.LITERAL:
            yield chr(value)
        for inner in _inside(kind, value):
            yield from _literals(inner)

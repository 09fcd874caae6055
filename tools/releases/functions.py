"""Where each function of vLLM stands in each release, and in which its body changed (knowledge/functions/vllm.json).

A traceback names a file, a line and a function, and vLLM's logger a file and a line. Code moves with nearly every
release, so a handful of them tells which release wrote a log that has no version in it. Whether a later release still
has the body that failed says what an upgrade can do.

A file's row is `runs|loggers|functions`, parted by bars, each for the file's contents in their order:

- `runs`: the releases of each content by their places, `0-3,4-7`.
- `loggers`: the lines at which the logger is called, each as its distance from the one before; contents parted by `/`.
- `functions`: `Class.name` and a word for each content, functions parted by `;`: `@120+15` is a new body that begins
  at line 120 and ends 15 lines below; `~120+16` is the same body laid out over other lines, `4` the same one 4 lines
  further down, `=` at the same place; `-` is none.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from releases.wheel import Wheel

FILE = Path(__file__).resolve().parents[2] / "vllm_doctor" / "knowledge" / "functions" / "vllm.json"
_SOURCE = "vLLM's wheels, read by tools/release.py functions"
# Copies of other projects, and what no server runs.
ASIDE = re.compile(r"vllm/(?:third_party/|vllm_flash_attn/|benchmarks/|entrypoints/cli/benchmark/)")
# vLLM's logger, with what it says once alone (vllm/logger.py).
_SAYS = re.compile(r"(?:debug|info|warning|error|exception|critical|log)(?:_once)?")


@dataclass(frozen=True)
class Function:
    """Where one stands, and its body without its own strings of documentation."""

    first: int
    last: int
    body: bytes


@dataclass(frozen=True)
class Content:
    """What one content of a file has: its functions by `Class.name`, and the lines that call the logger."""

    functions: Mapping[str, Function]
    loggers: tuple[int, ...]


class Reader:
    """Reads each content once: most files are the same in the next release."""

    def __init__(self) -> None:
        self._read: dict[bytes, Content] = {}

    def release(self, wheel: Wheel) -> dict[str, Content]:
        """By the file's path without `vllm/`."""
        return {path.removeprefix("vllm/"): self._content(wheel, path) for path in wheel.files if not ASIDE.match(path)}

    def _content(self, wheel: Wheel, path: str) -> Content:
        mark = hashlib.blake2b(wheel.files[path].encode()).digest()
        if mark not in self._read:
            self._read[mark] = content(wheel.tree(path))
        return self._read[mark]


def content(tree: ast.Module) -> Content:
    """The functions and the logger's lines of a source."""
    functions: dict[str, Function] = {}
    loggers: set[int] = set()
    for name, node in _walk(tree, ""):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                functions[_unused(name, functions)] = Function(node.lineno, node.end_lineno or node.lineno, _body(node))
            case ast.Call(func=ast.Attribute(attr=attribute)) if _SAYS.fullmatch(attribute):
                loggers.add(node.lineno)
    return Content(functions, tuple(sorted(loggers)))


def _unused(name: str, functions: Mapping[str, Function]) -> str:
    """Of two of one name in one class (a property and its setter) the second is another one."""
    while name in functions:
        name += "'"
    return name


def _walk(node: ast.AST, within: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        inner = within
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield f"{within}{child.name}", child
            inner = f"{within}{child.name}."
        else:
            yield within, child
        yield from _walk(child, inner)


def _body(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bytes:
    """What it does: without its strings of documentation, which `ast` has as statements."""
    said = [_without_documentation(statement) for statement in node.body]
    text = "".join((ast.dump(node.args), *(ast.dump(one) for one in node.decorator_list), *said))
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def _without_documentation(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return ""
    return ast.dump(statement)


def table(releases: Mapping[str, Mapping[str, Content]]) -> str:
    """The file's text, of all releases, oldest first."""
    paths = sorted({path for held in releases.values() for path in held})
    rows = {path: row([held.get(path) for held in releases.values()]) for path in paths}
    listed = ",\n".join(f"{json.dumps(path)}: {json.dumps(told)}" for path, told in rows.items() if told)
    head = f'"source": {json.dumps(_SOURCE)},\n"releases": {json.dumps(list(releases))}'
    return f'{{{head},\n"files": {{\n{listed}\n}}}}\n'


def row(releases: Iterable[Content | None]) -> str:
    """A file's row, of its content in each release; empty where no function ever stands in it."""
    contents = list(_runs(releases))
    names = sorted({name for _, _, one in contents for name in one.functions})
    if not names:
        return ""
    runs = ",".join(f"{first}-{last}" for first, last, _ in contents)
    loggers = "/".join(",".join(_distances(one.loggers)) for _, _, one in contents)
    functions = (" ".join((name, *_words(one.functions.get(name) for _, _, one in contents))) for name in names)
    return f"{runs}|{loggers}|{';'.join(functions)}"


def _runs(releases: Iterable[Content | None]) -> Iterator[tuple[int, int, Content]]:
    """Each content with the first and the last release of an unbroken run of it."""
    begun: tuple[int, Content] | None = None
    at = -1
    for at, held in enumerate(releases):
        if begun is not None and held is not begun[1]:
            yield begun[0], at - 1, begun[1]
            begun = None
        if held is not None and begun is None:
            begun = at, held
    if begun is not None:
        yield begun[0], at, begun[1]


def _distances(lines: tuple[int, ...]) -> Iterator[str]:
    return (str(after - before) for before, after in pairwise((0, *lines)))


def _words(contents: Iterable[Function | None]) -> Iterator[str]:
    before: Function | None = None
    for one in contents:
        if one is None:
            yield "-"
            continue
        same = before is not None and before.body == one.body and before.last - before.first == one.last - one.first
        if before is None or not same:
            # The same statements over more lines are the same body, and stand elsewhere.
            mark = "~" if before is not None and before.body == one.body else "@"
            yield f"{mark}{one.first}+{one.last - one.first}"
        else:
            yield str(one.first - before.first) if one.first != before.first else "="
        before = one

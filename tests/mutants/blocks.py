"""Notes which blocks of the rooms run: a call at the head of each suite of a function, put in as it is imported.

A trace function would be called for every line, and the interpreter specializes nothing beside one: that took three
times as long. A line is run where its block is begun, but for what raised before it.
"""

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path

_NOTE = "__note__"


class Noting(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports the modules below some folders; `began` gathers (file, line of the block)."""

    def __init__(self, repo: Path, folders: Sequence[str]) -> None:
        self.repo, self.folders = repo, folders
        self.began: set[tuple[str, int]] = set()

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith(tuple(f"vllm_doctor.{folder}" for folder in self.folders)):
            return None
        path = self._path(name)
        if not path.is_file():
            return None
        package = [str(path.parent)] if path.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(name, path, loader=self, submodule_search_locations=package)

    def _path(self, name: str) -> Path:
        stem = self.repo.joinpath(*name.split("."))
        return stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")

    def get_source(self, name: str) -> str:
        return self._path(name).read_text(encoding="utf-8")

    def get_code(self, name: str) -> types.CodeType:
        path = self._path(name)
        tree = ast.parse(self.get_source(name))
        for suite in suites(tree):
            at = 1 if isinstance(suite[0], ast.Expr) and isinstance(suite[0].value, ast.Constant) else 0
            call = ast.parse(f"{_NOTE}(({str(path.relative_to(self.repo))!r}, {suite[0].lineno}))").body[0]
            for node in ast.walk(call):
                ast.copy_location(node, suite[0])
            suite.insert(at, call)
        code: types.CodeType = compile(ast.fix_missing_locations(tree), str(path), "exec")
        return code

    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__[_NOTE] = self.began.add
        super().exec_module(module)

    def put_in(self) -> None:
        sys.meta_path.insert(0, self)


def suites(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Each list of statements within a function, a branch's and a loop's too."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _within(function)


def _within(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        suite = getattr(node, name, None)
        if isinstance(suite, list) and suite:
            yield suite
            for statement in list(suite):
                if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    yield from _within(statement)
    for inner in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield from _within(inner)


def block_of(source: str) -> dict[int, int]:
    """By line the line of its block; lines outside of functions have none."""
    found: dict[int, int] = {}
    tree = ast.parse(source)
    for suite in sorted(suites(tree), key=lambda one: one[0].lineno):  # inner blocks come later, and take their lines
        for line in range(suite[0].lineno, (suite[-1].end_lineno or 0) + 1):
            found[line] = suite[0].lineno
    return found

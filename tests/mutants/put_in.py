"""Puts a changed module in the place of the right one: as it is imported, or in the functions that are there already;
here, and in the modules of ours that this process starts.

`gather/processes.py` starts a module in an isolated interpreter, so no variable reaches it; what it starts is
`sys.executable`. While a bug is tried that is a script, which puts the bug in before the module runs.
"""

import ast
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import runpy
import shlex
import sys
import types
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])

from tests.mutants.mutate import mutant, sites  # as a script, from the folder named just before

REPO = Path(__file__).resolve().parents[2]


class OnlyByImportError(Exception):
    """The bug is in what runs as the module is imported, so functions that are there already cannot have it."""


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports one module from a changed tree."""

    def __init__(self, path: Path, number: int) -> None:
        self.name = _name(path)
        self.path = path
        source = path.read_text(encoding="utf-8")
        self.tree = mutant(source, sites(source)[number]).tree

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        package = [str(self.path.parent)] if self.path.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(name, self.path, loader=self, submodule_search_locations=package)

    def get_source(self, _: str) -> str:
        return self.path.read_text(encoding="utf-8")

    def get_code(self, _: str) -> types.CodeType:
        code: types.CodeType = compile(self.tree, str(self.path), "exec")
        return code


def _name(path: Path) -> str:
    return ".".join(path.relative_to(REPO).with_suffix("").parts).removesuffix(".__init__")


def put_in(path: Path, number: int, folder: Path) -> None:
    """From now on change `number` of the module at `path` is in what is imported, and in what `sys.executable` runs.

    Where the module is imported already, its functions get the changed code. Raises OnlyByImportError."""
    changed = _Changed(path, number)
    if changed.name in sys.modules:
        _into_functions(path, number)
    else:
        sys.meta_path.insert(0, changed)
    program = folder / "python"
    words = (sys.executable, "-I", __file__, str(REPO), str(path), str(number), sys.executable)
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
    program.chmod(0o700)
    sys.executable = str(program)


def functions(path: Path, number: int) -> dict[types.CodeType, types.CodeType]:
    """By each function's code what it is with the bug, where that is another. Raises OnlyByImportError where what runs
    outside of functions is another."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return dict(_differing(compile(tree, str(path), "exec"), _Changed(path, number).get_code("")))


def _differing(old: types.CodeType, new: types.CodeType) -> Iterator[tuple[types.CodeType, types.CodeType]]:
    within = old.co_flags & inspect.CO_OPTIMIZED
    if not within and _outside(old) != _outside(new):
        raise OnlyByImportError
    if within and old != new:
        yield old, new
    ours, theirs = _codes(old), _codes(new)
    if len(ours) == len(theirs):
        for one, other in zip(ours, theirs, strict=True):
            yield from _differing(one, other)


def _codes(code: types.CodeType) -> list[types.CodeType]:
    return [one for one in code.co_consts if isinstance(one, types.CodeType)]


def _outside(code: types.CodeType) -> tuple[object, ...]:
    """What a module or a class does itself, its functions' bodies left out; 1 and True are two things."""
    told = [one.co_name if isinstance(one, types.CodeType) else repr(one) for one in code.co_consts]
    return code.co_code, code.co_names, told


def _into_functions(path: Path, number: int) -> None:
    of = functions(path, number)
    found = [
        one
        for one in gc.get_objects()
        if isinstance(one, types.FunctionType) and one.__code__.co_filename == str(path) and one.__code__ in of
    ]
    if not found:
        raise OnlyByImportError
    try:
        for one in found:
            one.__code__ = of[one.__code__]
    except ValueError:  # it no longer has a variable of the function around it
        raise OnlyByImportError from None


def _run(path: Path, number: int, python: str, words: list[str]) -> None:
    """What the interpreter would have done with these words; the bug is in a module that is named with -m alone."""
    if words[:2] != ["-I", "-m"]:
        os.execv(python, [python, *words])  # noqa: S606
    sys.meta_path.insert(0, _Changed(path, number))
    sys.argv = words[2:]
    runpy.run_module(words[2], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5:])

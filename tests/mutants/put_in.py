"""Puts a changed module in its place as it is imported, here and in the modules of ours that this process starts.

`gather/run.py` starts a module in an interpreter of its own, isolated, so no variable reaches it; what it starts is
`sys.executable`. While a bug is tried that is a script, which puts the bug in before the module runs.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import runpy
import shlex
import sys
import types
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])

from tests.mutants.mutate import mutant, sites  # as a script, from the folder named just before

REPO = Path(__file__).resolve().parents[2]


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports one module from a changed tree."""

    def __init__(self, path: Path, number: int) -> None:
        self.name = ".".join(path.relative_to(REPO).with_suffix("").parts).removesuffix(".__init__")
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


def put_in(path: Path, number: int, folder: Path) -> None:
    """From now on change `number` of the module at `path` is in what is imported, and in what `sys.executable` runs."""
    sys.meta_path.insert(0, _Changed(path, number))
    program = folder / "python"
    words = (sys.executable, "-I", __file__, str(REPO), str(path), str(number), sys.executable)
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
    program.chmod(0o700)
    sys.executable = str(program)


def _run(path: Path, number: int, python: str, words: list[str]) -> None:
    """What the interpreter would have done with these words; the bug is in a module that is named with -m alone."""
    if words[:2] != ["-I", "-m"]:
        os.execv(python, [python, *words])  # noqa: S606
    sys.meta_path.insert(0, _Changed(path, number))
    sys.argv = words[2:]
    runpy.run_module(words[2], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5:])

"""Every sentence of a `raise` or an `assert`, as fingerprints, with the function that says it (said_by.json).

A release adds its own: a row whose sentence it still has goes on, one that it lacks ends with the release before. A row
ends with `-` where the newest release has it, so that the next one moves no line.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from releases import texts
from releases.wheel import Wheel
from vllm_doctor.knowledge import said_by
from vllm_doctor.knowledge.version import as_version

FILE = Path(said_by.__file__).with_name("said_by.json")
_SOURCE = "vLLM's wheels, each `raise` and `assert` with a sentence: tools/release.py said"
_LEFT_OUT = ("vllm/benchmarks/", "vllm/assets/", "vllm/third_party/", "vllm/vllm_flash_attn/")

Row = tuple[str, str, str, str]  # fingerprints, file, function, kind


def read(wheel: Wheel) -> frozenset[Row]:
    """The sentences of one release."""
    return frozenset(_rows(wheel))


def _rows(wheel: Wheel) -> Iterator[Row]:
    for path, text in wheel.files.items():
        if path.startswith("vllm/") and not path.startswith(_LEFT_OUT) and ("raise " in text or "assert " in text):
            for function, kind, sentence in _raised(wheel.tree(path), ""):
                if prints := said_by.told_by(sentence, texts.HOLE):
                    yield prints, path, function, kind


def _raised(node: ast.AST, function: str) -> Iterator[tuple[str, str, str]]:
    for child in ast.iter_child_nodes(node):
        inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if isinstance(child, ast.Raise) and isinstance(child.exc, ast.Call):
            kind = ast.unparse(child.exc.func).rpartition(".")[2]
            yield from ((function, kind, one) for one in _sentences(child.exc))
        elif isinstance(child, ast.Assert) and child.msg is not None:
            yield from ((function, "AssertionError", one) for one in _sentences(child.msg))
        yield from _raised(child, inner)


def _sentences(node: ast.expr) -> Iterator[str]:
    return texts.templates(ast.Module(body=[ast.Return(value=node)], type_ignores=[]))


def merge(wheels: Iterable[Wheel], file: Path = FILE) -> int:
    """Add these releases to the table, or read them once more; how many rows the table then has."""
    releases, lists, found = _load(file)
    for wheel in wheels:
        for held in found.values():
            held.discard(wheel.version)
        for row in read(wheel):
            found.setdefault(row, set()).add(wheel.version)
        releases = sorted({*releases, wheel.version}, key=as_version)
    lines = sorted(_lines(releases, {row: held for row, held in found.items() if held}))
    # What is listed keeps its place, so that rows of earlier releases stay as they are.
    lists = [[*known, *sorted({line[at] for line in lines}.difference(known))] for at, known in enumerate(lists, 1)]
    places = [{name: str(i) for i, name in enumerate(names)} for names in lists]
    rows = [
        " ".join([prints, places[0][path], places[1][function], places[2][kind], span])
        for prints, path, function, kind, span in lines
    ]
    told = zip(("releases", "files", "functions", "kinds", "rows"), (releases, *lists, rows), strict=True)
    parts = [json.dumps({"source": _SOURCE})[1:-1], *(f"{json.dumps(name)}: {_listed(held)}" for name, held in told)]
    file.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")
    return len(rows)


def _listed(held: list[str]) -> str:
    return "[\n" + ",\n".join(json.dumps(one) for one in held) + "\n]"


def _lines(releases: list[str], found: dict[Row, set[str]]) -> Iterator[tuple[str, str, str, str, str]]:
    """A row for each unbroken run of releases that have a sentence there."""
    for row, held in found.items():
        start: int | None = None
        for at, version in enumerate([*releases, ""]):
            if version in held:
                start = at if start is None else start
            elif start is not None:
                yield (*row, f"{start}-" if at == len(releases) else f"{start}-{at - 1}")
                start = None


def _load(file: Path) -> tuple[list[str], list[list[str]], dict[Row, set[str]]]:
    if not file.is_file():
        return [], [[], [], []], {}
    told = json.loads(file.read_text(encoding="utf-8"))
    releases: list[str] = told["releases"]
    found: dict[Row, set[str]] = {}
    for line in told["rows"]:
        prints, path, function, kind, span = line.split(" ")
        first, _, last = span.partition("-")
        row = (prints, told["files"][int(path)], told["functions"][int(function)], told["kinds"][int(kind)])
        found.setdefault(row, set()).update(releases[int(first) : int(last) + 1 if last else None])
    return releases, [told["files"], told["functions"], told["kinds"]], found

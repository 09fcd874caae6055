"""Does the code show when a behaviour of the planner came and went?

Each row of behaviours.json names what it was read in. Where that is the same in the release before and in the release
from which the row dates it, either the date is wrong or something else changed, and the row should name that.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from releases.wheel import Wheel
from vllm_doctor.knowledge.version import Version, as_version
from vllm_doctor.plan.behaviour import BehaviourRow, rows

# `config/vllm.py VllmConfig.__post_init__, _set_cudagraph_sizes; envs.py VLLM_X (0.19.1 has none)`.
_NAME = r"(?!(?:before|later|and|with|of)\b)(?![\w/]+\.py)[A-Za-z_][\w.]*+"
_FILE = re.compile(rf"(?P<file>[\w/]+\.py)(?P<names>(?:[ ,]+{_NAME})*)")
_BESIDE = re.compile(r"\([^)]*\)")


class Bound(NamedTuple):
    """A release at which a behaviour begins or ends, and the place that the row names."""

    name: str
    word: str  # since or until
    at: Version
    file: str
    names: tuple[str, ...]


def bounds(table: Iterable[BehaviourRow]) -> Iterator[Bound]:
    """Each date of each row, with each place that it names."""
    for row in table:
        dates = [(word, as_version(text)) for word, text in (("since", row.since), ("until", row.until)) if text]
        for found in _FILE.finditer(_BESIDE.sub("", row.source)):
            names = tuple(name.rpartition(".")[2] for name in re.findall(r"[A-Za-z_][\w.]*", found["names"]))
            yield from (Bound(row.name, word, at, found["file"].lstrip("/"), names) for word, at in dates)


def unshown(old: Wheel, new: Wheel, asked: Iterable[Bound]) -> Iterator[str]:
    """A line for each date after one wheel and up to another at which nothing that its row names is another."""
    told: dict[tuple[str, str], list[tuple[Bound, bool]]] = {}
    first, last = as_version(old.version), as_version(new.version)
    for bound in (one for one in asked if first < one.at <= last):
        same = _said(old, bound) == _said(new, bound)
        told.setdefault((bound.name, bound.word), []).append((bound, same))
    for (name, word), places in told.items():
        if all(same for _, same in places):
            named = "; ".join(" ".join([bound.file, *bound.names]) for bound, _ in places)
            yield f"{name}: {word} {places[0][0].at}: {named} says the same in {old.version} and {new.version}"


def of_table() -> tuple[Bound, ...]:
    """The dates of the planner's own table."""
    return tuple(bounds(rows()))


def _said(wheel: Wheel, bound: Bound) -> list[str]:
    """What a place says in a release: the functions, classes and values of its names, else the lines that have them;
    the whole file where nothing is named."""
    found: list[str] = []
    for path in wheel.paths(rf"vllm/(.*/)?{re.escape(bound.file)}"):
        tree = wheel.tree(path)
        if not bound.names:
            found.append(ast.dump(tree))
            continue
        bodies = [ast.dump(node) for node in ast.walk(tree) if _names(node) & set(bound.names)]
        lines = (line.strip() for line in wheel.files[path].splitlines())
        found += bodies or [line for line in lines if set(re.findall(r"\w+", line)) & set(bound.names)]
    return found


def _names(node: ast.AST) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case _:
            return set()

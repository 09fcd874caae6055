"""Each `raise` of a release that a start may meet, and what the plan makes of it (raises.json).

A row of raises.json names a place (`path::function`), may name what stands in the test or the message, and says one of:

  asked    the plan refuses the launch, or doubts it: `by` is where
  fact     what it asks is not in the launch, config.json, the card and the release: `by` names it
  later    no start meets it: a request, the reading of weights, a misuse of the class
  other    another device, or a package that CUDA's wheel does not come with
  missing  it depends on these four alone, and the plan does not ask it: `by` says what

The first row that matches counts. A test of the configuration that joint.py could write down, or of a checkpoint's
quantization_config that checkpoints.py could, is asked as it stands there. What no row names is `unread`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from releases.checkpoints import Checkpoints
from releases.joint import Joint
from releases.wheel import Wheel

KINDS = ("asked", "fact", "later", "other", "missing", "unread")
_SCOPE = re.compile(
    r"vllm/(config(/\w+)?|engine/arg_utils|platforms/(cuda|interface)|model_executor/models/registry"
    r"|model_executor/layers/(quantization|fused_moe|attention)/[\w/]+|attention/[\w/]+|v1/attention/[\w/]+"
    r"|v1/worker/(gpu_worker|gpu_model_runner|utils)|v1/worker/gpu/[\w/]+|worker/\w+|lora/[\w/]+"
    r"|(v1/)?spec_decode/\w+|v1/core/\w+)\.py"
)


@dataclass(frozen=True)
class Site:
    """One `raise`: where it stands, behind which tests, and what it says."""

    where: str  # path::Class.function
    says: str  # the tests, " | ", the message
    line: int
    written: str  # the history file that the test is written down in, if any


@dataclass(frozen=True)
class Row:
    """A line of raises.json."""

    kind: str
    by: str
    where: re.Pattern[str]
    says: re.Pattern[str]


@cache
def rows() -> tuple[Row, ...]:
    """The table, in its order."""
    told = json.loads(Path(__file__).with_name("raises.json").read_text(encoding="utf-8"))
    return tuple(
        Row(row["is"], row["by"], re.compile(row["where"]), re.compile(row.get("says", ""), re.IGNORECASE))
        for row in told
    )


def kind(site: Site) -> tuple[str, str]:
    """What the plan makes of a `raise`, and by what."""
    if site.written:
        return "asked", site.written
    for row in rows():
        if row.where.search(site.where) and row.says.search(site.says):
            return row.kind, row.by
    return "unread", ""


def sites(wheel: Wheel, options: Mapping[str, Mapping[str, object]]) -> Iterator[Site]:
    """Every `raise` in scope, in the order of the sources."""
    joint, stored = Joint(wheel, options), Checkpoints(wheel)
    joint.tests()
    stored.read()
    decided = dict.fromkeys(joint.decided, "history/joint.json") | dict.fromkeys(
        stored.decided, "history/checkpoints.json"
    )
    for path in wheel.paths(_SCOPE.pattern):
        short = path.removeprefix("vllm/")
        yield from _within(wheel.tree(path), short, "", (), decided)


def _within(
    node: ast.AST, path: str, function: str, behind: tuple[str, ...], decided: Mapping[int, str]
) -> Iterator[Site]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                name = f"{function}.{child.name}" if function else child.name
                yield from _within(child, path, name, (), decided)
            case ast.If(test=test, body=body, orelse=other):
                asked = ast.unparse(test)
                yield from _within(ast.Module(body, []), path, function, (*behind, asked), decided)
                yield from _within(ast.Module(other, []), path, function, (*behind, f"not ({asked})"), decided)
            case ast.Raise(exc=error):
                says = f"{' & '.join(behind)} | {_said(error)}"
                yield Site(f"{path}::{function}", says, child.lineno, decided.get(id(child), ""))
            case _:
                yield from _within(child, path, function, behind, decided)


def _said(error: ast.expr | None) -> str:
    """The kind of an exception and its text, as far as it stands there."""
    if not isinstance(error, ast.Call):
        return "" if error is None else ast.unparse(error)
    told = ast.unparse(error.args[0]) if error.args else ""
    return f"{ast.unparse(error.func)}: {told}"

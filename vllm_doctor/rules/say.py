"""What rules say, made in one place: findings, arithmetic in GiB, changes that this version can follow."""

import ast
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from vllm_doctor.knowledge import versions
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.numbers import typed
from vllm_doctor.records.finding import Arithmetic, Change, Evidence, Finding, Scalar
from vllm_doctor.records.verdict import Applicability, Cause, ChangeKind, Confidence, Direction, Phase, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.order import OrderRow

# The most characters of a title: one line of a terminal, with the code before it.
TITLE = 70
# A clause shorter than this says nothing alone ("Xid 31").
_SHORTEST = 20
_CLAUSES = (re.compile("; "), re.compile(r": | \((?=[^()]*\)$)"), re.compile(", "))


@cache
def _inventory() -> dict[str, str]:
    path = Path(__file__).parents[1] / "knowledge" / "inventory_vars.json"
    if not path.exists():
        return {}
    known = json.loads(path.read_text(encoding="utf-8"))
    return {str(k): str(v) for k, v in known.items() if isinstance(v, str)}


def inventory_var(flag: str) -> str:
    """The inventory variable that sets a flag; a flag without one of its own goes into the mapping of all others."""
    return _inventory().get(flag, "vllm_extra_args")


def finding(
    rule: OrderRow,
    *,
    evidence: tuple[Evidence, ...],
    refute: str,
    phase: Phase | None = None,
    cause: Cause | None = None,
    title: str = "",
    detail: str = "",
    severity: Severity = Severity.BLOCKS_START,
    confidence: Confidence = Confidence.CONFIRMED,
    arithmetic: tuple[Arithmetic, ...] = (),
    changes: tuple[Change | None, ...] = (),
    layer: str = "",
    then: str = "",
) -> Finding:
    """A finding of the rule in this row. Changes that this version does not have (None) fall away.

    `possible` carries no change. `detail` is what the title cannot hold; without it, what a long title says after its
    first clause.
    """
    offered = tuple(c for c in changes if c is not None) if confidence is not Confidence.POSSIBLE else ()
    short, beyond = _parted(title or rule.title, rule.title)
    return Finding(
        code=rule.code,
        cause=cause or rule.cause,
        phase=phase or rule.phase,
        title=short,
        severity=severity,
        confidence=confidence,
        evidence=tuple(dict.fromkeys(evidence)),  # the line that names and the line that ends may be one
        refute=refute,
        arithmetic=arithmetic,
        changes=offered,
        doc=rule.code,
        detail=detail or beyond,
        layer=layer,
        next=then,
    )


def _parted(title: str, plain: str) -> tuple[str, str]:
    """A title of one line, and what it says beyond that: parted where a clause ends, so that no path and no number is
    cut; else the rule's own title with all of it as the detail."""
    if len(title) <= TITLE:
        return title, ""
    from vllm_doctor.redact.text import scrub

    title = scrub(title)  # while a name still stands before what it keeps: parted, neither half tells
    for clause in _CLAUSES:
        ends = [
            found
            for found in clause.finditer(title)
            if _SHORTEST <= found.start() <= TITLE
            and title.count("(", 0, found.start()) == title.count(")", 0, found.start())
        ]
        if ends:
            return title[: ends[-1].start()], title[ends[-1].end() :].removesuffix(")" * ends[-1][0].count("("))
    return (plain, title) if len(plain) <= TITLE else (title, "")


def gib(name: str, value: float, formula: str, source: str) -> Arithmetic:
    """A figure in GiB, to 2 decimals; below a hundredth to 4, as a few MiB are not nothing."""
    return Arithmetic(name, round(value, 2 if abs(value) >= 0.01 else 4), "GiB", formula, source)


def set_flag(
    case: Case,
    name: str,
    to: Scalar,
    direction: Direction,
    why: str,
    *,
    applicability: Applicability = Applicability.NEEDS_REVIEW,
    predicted: Mapping[str, float] | None = None,
    by: float | None = None,
    unset: Scalar = None,
    until: Version | None = None,
) -> Change | None:
    """A change of an option; None where this vLLM has no such option or the change would change nothing. `by` is how
    far to move a value that is not known, `unset` the value where it is the default; `until` the last release that
    writes what the log says."""
    fact = case.has_flag(name, until)
    if fact is None:
        return None
    if fact.choices is not None and isinstance(to, str) and to not in fact.choices:
        return None
    before = case.effective(name)
    typed = _typed(before)
    if _same(typed, to) or _backward(case.number(name), to, direction):
        return None
    if to is False and not fact.negatable:  # no --no- form: the switch goes, and with it what it switched on
        to, direction = None, Direction.REMOVE
    variable = inventory_var(fact.name) if to is not None or direction is Direction.REMOVE else None
    figures: dict[str, float | str] = {**(predicted or {})}
    return Change(
        ChangeKind.FLAG, fact.name, typed, to, direction, applicability, variable, figures, why, by, unset=unset
    )


def _backward(now: float | None, to: Scalar, direction: Direction) -> bool:
    """Does the present value lie beyond the new one already? The message is then of another launch, or a table's."""
    if now is None or isinstance(to, bool) or not isinstance(to, int | float):
        return False
    return (direction is Direction.LOWER and to > now) or (direction is Direction.RAISE and to < now)


def json_with(case: Case, name: str, new: Mapping[str, object]) -> str:
    """A JSON option with fields set; what the launch says of others stays."""
    return json.dumps({**(mapping(case.flag(name)) or {}), **new})


def mapping(value: object) -> dict[str, object] | None:
    """A JSON option's fields, as somebody types it or as vLLM's log writes its arguments; None where it is none."""
    if not isinstance(value, str) or not value.startswith("{"):
        return None
    for reader in (json.loads, ast.literal_eval):  # as somebody types it, and as vLLM's log writes its arguments
        try:
            read = reader(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return read if isinstance(read, dict) else None
    return None


def _same(before: Scalar, to: Scalar) -> bool:
    """Is it what is there already, JSON as what it means?"""
    fields = mapping(to)
    return to is not None and (before == to or (fields is not None and mapping(before) == fields))


def _typed(value: str | bool | None) -> Scalar:
    return typed(value) if isinstance(value, str) else value


def thing(
    kind: ChangeKind,
    name: str,
    direction: Direction,
    why: str,
    *,
    to: Scalar = None,
    before: Scalar = None,
    applicability: Applicability = Applicability.MANUAL,
    inventory: str | None = None,
    variable: str | None = None,
    command: str | None = None,
) -> Change:
    """A change of anything that is no option of vLLM: a variable, a package, a process, the hardware. `command` is what
    to type for a deed that no line of the inventory does."""
    # A line of the inventory needs a value, unless the line is what goes.
    line = inventory if to is not None or direction is Direction.REMOVE else None
    return Change(kind, name, before, to, direction, applicability, line, {}, why, variable=variable, command=command)


def environment(
    name: str,
    direction: Direction,
    why: str,
    *,
    to: Scalar = None,
    before: Scalar = None,
    applicability: Applicability = Applicability.MANUAL,
    variable: str | None = None,
    command: str | None = None,
) -> Change:
    """A change of the process's environment: in the inventory an entry of the role's mapping. `variable` is its name
    where `name` is an option's, which this release does not have."""
    return thing(
        ChangeKind.ENV,
        name,
        direction,
        why,
        to=to,
        before=before,
        applicability=applicability,
        inventory="vllm_environment",
        variable=variable,
        command=command,
    )


SHM = "docker run --ipc=host …   # or --shm-size=8g; Kubernetes: an emptyDir {medium: Memory} at /dev/shm"
MEMLOCK = "systemctl edit UNIT   # [Service] LimitMEMLOCK=infinity, then systemctl restart UNIT"


def upgrade(case: Case, why: str) -> Change | None:
    """A newer vLLM: the newest that is known; None for a version that is at least as new."""
    return upgrade_to(case, versions.newest_known(), why)


def upgrade_to(case: Case, to: Version, why: str) -> Change | None:
    """This release of vLLM; None where the one that runs is at least as new.

    A platform's plugin is made for one release of vLLM: with it, the pair of both.
    """
    if case.version is not None and case.version >= to:
        return None
    if (plugin := case.plugin) is not None:
        why += f"; {plugin} is made for one release of vLLM: take a newer pair of both, as its documentation names them"
        command = f"pip show vllm {plugin} | grep -E '^(Name|Version)'; pip index versions {plugin}"
        return thing(ChangeKind.PACKAGE, plugin, Direction.UPGRADE, why, command=command)
    return release_to(case, str(to), Direction.UPGRADE, why)


def release_to(case: Case, to: str, direction: Direction, why: str) -> Change:
    """This release of vLLM in place of the one that runs."""
    return thing(
        ChangeKind.PACKAGE,
        "vllm-version",
        direction,
        why,
        to=to,
        before=case.version_text,
        inventory="vllm_version",
    )

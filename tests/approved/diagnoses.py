"""What a person reads of each scenario's diagnosis, one YAML text a rule: figures, changes and how they are written."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from tests.approved.text import number, written
from tests.scenarios.loading import diagnosis, names, scenario, snapshot, without_its_place
from vllm_doctor.records.finding import Change, Diagnosis, Evidence, Finding
from vllm_doctor.records.reading import NOT_GIVEN
from vllm_doctor.remedy import dropin, inventory
from vllm_doctor.render.instructions import deed
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.engine import ask
from vllm_doctor.rules.outcome import Unseen
from vllm_doctor.rules.registry import loaded

# A launch to which every change is put, so that the whole line is seen.
ARGV = ("/opt/vllm/bin/vllm", "serve", "acme/chat", "--port", "8000")
# What says how much of the input was read; tests/gather holds it.
_OF_THE_INPUT = frozenset({"lines_read", "bytes_skipped", "complete_head"})


@cache
def codes() -> tuple[str, ...]:
    """The rules that have scenarios."""
    return tuple(sorted({scenario(name)["rule"] for name in names()}))


def answers(code: str) -> str:
    """Every answer to the scenarios of a rule."""
    return without_its_place(written({name: dict(_answer(name)) for name in names() if scenario(name)["rule"] == code}))


def _answer(name: str) -> Iterator[tuple[str, Any]]:
    told, code = diagnosis(name), scenario(name)["rule"]
    yield "verdict", f"{told.verdict} {told.phase}" if told.phase else str(told.verdict)
    if not told.findings:
        yield "because", told.path[-1].because
    if code not in {f.code for f in told.findings}:
        yield code, _own(name, code)
    yield "path", _path(told)
    if facts := _facts(told):
        yield "facts", facts
    if unread := {m.signal: m.reason for m in told.unknown if m.reason != NOT_GIVEN.reason}:
        yield "unseen", unread
    if told.findings:
        yield "findings", [dict(_finding(f)) for f in told.findings]


def _own(name: str, code: str) -> str:
    """What the rule itself answers where it is not among the findings."""
    outcome = ask(loaded(code), Case(snapshot(name)))
    if isinstance(outcome, Finding):
        return f"fires, and gives way to another: {outcome.title}"
    of = f" ({', '.join(sorted(outcome.signals))})" if isinstance(outcome, Unseen) else ""
    return ": ".join(filter(None, (f"{type(outcome).__name__.lower()}{of}", outcome.because)))


def _path(told: Diagnosis) -> str:
    """The boxes of the flowchart by their answer."""
    steps = [step for step in told.path if step.node != "verdict"]
    by_answer = {answer: [s.node for s in steps if s.answer == answer] for answer in ("yes", "no", "unknown")}
    assert sum(map(len, by_answer.values())) == len(steps)
    return "; ".join(f"{answer}: {', '.join(nodes)}" for answer, nodes in by_answer.items() if nodes)


def _facts(told: Diagnosis) -> str:
    known = {name: value for name, value in told.facts.items() if value is not None and name not in _OF_THE_INPUT}
    return ", ".join(f"{name} {number(value)}" for name, value in known.items())


def _finding(found: Finding) -> Iterator[tuple[str, Any]]:
    yield found.code, found.title
    if found.detail:
        yield "detail", found.detail
    yield "is", f"{found.severity}, {found.confidence}, {found.phase}, {found.cause}"
    if found.explained_by:
        yield "explained by", found.explained_by
    yield "evidence", [_evidence(e) for e in found.evidence]
    if found.arithmetic:
        yield "sums", [f"{a.name}: {number(a.value)} {a.unit} = {a.formula} [{a.source}]" for a in found.arithmetic]
    if found.changes:
        yield "changes", [dict(_change(found.code, c)) for c in found.changes]
    if found.next:
        yield "next", found.next
    yield "not if", found.refute


def _evidence(item: Evidence) -> str:
    at = f" at {item.observed_at}" if item.observed_at else ""
    text = item.excerpt if len(item.excerpt) <= 240 else f"{item.excerpt[:180]} … {item.excerpt[-60:]}"
    return f"{item.source} {item.locator}{at}: {text}"


def _change(code: str, change: Change) -> Iterator[tuple[str, Any]]:
    kept = inventory.line(change)
    yield "do", f"inventory: {kept}" if kept is not None else deed(change)
    by = "" if change.by is None else f" by {number(change.by)}"
    name = f"{change.name} ({change.variable})" if change.variable else change.name
    values = f"{number(change.before)} -> {number(change.after)}"
    yield "is", f"{change.direction} {change.kind} {name}: {values}{by}, {change.applicability}"
    unit = dropin.text(code, ARGV, (change,))
    if unit is not None:
        yield "unit", unit.splitlines()[-1]
    if change.command is not None:
        yield "command", change.command
    if change.predicted:
        yield "then", ", ".join(f"{name} {number(value)}" for name, value in change.predicted.items())
    if change.why:
        yield "why", change.why

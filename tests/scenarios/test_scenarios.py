"""Each scenario: one rule's answer, and where it fires the whole verdict with cause, phase and changes."""

from pathlib import Path

import pytest

from tests.scenarios.loading import diagnosis, folders, scenario, snapshot
from vllm_doctor.knowledge import versions
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.engine import ask
from vllm_doctor.rules.registry import Clear, NotHere, Unseen, by_code

ANSWERS = {"finding": Finding, "clear": Clear, "not-here": NotHere, "unseen": Unseen}


@pytest.mark.parametrize("folder", folders(), ids=lambda p: p.name)
def test_the_rule_answers_as_the_scenario_says(folder: Path) -> None:
    said = scenario(folder)
    rule = by_code()[said["rule"]]
    outcome = ask(rule, Case(snapshot(folder)))
    assert isinstance(outcome, ANSWERS[said["expect"]]), outcome
    if isinstance(outcome, Finding):
        assert outcome.code == rule.code
        assert outcome.cause is rule.cause
        assert outcome.phase in {rule.phase, *rule.also}
        assert outcome.evidence
        assert outcome.refute


@pytest.mark.parametrize("folder", [f for f in folders() if scenario(f)["expect"] == "finding"], ids=lambda p: p.name)
def test_the_verdict_names_cause_phase_and_changes(folder: Path) -> None:
    said = scenario(folder)
    verdict = diagnosis(folder)
    wanted = said.get("root", said["rule"])
    assert verdict.findings[0].code == wanted, [f.code for f in verdict.findings]
    own = next(f for f in verdict.findings if f.code == said["rule"])
    if "phase" in said:
        assert own.phase == said["phase"]
    if "cause" in said:
        assert own.cause == said["cause"]
    if "confidence" in said:
        assert own.confidence == said["confidence"]
    offered = [(c.name, str(c.direction)) for c in own.changes]
    for name, direction in said.get("changes", []):
        assert (name, direction) in offered
    for name in said.get("never", []):
        assert name not in [n for n, _ in offered]
    for name, value in said.get("to", {}).items():
        assert next(c.after for c in own.changes if c.name == name) == value


@pytest.mark.parametrize("folder", folders(), ids=lambda p: p.name)
def test_nothing_is_offered_that_the_version_does_not_have(folder: Path) -> None:
    at = Case(snapshot(folder)).version or versions.newest_known()
    for found in diagnosis(folder).findings:
        for change in found.changes:
            if change.kind is ChangeKind.FLAG and change.name != "model" and change.direction is not Direction.REMOVE:
                fact = versions.flag(change.name.split(".")[0], at)
                assert fact is not None
                assert fact.exists, f"{found.code} offers --{change.name} to vLLM {at}"


@pytest.mark.parametrize("folder", [f for f in folders() if scenario(f).get("verdict")], ids=lambda p: p.name)
def test_the_verdict_word(folder: Path) -> None:
    assert diagnosis(folder).verdict == scenario(folder)["verdict"]

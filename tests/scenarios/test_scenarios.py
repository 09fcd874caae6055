"""Each scenario: one rule's answer, and where it fires the whole verdict with cause, phase and changes."""

import pytest

from tests.scenarios.loading import FOLDER, diagnosis, names, scenario, snapshot, until
from vllm_doctor.knowledge import versions
from vllm_doctor.records.finding import Finding
from vllm_doctor.records.verdict import Cause, ChangeKind, Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.engine import ask
from vllm_doctor.rules.outcome import Clear, NotHere, Unseen
from vllm_doctor.rules.registry import loaded

ANSWERS = {"finding": Finding, "clear": Clear, "not-here": NotHere, "unseen": Unseen}


@pytest.mark.parametrize("name", names())
def test_the_rule_answers_as_the_scenario_says(name: str) -> None:
    said = scenario(name)
    rule = loaded(said["rule"])
    outcome = ask(rule, Case(snapshot(name)))
    assert isinstance(outcome, ANSWERS[said["expect"]]), outcome
    if isinstance(outcome, Finding):
        assert outcome.code == rule.code
        # A rule says another cause than its own only where the scenario does: the memory was not the share's to give.
        assert outcome.cause is (Cause(said["cause"]) if "cause" in said else rule.cause)
        assert outcome.phase in {rule.phase, *rule.also}
        assert outcome.evidence
        assert outcome.refute


@pytest.mark.parametrize("name", [name for name in names() if scenario(name)["expect"] == "finding"])
def test_the_verdict_names_cause_phase_and_changes(name: str) -> None:
    said = scenario(name)
    verdict = diagnosis(name)
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
    for changed, direction in said.get("changes", []):
        assert (changed, direction) in offered
    for never in said.get("never", []):
        assert never not in [n for n, _ in offered]
    for changed, value in said.get("to", {}).items():
        assert next(c.after for c in own.changes if c.name == changed) == value


@pytest.mark.parametrize("name", names())
def test_nothing_is_offered_that_the_version_does_not_have(name: str) -> None:
    at = Case(snapshot(name)).version or until(name) or versions.newest_known()
    for found in diagnosis(name).findings:
        for change in found.changes:
            if change.kind is ChangeKind.FLAG and change.name != "model" and change.direction is not Direction.REMOVE:
                fact = versions.flag(change.name.split(".")[0], at)
                assert fact is not None
                assert fact.exists, f"{found.code} offers --{change.name} to vLLM {at}"


@pytest.mark.parametrize("name", [name for name in names() if scenario(name).get("verdict")])
def test_the_verdict_word(name: str) -> None:
    assert diagnosis(name).verdict == scenario(name)["verdict"]


def test_no_scenario_lies_in_a_folder_where_nothing_reads_it() -> None:
    assert [str(path) for path in FOLDER.glob("*/*") if "__pycache__" not in path.parts] == []

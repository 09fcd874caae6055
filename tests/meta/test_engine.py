"""A rule that breaks is seen; the JSON of every verdict is what the shipped schema says; the path is whole."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from msgspec.structs import replace

from tests.scenarios.loading import diagnosis, names, snapshot
from vllm_doctor.cli.diagnose_run import exit_code
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.records.host import Probe
from vllm_doctor.records.reading import Absent, Known
from vllm_doctor.records.snapshot import Snapshot
from vllm_doctor.records.verdict import Severity, Verdict
from vllm_doctor.render.machine import SCHEMA_FILE, dumps
from vllm_doctor.rules import engine
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.chart import NODES
from vllm_doctor.rules.order import INTERNAL
from vllm_doctor.rules.outcome import Outcome
from vllm_doctor.rules.registry import rules

ROLE_VARIABLES = {
    name
    for path in (Path(__file__).resolve().parents[2] / "roles").glob("*/meta/argument_specs.yml")
    for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values()
    for name in entry.get("options", {})
}
VALIDATOR = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text(encoding="utf-8")))


def broken(case: Case) -> Outcome:
    raise ZeroDivisionError("planted")


BROKEN = replace(rules()[0], code="VD999", judge=broken)


def test_a_broken_rule_is_a_finding_about_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "rules", lambda: (BROKEN,))
    verdict = engine.diagnose(Snapshot(taken_at=""))
    assert [f.code for f in verdict.findings] == [INTERNAL]
    assert "planted" in verdict.findings[0].evidence[0].excerpt
    assert verdict.verdict is Verdict.UNKNOWN
    assert exit_code(verdict, Severity.ADVICE) == Exit.INTERNAL


def test_a_completion_that_could_not_be_judged_is_unknown_not_ok() -> None:
    given = snapshot("vd901-health-but-no-token-fires")
    asked = Probe(health_status=200, completion_unknown="the server wants a key")
    told = engine.diagnose(replace(given, probe=Known(asked, "probe"), metrics=Absent("no page"), gpus=Absent("none")))
    assert (told.verdict, told.path[-1].because) == (Verdict.UNKNOWN, "the server wants a key")


def test_nothing_given_is_unknown_not_ok() -> None:
    verdict = engine.diagnose(Snapshot(taken_at=""))
    assert verdict.verdict is Verdict.UNKNOWN
    assert exit_code(verdict, Severity.ADVICE) == Exit.INCOMPLETE


@pytest.mark.parametrize("name", names())
def test_the_json_is_as_the_schema_says(name: str) -> None:
    VALIDATOR.validate(json.loads(dumps(diagnosis(name))))


@pytest.mark.parametrize("name", names()[:5])
def test_every_main_box_is_on_the_path(name: str) -> None:
    walked = [s.node for s in diagnosis(name).path]
    assert [n.id for n in NODES if n.under is None] == [
        w for w in walked if w in {n.id for n in NODES if n.under is None}
    ]
    assert walked[-1] == "verdict"


@pytest.mark.parametrize("name", names())
def test_a_change_is_a_line_of_a_variable_that_a_role_has(name: str) -> None:
    changes = [c for f in diagnosis(name).findings for c in f.changes]
    assert {c.inventory_var for c in changes} - {None} <= ROLE_VARIABLES

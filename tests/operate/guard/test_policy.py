"""The policy's words: those of the role's specification, each refused by its place where it is wrong."""

import json
from pathlib import Path

import msgspec
import pytest
import yaml

from vllm_doctor.operate.guard.policy import Growth, Policy, PolicyProblem, Pressure, load

SPECS = Path(__file__).parents[3] / "roles/vllm_doctor/meta/argument_specs.yml"
OPTION = yaml.safe_load(SPECS.read_text())["argument_specs"]["main"]["options"]["vllm_doctor_guard_policy"]["options"]


def words(kind: type[msgspec.Struct]) -> set[str]:
    return {field.name for field in msgspec.structs.fields(kind)}


def test_the_role_names_every_word_of_the_policy_and_each_default() -> None:
    assert set(OPTION) == words(Policy) - {"units", "act"}  # these have variables of their own
    assert set(OPTION["pressure"]["options"]) == words(Pressure)
    assert set(OPTION["growth"]["options"]) == words(Growth)
    for kind, options in (
        (Policy, OPTION),
        (Pressure, OPTION["pressure"]["options"]),
        (Growth, OPTION["growth"]["options"]),
    ):
        for field in msgspec.structs.fields(kind):
            if field.name in options and options[field.name]["type"] != "dict":
                shown = f"{field.default:g}" if not isinstance(field.default, bool) else str(field.default).lower()
                assert options[field.name]["description"].rstrip(".").endswith(shown), field.name


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ({"pressure": {"kv": 9.7}}, "pressure.kv: needed: a number <= 1.0"),
        (
            {"pressure": {"kvv": 1}},
            "pressure: found kvv; needed: one of kv, kv_off, queue_factor, restart, times, within_s",
        ),
        ({"beat_s": "soon"}, "beat_s: needed: a number, found text"),
        ([], "the policy: needed: a mapping, found a list"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(policy: object, told: str, tmp_path: Path) -> None:
    file = tmp_path / "guard.json"
    file.write_text(json.dumps(policy))
    with pytest.raises(PolicyProblem) as problem:
        load(file)
    assert str(problem.value) == f"--policy {file}: {told}"

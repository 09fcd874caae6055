"""The policy's words: those of the role's specification, each refused by its place where it is wrong."""

import json
from pathlib import Path

import msgspec
import pytest
import yaml

from vllm_doctor.operate.guard.policy import GrowthPolicy, Policy, PolicyProblem, Pressure, load

SPECS = Path(__file__).parents[3] / "roles/vllm_doctor/meta/argument_specs.yml"
OPTION = yaml.safe_load(SPECS.read_text())["argument_specs"]["main"]["options"]["vllm_doctor_guard_policy"]["options"]


def words(kind: type[msgspec.Struct]) -> set[str]:
    return {field.name for field in msgspec.structs.fields(kind)}


def test_the_role_names_every_word_of_the_policy_and_each_default() -> None:
    assert set(OPTION) == words(Policy) - {"units", "act"}  # these have variables of their own
    assert set(OPTION["pressure"]["options"]) == words(Pressure)
    assert set(OPTION["growth"]["options"]) == words(GrowthPolicy)
    for kind, options in (
        (Policy, OPTION),
        (Pressure, OPTION["pressure"]["options"]),
        (GrowthPolicy, OPTION["growth"]["options"]),
    ):
        for field in msgspec.structs.fields(kind):
            if field.name in options and options[field.name]["type"] != "dict":
                shown = f"{field.default:g}" if not isinstance(field.default, bool) else str(field.default).lower()
                assert options[field.name]["description"].rstrip(".").endswith(shown), field.name


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ({"pressure": {"kv": 9.7}}, "pressure.kv: found 9.7; needed: a number <= 1.0"),
        (
            {"pressure": {"kvv": 1}},
            "pressure: found kvv; needed: one of kv, kv_off, queue_factor, restart, times, within_s",
        ),
        ({"beat_s": "soon"}, "beat_s: needed: a number, found text"),
        ([], "the policy: needed: a mapping, found a list"),
        ({"units": ["vllm@*.service"]}, "units: found 'vllm@*.service'; needed: a unit such as vllm@main.service"),
        ({"pressure": {"kv": 0.8}}, "pressure: found kv_off 0.85 and kv 0.8; needed: kv_off below kv"),
        ({"beat_s": 60}, "beat_s: found beat_s 60 and every_s 30; needed: beat_s at most every_s"),
        (
            {"engine_silent_s": 700},
            "engine_silent_s: found engine_silent_s 700 and engine_busy_silent_s 600; needed: engine_silent_s at most",
        ),
        (
            {"pressure": {"times": 40}},
            "pressure: found times 40 and within_s 300, with a look every 10 s; needed: fewer times or a longer",
        ),
        ({"keep_days": 0.25}, "growth: found hours 12, and keep_days 0.25; needed: hours of records that are kept"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(policy: object, told: str, tmp_path: Path) -> None:
    file = tmp_path / "guard.json"
    file.write_text(json.dumps(policy))
    with pytest.raises(PolicyProblem) as problem:
        load(file)
    assert str(problem.value).startswith(f"--policy {file}: {told}")


def test_a_file_that_was_cut_off_is_no_policy(tmp_path: Path) -> None:
    file = tmp_path / "guard.json"
    for text in ("", '{"beat_s": '):
        file.write_text(text)
        with pytest.raises(PolicyProblem, match="the policy: is empty, or ends in the middle of its JSON"):
            load(file)

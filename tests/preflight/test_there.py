"""A model that is a path, and nothing at that path: said before a driver is changed, in a run that starts services."""

from datetime import date

import pytest

from tests.roles.vllm.plugins import load
from vllm_doctor.knowledge.compat import table
from vllm_doctor.preflight.judged import Checked, HostFacts, HostToJudge, Intent, Result
from vllm_doctor.preflight.launches import launches
from vllm_doctor.preflight.there import models_there

STORE = "/var/lib/vllm-models"
HERE, NOWHERE = "/srv/models/llama", "/srv/models/lama"


def judge(absent: tuple[str, ...], *, made: bool = False, starts: bool = True, **values: object) -> Checked:
    intent = Intent(
        driver=True,
        driver_version="580.105.08",
        vllm_version="0.32.0",
        launches=launches(values, {}, STORE),
        models_made=made,
        starts=starts,
    )
    return models_there(HostToJudge(intent, HostFacts(models_absent=absent), table(), date(2026, 11, 21)))


def test_a_path_without_anything_is_named_with_its_service() -> None:
    row = judge((NOWHERE,), vllm_instances=[{"name": "chat", "model": HERE}, {"name": "code", "model": NOWHERE}])
    assert row.verdict is Result.FAIL
    assert row.found == "vllm@code: /srv/models/lama is not there"
    assert row.action == "bring the model to /srv/models/lama, or correct vllm_model"


def test_a_run_that_starts_nothing_may_come_before_the_models() -> None:
    assert judge((NOWHERE,), starts=False, vllm_model=NOWHERE).verdict is Result.WARN


def test_what_is_there_is_no_complaint() -> None:
    assert judge((), vllm_model=HERE).verdict is Result.OK


def test_a_model_of_a_hub_comes_later_and_a_generated_one_too() -> None:
    hub = {"vllm_model": "org/llama", "vllm_revision": "0" * 40}
    folder = f"{STORE}/org--llama/{'0' * 40}"
    assert judge((folder,), **hub).verdict is Result.NOT_APPLICABLE  # type: ignore[arg-type]
    assert judge((NOWHERE,), made=True, vllm_model=NOWHERE).verdict is Result.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("run", "skip", "starts"),
    [
        (["all"], [], True),
        (["config"], [], True),
        (["driver", "vllm"], [], True),
        (["driver", "host"], [], False),
        (["all"], ["vllm"], False),
        (["all"], ["verify"], True),
    ],
)
def test_the_tags_of_the_run_say_whether_it_starts_services(run: list[str], skip: list[str], *, starts: bool) -> None:
    judges = load("plugins/action/preflight_judge.py")._starts
    assert judges({"ansible_run_tags": run, "ansible_skip_tags": skip}) is starts

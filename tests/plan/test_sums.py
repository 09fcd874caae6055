"""The terms of a start: each with its unit, its source and how far it may be off."""

import json
from pathlib import Path

import pytest

from tests.plan.models import LLAMA_8B
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.prediction.sums import StartTerm
from vllm_doctor.plan.question.ask import KnownStart, foresee
from vllm_doctor.plan.question.planner import Question, planner


def terms(p: Prediction) -> dict[str, StartTerm]:
    return {t.name: t for t in p.taken}


@pytest.fixture
def told() -> Prediction:
    argv = ("vllm", "serve", "m", "--max-model-len", "8192")
    found = foresee(KnownStart(argv, "0.33.0", LLAMA_8B, "NVIDIA H100 80GB HBM3", 79.19))
    assert found is not None
    return found.now


def test_the_terms_and_the_cache_are_the_budget(told: Prediction) -> None:
    assert list(terms(told)) == ["weights", "non-torch", "activation", "graphs"]
    assert told.available_kv_gib is not None
    assert sum(t.value for t in told.taken) + told.available_kv_gib == pytest.approx(told.budget_gib)
    assert {t.unit for t in told.taken} == {"GiB"}


def test_what_makes_the_cache_smaller_makes_a_term_larger(told: Prediction) -> None:
    """An error of a tenth of a percent in the weights, and one of fitted memory that is mostly upward."""
    assert terms(told)["weights"].below == terms(told)["weights"].above == pytest.approx(0.035, abs=0.001)
    assert terms(told)["non-torch"].above > terms(told)["non-torch"].below > 0
    assert told.margin_gib is not None
    assert told.available_kv_gib is not None
    assert max(t.above for t in told.taken) < told.available_kv_gib - told.margin_gib[0]


def test_a_term_that_is_given_is_not_off(told: Prediction, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA_8B))
    asked = Question(("vllm", "serve", "m"), "H100", version="0.33.0", config=str(file), weights_gib="15.5")
    given = terms(planner(asked).predict())["weights"]
    assert (given.value, given.below, given.above, given.source) == (15.5, 0.0, 0.0, "given with the question")
    assert "given" not in terms(told)["weights"].source

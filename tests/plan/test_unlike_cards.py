"""Two cards that differ, each with a pipeline stage of its own: each stage is planned on its card, and the one whose
memory holds fewer blocks decides (v1/core/kv_cache_utils.py get_kv_cache_configs)."""

import json

import pytest

from tests.plan.models import LLAMA_8B
from vllm_doctor.cli.main import run
from vllm_doctor.plan.question.planner import PlanProblem, Question, planner


@pytest.fixture
def asked(tmp_path):
    def make(gpu, line="--pipeline-parallel-size 2", *, gib=None, env=()):
        file = tmp_path / "config.json"
        file.write_text(json.dumps(LLAMA_8B))
        launch = (*env, "vllm", "serve", "m", "--max-model-len", "8192", *line.split())
        return planner(Question(launch, gpu, 1, gib, "0.33.0", str(file)))

    return make


def pools(plan):
    return [(p.stage, p.total_gib, round(p.available_kv_gib, 2)) for p in plan.stages()]


def test_each_stage_has_the_memory_of_its_own_card(asked):
    both = asked("RTX 4080, RTX 4090", "-pp 2")
    alike = [both.on(card, 2) for card in both.cards]
    assert both.gpus == 2
    assert pools(both) == [pools(alike[0])[0], pools(alike[1])[1]]
    assert pools(both)[0] != pools(alike[1])[0]


def test_the_smaller_card_decides_whichever_stage_it_has(asked):
    assert asked("RTX 4080,RTX 4090").predict().stage == 0
    assert asked("RTX 4090,RTX 4080").predict().stage == 1


def test_more_layers_on_the_larger_card_leave_more_on_the_smaller(asked):
    even, uneven = asked("RTX 4080,RTX 4090"), asked("RTX 4080,RTX 4090", env=("VLLM_PP_LAYER_PARTITION=10,22",))
    assert uneven.stages()[0].available_kv_gib > even.stages()[0].available_kv_gib + 2
    assert uneven.predict().kv_tokens > even.predict().kv_tokens


@pytest.mark.parametrize(
    ("gpu", "line"),
    [("RTX 4080,RTX 4090", ""), ("RTX 4080,RTX 4090,RTX 4090", "-pp 2"), ("RTX 4080,nonsense", "-pp 2")],
)
def test_cards_that_are_not_one_for_each_stage_are_asked_for(asked, gpu, line):
    with pytest.raises(PlanProblem):
        asked(gpu, line)


def test_the_answer_names_each_card_and_what_it_holds(asked, tmp_path, capsys):
    asked("RTX 4090")
    launch = ["--", "vllm", "serve", "m", "--pipeline-parallel-size", "2", "--max-model-len", "8192"]
    words = ["plan", "--vllm-version", "0.33.0", "--gpu", "RTX 4080,RTX 4090"]
    words += ["--model-config", str(tmp_path / "config.json")]
    assert run([*words, *launch]) == 0
    said = capsys.readouterr().out
    assert said.startswith("vLLM 0.33.0 on NVIDIA GeForce RTX 4080 and NVIDIA GeForce RTX 4090: starts")
    assert "note: one card for each pipeline stage, in this order: NVIDIA GeForce RTX 4080 (" in said
    run([*words, "--format", "json", *launch])
    told = json.loads(capsys.readouterr().out)
    assert told["card"]["by_stage"] == ["NVIDIA GeForce RTX 4080", "NVIDIA GeForce RTX 4090"]

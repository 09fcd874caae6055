"""The choice over cards, models and releases: what is recommended starts, and is not narrower than published tables."""

import json

import pytest

from tests.memory.models import DEEPSEEK_LIKE, GPT_OSS_20B, HYBRID_LIKE, LLAMA_8B
from vllm_doctor.knowledge.gpus import find
from vllm_doctor.memory.choice import choose
from vllm_doctor.memory.question import Question, planner
from vllm_doctor.memory.recommendation import Workload, safe, table_tokens

SMALL = {**LLAMA_8B, "num_hidden_layers": 16, "hidden_size": 2048, "intermediate_size": 8192, "head_dim": 64}
MODELS = {"1b": SMALL, "8b": LLAMA_8B, "experts": GPT_OSS_20B, "latent": DEEPSEEK_LIKE, "hybrid": HYBRID_LIKE}
CARDS = ("T4", "L4", "RTX 5090", "A100 40GB", "H100", "B200", "GB10")
VERSIONS = ("0.8.5", "0.19.1", "0.33.0")


@pytest.fixture(params=MODELS)
def model(request, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(MODELS[request.param]))
    return str(file)


def plan(model, card, version, *flags, gpus=1):
    return planner(Question(("vllm", "serve", "m", *flags), card, gpus, None, version, model))


def words(launch):
    return [w for k, v in launch.items() for w in ((f"--{k}",) if v is True else (f"--{k}", str(v)))]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("card", CARDS)
def test_what_is_recommended_starts_and_no_wider_step_of_the_tables_would(model, card, version):
    choice = choose(plan(model, card, version), Workload(), "balanced")
    if choice is None:
        return
    again = plan(model, card, version, *words(choice.launch)).predict()
    assert safe(again), again.settings.refusals
    assert again.length >= 1024
    wide = table_tokens(find(card).total_gib)
    wider = plan(model, card, version, *words({**choice.launch, "max-num-batched-tokens": wide})).predict()
    assert choice.launch["max-num-batched-tokens"] >= wide or not safe(wider)


@pytest.mark.parametrize(("card", "tokens"), [("L4", 4096), ("A100 40GB", 8192), ("H100", 16384), ("H200", 24576)])
def test_the_tables_of_the_guides(card, tokens):
    assert table_tokens(find(card).total_gib) >= tokens

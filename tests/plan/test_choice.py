"""The choice over cards, models and releases: what is recommended starts, and is not narrower than published tables."""

import json

import pytest

from tests.plan.models import DEEPSEEK_LIKE, GEMMA3_LIKE, GPT_OSS_20B, HYBRID_LIKE, LLAMA_8B
from vllm_doctor.knowledge.gpus import find
from vllm_doctor.plan.advice.choice import choose
from vllm_doctor.plan.advice.recommendation import Holds, Workload, holds, safe, table_tokens
from vllm_doctor.plan.question.planner import Question, planner

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


SEVENTY = {
    **LLAMA_8B,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
}


@pytest.fixture
def stored(tmp_path):
    def write(config):
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config))
        return str(file)

    return write


def spread(choice):
    return choice.launch.get("tensor-parallel-size", 1), choice.launch.get("pipeline-parallel-size", 1)


def test_a_step_below_the_tables_comes_with_the_sum_that_forbids_the_wide_one(model):
    for card in CARDS:
        for version in VERSIONS:
            choice = choose(plan(model, card, version), Workload(), "balanced")
            if choice is None or choice.launch["max-num-batched-tokens"] >= table_tokens(find(card).total_gib):
                continue
            why = next(r for r in choice.because if r.flag == "max-num-batched-tokens")
            assert any(x.name.startswith("KV cache left at") for x in why.arithmetic), (card, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_length_that_nobody_asked_for_gives_way_to_the_step_of_the_tables(stored, version):
    thirty_two = {**LLAMA_8B, "hidden_size": 5120, "intermediate_size": 25600, "num_hidden_layers": 64, "head_dim": 128}
    thirty_two |= {"num_attention_heads": 64, "vocab_size": 151936}
    choice = choose(plan(stored(thirty_two), "A100 80GB", version), Workload(), "balanced")
    assert choice.launch["max-num-batched-tokens"] >= 16384
    assert choice.launch["max-model-len"] >= 8192


@pytest.mark.parametrize("version", ["0.6.6", "0.10.2", "0.19.1", "0.33.0"])
@pytest.mark.parametrize("gpus", [2, 4, 8])
@pytest.mark.parametrize("card", ["T4", "RTX 4060 Ti 16GB"])
def test_cards_that_tensor_parallelism_joins_are_not_made_stages(stored, card, gpus, version):
    # Too high a share for the graphs is no reason for stages: the share is lowered.
    tp, pp = spread(choose(plan(stored(LLAMA_8B), card, version, gpus=gpus), Workload(), "balanced"))
    assert tp in {2, 4, 8}
    assert pp == 1


@pytest.mark.parametrize("version", ["0.10.2", "0.19.1", "0.33.0"])
def test_a_long_request_takes_more_cards_before_it_is_cut(stored, version):
    file = stored(LLAMA_8B)
    one = choose(plan(file, "L4", version), Workload(context=100_000), "balanced")
    four = choose(plan(file, "L4", version, gpus=4), Workload(context=100_000), "balanced")
    assert one is None or one.launch["max-model-len"] < 100_000 or "kv-cache-dtype" in one.launch
    assert four.launch["max-model-len"] == 100_000
    assert "kv-cache-dtype" not in four.launch
    assert spread(four)[0] > 1


@pytest.mark.parametrize("config", [LLAMA_8B, GPT_OSS_20B, SEVENTY], ids=["8b", "experts", "70b"])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("card", ["L4", "A100 40GB", "H100"])
def test_more_cards_never_make_the_launch_smaller(stored, config, card, version):
    file, before = stored(config), 0
    for gpus in (1, 2, 4, 8):
        choice = choose(plan(file, card, version, gpus=gpus), Workload(), "balanced")
        assert choice is not None or not before
        length = choice.launch["max-model-len"] if choice is not None else 0
        assert length >= before
        before = length


@pytest.mark.parametrize("config", [LLAMA_8B, GPT_OSS_20B, HYBRID_LIKE], ids=["8b", "experts", "hybrid"])
@pytest.mark.parametrize("version", ["0.10.2", "0.19.1", "0.33.0"])
def test_more_memory_never_makes_the_launch_smaller(stored, config, version):
    file, before = stored(config), (0, 0)
    for gib in (18, 24, 34, 46, 80, 141, 180):
        q = Question(("vllm", "serve", "m"), None, 1, str(gib), version, file)
        choice = choose(planner(q), Workload(), "balanced")
        assert choice is not None or not before[0], gib
        if choice is None or "cpu-offload-gb" in choice.launch:
            continue
        length, width = choice.launch["max-model-len"], choice.launch["max-num-batched-tokens"]
        assert min(length, 8192) >= before[0], (gib, length, width)
        assert width >= before[1] or length > 8192, (gib, length, width)
        before = (min(length, 8192), width)


@pytest.mark.parametrize(
    ("card", "config", "offered"),
    [("RTX 3090", LLAMA_8B, False), ("L4", LLAMA_8B, True), ("A100 40GB", DEEPSEEK_LIKE, False)],
)
def test_an_fp8_cache_is_offered_for_a_length_that_was_asked_and_where_the_card_computes_it(
    stored, card, config, offered
):
    file = stored(config)
    asked = choose(plan(file, card, "0.19.1", "--max-model-len", "60000"), Workload(), "balanced")
    assert ("kv-cache-dtype" in (asked.launch if asked else {})) is offered
    silent = choose(plan(file, card, "0.19.1"), Workload(), "balanced")
    assert silent is None or "kv-cache-dtype" not in silent.launch


def test_what_a_window_keeps_in_flight_is_not_paid_with_the_length(tmp_path):
    # 52 of 62 layers keep two steps beside their window: 28672 tokens of length were left, where the card holds 64256.
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**GEMMA3_LIKE, "intermediate_size": 22528}))
    choice = choose(plan(str(file), "A100-SXM4-80GB", "0.33.0"), Workload(), "balanced")
    assert choice.launch["max-model-len"] > 60_000


def test_a_type_that_the_card_has_not_is_asked_for_where_the_release_does_not_choose(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(SMALL))
    chosen = {v: choose(plan(str(file), "T4", v), Workload(), "balanced") for v in ("0.8.5", "0.9.0")}
    assert chosen["0.8.5"].launch["dtype"] == "float16"
    assert "dtype" not in chosen["0.9.0"].launch


# Layers with a window keep each step in flight beside it, for every request: a wide step is what the workload lacks.
@pytest.mark.parametrize(
    ("requests", "width", "held"), [(64, 2048, Holds.SURELY), (40, 8192, Holds.SURELY), (80, 8192, Holds.NO)]
)
def test_a_wider_step_takes_nothing_that_the_workload_needs(tmp_path, requests, width, held):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(GPT_OSS_20B))
    launch = ("--max-model-len", "16384", "--max-num-seqs", str(requests))
    work = Workload(context=16384, concurrency=requests)
    choice = choose(plan(str(file), "RTX 6000 Ada Generation", "0.20.0", *launch), work, "balanced")
    assert (choice.launch["max-num-batched-tokens"], holds(choice.predicted, work)) == (width, held)
    width_why = next(r for r in choice.because if r.flag == "max-num-batched-tokens")
    said = [s for s in width_why.arithmetic if f"it would not hold the workload's {requests} requests" in s.formula]
    assert len(said) == (width < 8192)


def test_what_the_release_takes_only_with_an_option_is_recommended_with_it(tmp_path):
    """0.24.0 takes a deprecated method of the checkpoint with --allow-deprecated-quantization beside it."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**LLAMA_8B, "quantization_config": {"quant_method": "fbgemm_fp8"}}))
    asked = plan(str(file), "H100", "0.24.0")
    assert asked.predict().verdict == "does-not-start"
    choice = choose(asked, Workload(), "balanced")
    assert choice.launch["allow-deprecated-quantization"] is True
    assert plan(str(file), "H100", "0.24.0", *words(choice.launch)).predict().verdict == "starts"

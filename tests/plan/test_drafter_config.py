"""A drafter from its own config.json: weights and cache of its layers, tables that are its own, by release; each sum is
the module's parameters as the release's class makes them."""

import json

import pytest

from tests.plan.models import DEEPSEEK_LIKE, LLAMA_8B
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.question.planner import Question, planner

GIB = 1 << 30
ROPE = 131072 * 128  # values of the cos and sin of its own positions
# A dense drafter of EAGLE 3, one layer of Llama's.
THIRD = {
    "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "torch_dtype": "bfloat16", "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 1, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 128256, "draft_vocab_size": 32000, "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}  # fmt: skip
ROPE_2048 = 2048 * 128
QKV, OUT, MLP = (32 + 16) * 128, 4096 * 4096, 3 * 4096 * 14336
LAYER = QKV * 4096 + OUT + MLP
NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}


@pytest.fixture
def plan(tmp_path):
    """A plan of a model with a drafter whose config.json is given."""

    def asked(draft, method="eagle3", version="0.33.0", *, config=LLAMA_8B, flags="", tokens=3) -> Prediction:
        for name, values in (("m", config), ("d", draft)):
            (tmp_path / f"{name}.json").write_text(json.dumps(values))
        drafts = NGRAM if method == "ngram" else {"model": "d", "num_speculative_tokens": tokens}
        drafts |= {"method": method} if method else {}
        words = ("--speculative-config", json.dumps(drafts), *flags.split())
        q = Question(
            ("vllm", "serve", "m", "--max-model-len", "8192", *words), "H200", 8, None, version,
            str(tmp_path / "m.json"), draft_config=str(tmp_path / "d.json"),
        )  # fmt: skip
        return planner(q).predict()

    return asked


@pytest.fixture
def values(plan):
    """How many values of 2 bytes the drafter adds to one rank."""

    def asked(draft, method="eagle3", **more) -> float:
        without = plan(THIRD, "ngram", **{k: v for k, v in more.items() if k != "tokens"}).weights_gib
        return (plan(draft, method, **more).weights_gib - without) * GIB / 2

    return asked


def test_eagle_3_has_a_wide_first_layer_what_joins_three_states_and_a_head_of_its_words(values):
    words = 32000 * 4096 + 32000 * 4  # the head, and the model's number of each of its words in 8 bytes
    assert values(THIRD) == pytest.approx(LAYER + QKV * 4096 + 3 * 4096 * 4096 + words + ROPE_2048, rel=1e-4)


@pytest.mark.parametrize(("version", "layers"), [("0.11.0", 1), ("0.11.1", 3)])
def test_all_of_its_layers_are_made_from_0_11_1_on(values, plan, version, layers):
    words = 32000 * 4096 + 32000 * 4
    three = {**THIRD, "num_hidden_layers": 3}
    found = values(three, version=version)
    assert found == pytest.approx(layers * LAYER + QKV * 4096 + 3 * 4096 * 4096 + words + ROPE_2048, rel=1e-4)
    needed = plan(three, version=version).needed_kv_gib / plan(THIRD, "ngram", version=version).needed_kv_gib
    assert needed == pytest.approx((32 + layers) / 32, rel=1e-3)


@pytest.mark.parametrize(("version", "states"), [("0.21.0", 3), ("0.22.0", 5)])
def test_it_joins_the_layers_that_its_config_names_from_0_22_on(values, version, states):
    named = {**THIRD, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 8, 15, 22, 29]}}
    assert values(named, version=version) - values(THIRD, version=version) == pytest.approx(
        (states - 3) * 4096 * 4096, abs=1e5
    )


def test_its_own_width_and_heads_count_and_a_table_of_another_width_is_its_own(values, plan):
    """Of a model of 4096 channels: 2048 wide, four heads of keys, and states as wide as the model's come in."""
    small = {
        **THIRD, "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 16, "num_key_value_heads": 4,
        "target_hidden_size": 4096,
    }  # fmt: skip
    layer = 24 * 128 * 2 * 2048 + 2048 * 2048 + 3 * 2048 * 8192
    tables = 128256 * 2048 + 32000 * 2048 + 32000 * 4
    assert values(small) == pytest.approx(layer + 3 * 4096 * 2048 + tables + ROPE_2048, rel=3e-3)  # rounded up by torch
    needed = plan(small).needed_kv_gib / plan(THIRD, "ngram").needed_kv_gib
    assert needed == pytest.approx(32.5 / 32, rel=1e-3)


@pytest.mark.parametrize(("version", "own"), [("0.10.2", True), ("0.11.0", False), ("0.11.1", True)])
def test_a_head_of_the_models_shape_is_taken_for_the_models_in_0_11_0(values, version, own):
    whole = {**THIRD, "draft_vocab_size": 128256}
    head = 128256 * 4096 * own
    assert values(whole, version=version) == pytest.approx(
        LAYER + QKV * 4096 + 3 * 4096 * 4096 + head + ROPE_2048, rel=1e-3
    )


def test_in_stages_it_keeps_an_embedding(plan):
    """Of several stages the last one has it."""
    one, ngram = (plan(THIRD, m, flags="--pipeline-parallel-size 2", version="0.33.0") for m in ("eagle3", "ngram"))
    assert one.weights_gib - ngram.weights_gib > (LAYER + 128256 * 4096) * 2 / GIB


def test_eagle_joins_an_embedding_and_a_state_and_takes_the_models_tables(values):
    first = {**THIRD, "architectures": ["LlamaForCausalLM"]}
    assert values(first, "eagle") == pytest.approx(LAYER + 2 * 4096 * 4096 + ROPE_2048, rel=1e-4)


def test_a_drafter_of_a_mixture_of_experts_is_as_dense_as_its_config(values, plan):
    """By analogy with the model it would have a layer of experts."""
    dense = {
        **THIRD, "hidden_size": 7168, "intermediate_size": 18432, "num_attention_heads": 64, "num_key_value_heads": 64,
        "vocab_size": DEEPSEEK_LIKE["vocab_size"], "head_dim": 112,
    }  # fmt: skip
    target = {"config": DEEPSEEK_LIKE, "flags": "--tensor-parallel-size 8"}
    layer = 8 * 3 * 112 * 2 * 7168 + 8 * 112 * 7168 + 3 * 7168 * 2304
    if DEEPSEEK_LIKE["hidden_size"] != 7168:
        dense["target_hidden_size"] = DEEPSEEK_LIKE["hidden_size"]
        layer += DEEPSEEK_LIKE["vocab_size"] // 8 * 7168
    joins = 3 * DEEPSEEK_LIKE["hidden_size"] * 7168
    found = values(dense, **target)
    assert found == pytest.approx(layer + joins + 4000 * 7168 + 32000 * 4 + 2048 * 112, rel=0.01)
    # 8 of its heads on a rank, beside the model's latents.
    kept = plan(dense, **target).needed_kv_gib - plan(dense, "ngram", **target).needed_kv_gib
    assert kept == pytest.approx(8192 * 2 * 8 * 112 * 2 / GIB, rel=0.02)


def test_latents_of_a_drafter_see_embeddings_too(values):
    """deepseek_eagle3.py: the two projections down take both, and lie whole on each rank."""
    like = {k: v for k, v in DEEPSEEK_LIKE.items() if k not in {"n_routed_experts", "num_experts_per_tok"}}
    latent = {**like, "architectures": ["Eagle3DeepseekV2ForCausalLM"], "num_hidden_layers": 1}
    wide, first = values(latent, config=DEEPSEEK_LIKE), values(latent, "eagle", config=DEEPSEEK_LIKE)
    hidden, vocab = DEEPSEEK_LIKE["hidden_size"], DEEPSEEK_LIKE["vocab_size"]
    rows = DEEPSEEK_LIKE["q_lora_rank"] + DEEPSEEK_LIKE["kv_lora_rank"] + DEEPSEEK_LIKE["qk_rope_head_dim"]
    assert wide - first == pytest.approx((rows + hidden) * hidden + vocab * hidden, rel=1e-2)


SPECULATORS = {
    "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": 32000,
    "transformer_layer_config": {k: v for k, v in THIRD.items() if k not in {"architectures", "draft_vocab_size"}},
}  # fmt: skip


def test_speculators_nest_the_layer_and_name_the_method(values, plan):
    assert values(SPECULATORS) == values(THIRD)
    told = plan(SPECULATORS, None)
    assert told.settings.speculative == "eagle3"
    assert told.settings.refusals == ()
    assert told.verdict == "starts"


def test_the_states_that_it_joins_are_kept_through_the_pass(plan):
    # 8192 tokens of three layers of 4096 channels.
    eager = [plan(THIRD, m, flags="--enforce-eager").activation_gib for m in ("eagle3", "ngram")]
    assert eager[0] - eager[1] == pytest.approx(8192 * 3 * 4096 * 2 / GIB, abs=0.02)


MEDUSA = {"hidden_size": 4096, "vocab_size": 128256, "medusa_num_heads": 5, "medusa_num_layers": 2}


@pytest.mark.parametrize(("more", "tables"), [({}, 3), ({"original_lm_head": True}, 1)])
def test_medusa_has_a_head_for_each_drafted_token_and_no_cache(values, plan, more, tables):
    draft = {**MEDUSA, **more}
    assert values(draft, "medusa", version="0.28.0") == pytest.approx(
        3 * 2 * 4096 * 4096 + tables * 128256 * 4096, rel=1e-3
    )
    needed = [plan(draft, m, version="0.28.0").needed_kv_gib for m in ("medusa", "ngram")]
    assert needed[0] == needed[1]
    assert plan(draft, None, version="0.28.0").settings.speculative == "medusa"


def test_stages_of_an_mlp_speculator_have_tables_of_their_own(values):
    draft = {"model_type": "mlp_speculator", "emb_dim": 4096, "inner_dim": 3072, "vocab_size": 128256, "n_predict": 4}
    joins, tables = 3072 * (4096 + 3 * 3072), 4 * 2 * 128256 * 3072
    assert values(draft, "mlp_speculator", version="0.8.5", tokens=4) == pytest.approx(joins + tables, rel=1e-3)


BLOCKS = {
    **THIRD, "architectures": ["DFlash2DraftModel"], "model_type": "qwen3", "num_hidden_layers": 5,
    "draft_vocab_size": None,
    "dflash_config": {"target_layer_ids": [1, 8, 15, 22, 29]},
}  # fmt: skip


def test_the_second_dflash_adds_convolutions_and_a_selector(values):
    more = {"conv_kernel_size": 4, "conv_group_size": 64, "selector_rank": 256, "selector_top_k": 8}
    second = {**BLOCKS, "dflash_config": {**BLOCKS["dflash_config"], **more}}
    convolutions = 5 * 2 * (2 * 4 * 4096 + 4096 * 2 * 4 * 64)
    added = values(second, "dflash") - values(BLOCKS, "dflash")
    assert added == pytest.approx(convolutions + 256 * (2 * 128256 + 4096), abs=1e5)


@pytest.mark.parametrize(("version", "windows"), [("0.24.0", 0), ("0.25.0", 5)])
def test_layers_of_dflash_have_windows_from_0_25_on(plan, version, windows):
    sliding = {**BLOCKS, "sliding_window": 2048, "dflash_config": {**BLOCKS["dflash_config"], "use_swa": True}}
    p = plan(sliding, "dflash", version)
    assert p.settings.draft is not None
    assert [layer.window for layer in p.settings.draft.layers].count(2048) == windows


def test_dspark_adds_a_table_of_transitions(values):
    spark = {
        **BLOCKS,
        "architectures": ["Qwen3DSparkModel"],
        "dflash_config": None,
        "target_layer_ids": [1, 8, 15, 22, 29],
    }
    added = values({**spark, "markov_rank": 256}, "dspark") - values(BLOCKS, "dflash")
    assert added == pytest.approx(2 * 256 * 128256, abs=1e5)


def test_layers_of_multi_token_prediction_of_another_checkpoint_are_as_it_has_them(values):
    """The model in 16 bits, its layer that predicts more from a checkpoint in 8."""
    own = {**LLAMA_8B, "num_nextn_predict_layers": 1}
    small = {**own, "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}}
    plain = values(own, "mtp", config=own)
    assert plain == pytest.approx(LAYER + 2 * 4096 * 4096, rel=1e-3)
    assert values(small, "mtp", config=own) == pytest.approx(LAYER / 2 + 2 * 4096 * 4096, rel=1e-3)


def test_a_drafter_that_is_a_mixture_of_experts_keeps_all_of_them_on_each_rank_by_width(values):
    experts = {
        **THIRD, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_hidden_layers": 4,
        "num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 768, "hidden_size": 2048,
    }  # fmt: skip
    layer = QKV * 2048 + 4096 * 2048 + 16 * 3 * 2048 * 768 + 16 * 2048
    tables = 2 * 128256 * 2048 + ROPE_2048
    assert values(experts, "draft_model") == pytest.approx(4 * layer + tables, rel=2e-3)


def test_keys_and_values_of_dflash_are_copied_where_they_are_not_quantized(values):
    eight = {**BLOCKS, "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}}
    layers, copied = 5 * LAYER, 5 * 2 * 8 * 128 * 4096
    assert values(BLOCKS, "dflash") - values(eight, "dflash") == pytest.approx(layers / 2 + copied, rel=2e-3)


@pytest.mark.parametrize(
    ("words", "version", "refused"), [(0, "0.8.5", False), (128, "0.8.5", True), (128, "0.19.1", False)]
)
def test_the_v0_engine_asserts_one_vocabulary(plan, monkeypatch, words, version, refused):
    monkeypatch.setenv("VLLM_USE_V1", "0")
    draft = {**LLAMA_8B, "num_hidden_layers": 2, "vocab_size": LLAMA_8B["vocab_size"] + words}
    told = plan(draft, None, version).settings
    assert ([r.found for r in told.refusals] == [f"a drafter with {128256 + words} words"]) is refused


SMALL = {**LLAMA_8B, "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2}


@pytest.mark.parametrize(
    ("draft", "method", "version", "flags", "told"),
    [
        (SMALL, "draft_model", "0.33.0", "-tp 4", "a drafter whose heads 4 ranks divide"),
        (SMALL, "draft_model", "0.33.0", "-tp 2", None),
        (
            {**THIRD, "num_attention_heads": 28, "num_key_value_heads": 4}, "eagle3", "0.33.0", "-tp 8",
            "a drafter whose heads 8 ranks divide; or draft_tensor_parallel_size 1 in it",
        ),
        (THIRD, "eagle3", "0.33.0", "-tp 4", None),
    ],
)  # fmt: skip
def test_the_heads_of_a_drafter_divide_by_its_ranks(plan, draft, method, *, version, flags, told):
    refused = plan(draft, method, version, flags=flags).settings.refusals
    assert [r.needed for r in refused if r.found.endswith("attention heads")] == ([told] if told else [])

"""What a drafter and an unsaid runner take: what follows from the model is counted, what does not widens the range or
leaves the verdict open."""

import json

import pytest

from tests.plan.models import DSA_LIKE, HYBRID_LIKE, LLAMA_8B
from vllm_doctor.plan.prediction.record import Prediction
from vllm_doctor.plan.question.ask import KnownStart, foresee
from vllm_doctor.plan.question.planner import Question, planner

EAGLE3 = "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
# Its last layer is a global one: two heads of 512 for keys, where the first has eight of 256.
GEMMA4_LIKE: dict[str, object] = {
    "model_type": "gemma4_text",
    "architectures": ["Gemma4ForCausalLM"],
    "hidden_size": 2816,
    "intermediate_size": 2112,
    "num_hidden_layers": 30,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 256,
    "vocab_size": 262144,
    "max_position_embeddings": 262144,
    "sliding_window": 1024,
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5,
    "global_head_dim": 512,
    "num_global_key_value_heads": 2,
    "attention_k_eq_v": True,
    "num_experts": 128,
    "top_k_experts": 8,
    "moe_intermediate_size": 704,
    "enable_moe_block": True,
    "torch_dtype": "bfloat16",
}
QUANTIZED = {**LLAMA_8B, "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}}


def planned(config=LLAMA_8B, env=(), version="0.33.0", **drafts) -> Prediction:
    words = ("--speculative-config", json.dumps(drafts)) if drafts else ()
    argv = (*env, "vllm", "serve", "m", "--max-model-len", "8192", *words)
    told = foresee(KnownStart(argv, version, config, "NVIDIA H100 80GB HBM3", 79.19))
    assert told is not None
    return told.now


def range_(p: Prediction) -> float:
    assert p.margin_gib is not None
    return p.margin_gib[1] - p.margin_gib[0]


@pytest.mark.parametrize("drafts", [{"model": EAGLE3}, {"model": "d", "method": "eagle3"}])
def test_an_eagle_3_drafter_has_a_wider_first_layer_and_a_head_of_its_own(drafts):
    # 0.43e9 values of the published drafter, 0.79 GiB.
    p = planned(num_speculative_tokens=3, **drafts)
    assert p.weights_gib - planned().weights_gib == pytest.approx(0.79, abs=0.01)


def test_an_eagle_3_drafter_of_a_model_with_experts_has_none():
    """A layer's attention over two states, its dense part, what joins three states, and a head of 32,000 words."""
    drafts = {"method": "eagle3", "model": "d", "num_speculative_tokens": 3}
    third, none = planned(GEMMA4_LIKE, **drafts), planned(GEMMA4_LIKE)
    attention = 2 * (16 + 2 * 8) * 256 + 16 * 256
    values = 2816 * (attention + 3 * 2112 + 3 * 2816 + 32000)
    assert third.weights_gib - none.weights_gib == pytest.approx(2 * values / (1 << 30), abs=0.005)


def test_its_cache_has_the_heads_of_the_models_first_layer(tmp_path):
    drafts = {"method": "eagle3", "model": "d", "num_speculative_tokens": 3}
    words = ("--max-model-len", "98304", "--kv-cache-dtype", "fp8", "--speculative-config", json.dumps(drafts))
    (tmp_path / "m.json").write_text(json.dumps(GEMMA4_LIKE))
    launch = ("vllm", "serve", "m", *words)
    q = Question(launch, "RTX 5090", 1, None, "0.19.1", str(tmp_path / "m.json"), available_kv_gib="7.77")
    assert planner(q).predict().kv_tokens == 65696  # as an RTX 5090 of 0.19 logged it


def test_its_head_may_have_the_models_whole_vocabulary_which_no_launch_shows():
    third, second = (planned(method=m, model="d", num_speculative_tokens=3) for m in ("eagle3", "eagle"))
    whole = (128256 - 32000) * 4096 * 2 / (1 << 30)
    assert third.margin_gib is not None
    assert third.available_kv_gib is not None
    assert range_(third) - range_(second) == pytest.approx(whole, abs=0.01)
    assert third.widest is not None


def test_each_models_own_name_of_its_mtp_layers_is_mtp():
    config = {**LLAMA_8B, "num_nextn_predict_layers": 1}
    short, own = (planned(config, method=m, num_speculative_tokens=1).weights_gib for m in ("mtp", "qwen3_next_mtp"))
    assert short == own
    assert own > planned(config).weights_gib


def test_each_layer_of_multi_token_prediction_has_weights_and_a_cache():
    def drafting(layers, **config):
        config = {**LLAMA_8B, **config, "num_nextn_predict_layers": layers}
        return planned(config, method="mtp", num_speculative_tokens=layers)

    without, one, three = planned(), drafting(1), drafting(3)
    each = one.weights_gib - without.weights_gib
    assert three.weights_gib - without.weights_gib == pytest.approx(3 * each, abs=0.01)
    assert three.needed_kv_gib == pytest.approx(without.needed_kv_gib * 35 / 32, rel=1e-3)
    first, all_three = (drafting(n, model_type="mimo_v2_flash").weights_gib for n in (1, 3))
    assert first == all_three, "of these vLLM makes the first alone (mimo_v2_mtp.py)"


@pytest.mark.parametrize("drafts", [{"model": "meta-llama/Llama-3.2-1B"}, {"model": "z-lab/Qwen3-8B-DFlash"}])
def test_a_drafter_that_is_a_model_of_its_own_leaves_the_verdict_open(drafts):
    p = planned(num_speculative_tokens=3, **drafts)
    assert p.verdict == "unknown"
    assert any("is a separate model" in doubt for doubt in p.settings.doubts)


def test_n_grams_take_no_memory():
    p = planned(method="ngram", num_speculative_tokens=4, prompt_lookup_max=4)
    assert p.weights_gib == planned().weights_gib
    assert p.verdict == "starts"


def test_a_quantized_model_is_on_the_second_runner_from_0_24_on():
    # 0.22 and 0.23 ask whether it is quantized, 0.24 to 0.28 do not (config/vllm.py _is_default_v2_model_runner_model).
    assert not planned(QUANTIZED, version="0.23.0").settings.v2_runner
    assert planned(version="0.23.0").settings.v2_runner
    assert planned(QUANTIZED, version="0.26.0").settings.v2_runner
    assert not planned(QUANTIZED, ("VLLM_USE_V2_MODEL_RUNNER=0",), version="0.26.0").settings.v2_runner


SMALL = {
    **LLAMA_8B, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "head_dim": 64,
    "tie_word_embeddings": True,
}  # fmt: skip
OWN = {"model": "meta-llama/Llama-3.2-1B", "num_speculative_tokens": 3}


@pytest.fixture
def with_drafter(tmp_path):
    """A plan of Llama-3.1-8B with Llama-3.2-1B as its drafter, whose config.json is given."""

    def asked(drafts=OWN, version="0.33.0", flags="", draft=SMALL, model=LLAMA_8B) -> Prediction:
        for name, config in (("m", model), ("d", draft)):
            (tmp_path / f"{name}.json").write_text(json.dumps(config))
        words = ("--speculative-config", json.dumps(drafts), *flags.split())
        q = Question(
            ("vllm", "serve", "m", "--max-model-len", "8192", *words), "H100", 8, None, version,
            str(tmp_path / "m.json"), draft_config=str(tmp_path / "d.json"),
        )  # fmt: skip
        return planner(q).predict()

    return asked


def test_a_drafter_whose_config_is_given_has_its_weights_and_its_cache(with_drafter):
    p = with_drafter()
    # 1,235,814,400 parameters, published, and the cos and sin of its positions.
    assert p.weights_gib - planned().weights_gib == pytest.approx(
        2 * (1_235_814_400 + 131072 * 64) / (1 << 30), abs=0.01
    )
    # 32 KiB a token beside the model's 128.
    assert p.needed_kv_gib == pytest.approx(planned().needed_kv_gib * (128 + 32) / 128, rel=1e-3)
    assert p.verdict == "starts"


def test_it_is_split_as_the_model_is(with_drafter):
    one, four = with_drafter(), with_drafter(flags="--tensor-parallel-size 4")
    alone = [planned().weights_gib, planned_on_four().weights_gib]
    assert four.weights_gib - alone[1] == pytest.approx((one.weights_gib - alone[0]) / 4, rel=0.03)


def planned_on_four() -> Prediction:
    argv = ("vllm", "serve", "m", "--max-model-len", "8192", "--tensor-parallel-size", "4")
    told = foresee(KnownStart(argv, "0.33.0", LLAMA_8B, "NVIDIA H100 80GB HBM3", 79.19, gpus=8))
    assert told is not None
    return told.now


@pytest.mark.parametrize(
    ("version", "refused"), [("0.9.2", False), ("0.10.0", True), ("0.14.1", True), ("0.15.0", False)]
)
def test_from_0_10_to_0_14_no_model_drafts_for_another(with_drafter, version, refused):
    flags = [r.flag for r in with_drafter(version=version).settings.refusals]
    assert ("--speculative-config" in flags) == refused


def test_a_config_that_no_drafter_asks_for_is_said_to_be_unread(with_drafter):
    ngram = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}
    assert with_drafter(ngram).weights_gib == planned().weights_gib


def test_a_drafter_makes_an_embedding_of_its_own_before_it_takes_the_models():
    # MTP of a quantized Qwen3.6-27B on 22.4 GiB: 2.37 GiB were asked for while loading, which is its embedding.
    config = {**LLAMA_8B, "num_nextn_predict_layers": 1}
    argv = ("vllm", "serve", "m", "--max-model-len", "2048", "--enforce-eager", "--max-num-batched-tokens", "2048")
    drafts = ("--speculative-config", '{"method":"mtp","num_speculative_tokens":1}')
    with_it, without = (
        foresee(KnownStart((*argv, *more), "0.25.1", config, None, total_gib=17.2)) for more in (drafts, ())
    )
    assert with_it is not None
    assert without is not None
    assert (with_it.now.outcome, without.now.outcome) == ("oom-weights", "ok")


@pytest.mark.parametrize(
    ("method", "architecture", "version", "told"),
    [
        ("eagle", "Qwen2ForCausalLM", "0.10.2", "a drafter of class EagleQwen2ForCausalLM"),
        ("eagle", "LlamaForCausalLM", "0.10.2", None),
        ("eagle", "MistralForCausalLM", "0.10.2", "a drafter of class EagleMistralForCausalLM"),  # comes later
        ("eagle", "MistralForCausalLM", "0.33.0", None),
        ("eagle", "SomeSpeculator", "0.10.2", None),  # another format, which is translated
        ("dflash", "DFlash2DraftModel", "0.27.1", "a drafter of class DFlash2DraftModel"),
        ("dflash", "DFlash2DraftModel", "0.33.0", None),
    ],
)
def test_a_drafter_needs_a_class_that_is_named_after_it(with_drafter, method, architecture, version, told):
    draft = {**SMALL, "architectures": [architecture]}
    drafts = {"model": "d", "method": method, "num_speculative_tokens": 3}
    p = with_drafter(drafts, version, draft=draft)
    assert [r.found for r in p.settings.refusals] == ([told] if told else [])


EXPERTS = {**LLAMA_8B, "model_type": "qwen3_moe", "num_experts": 64, "num_experts_per_tok": 8}
ASSISTANT = {
    "architectures": ["Gemma4AssistantForCausalLM"],
    "model_type": "gemma4_assistant",
    "text_config": {**SMALL, "model_type": "gemma4_text", "sliding_window": 1024, "num_hidden_layers": 4},
}


@pytest.mark.parametrize(
    ("flags", "draft", "version", "ends"),
    [
        ("--enable-expert-parallel", ASSISTANT, "0.29.0", True),
        ("", ASSISTANT, "0.29.0", False),
        ("--enable-expert-parallel", SMALL, "0.29.0", False),
        ("--enable-expert-parallel", ASSISTANT, "0.22.1", False),  # on the first runner
    ],
)
def test_gemmas_drafter_is_asked_for_experts_where_experts_are_spread(with_drafter, flags, draft, version, ends):
    drafts = {"model": "d", "method": "mtp", "num_speculative_tokens": 3}
    p = with_drafter(drafts, version, f"--tensor-parallel-size 2 {flags}", draft, EXPERTS)
    found = [r.needed for r in p.settings.refusals if r.flag == "--enable-expert-parallel"]
    assert len(found) == ends
    assert all("it has no experts" in needed for needed in found)


@pytest.mark.parametrize(
    ("flags", "own", "version", "told"),
    [
        ("--kv-cache-dtype fp8_ds_mla", {}, "0.28.0", "a drafter with a cache of fp8_ds_mla"),
        ("--kv-cache-dtype fp8_ds_mla", {"kv_cache_dtype": "auto"}, "0.28.0", None),
        ("--kv-cache-dtype fp8", {}, "0.28.0", None),
        ("", {"kv_cache_dtype": "fp8_ds_mla"}, "0.28.0", "a drafter with a cache of fp8_ds_mla"),
        ("", {}, "0.28.0", None),
    ],
)
def test_a_drafter_of_plain_attention_takes_no_cache_of_latents(with_drafter, flags, own, version, told):
    drafts = {"model": "d", "method": "eagle3", "num_speculative_tokens": 3, **own}
    p = with_drafter(drafts, version, f"--tensor-parallel-size 8 {flags}", SMALL, DSA_LIKE)
    found = p.settings.refusals
    assert [r.found for r in found if r.flag == "--speculative-config"] == ([told] if told else [])


HYBRID = {**HYBRID_LIKE, "architectures": ["Qwen3_5ForCausalLM"]}
DFLASH = {
    "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "torch_dtype": "bfloat16", "hidden_size": 5120,
    "intermediate_size": 17408, "num_hidden_layers": 5, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 248320, "max_position_embeddings": 262144, "tie_word_embeddings": False,
    "dflash_config": {"target_layer_ids": [1, 16, 31, 46, 61]},
}  # fmt: skip
BLOCKS = {"method": "dflash", "model": "d", "num_speculative_tokens": 5}


@pytest.fixture
def with_dflash(tmp_path):
    """A plan of a hybrid of 64 layers on two cards with a drafter of DFlash, whose config.json is given."""

    def asked(version="0.20.2", flags="", draft=DFLASH, drafts=BLOCKS, kv_gib=None) -> Prediction:
        for name, config in (("m", HYBRID), ("d", draft)):
            (tmp_path / f"{name}.json").write_text(json.dumps(config))
        words = ("--speculative-config", json.dumps(drafts), "--enable-prefix-caching", *flags.split())
        q = Question(
            ("vllm", "serve", "m", "-tp", "2", "--max-model-len", "180000", "--max-num-seqs", "1", *words), "H100", 2,
            None, version, str(tmp_path / "m.json"), draft_config=str(tmp_path / "d.json"), available_kv_gib=kv_gib,
        )  # fmt: skip
        return planner(q).predict()

    return asked


def test_a_drafter_of_dflash_has_its_layers_and_what_joins_the_models_states(with_dflash):
    """qwen3_dflash.py: fc whole on each rank, keys and values of all layers once more, no embedding and no head."""
    layers = 5 * (3 * 5120 * 17408 + 5120 * 128 * (2 * 32 + 2 * 8)) / 2
    joining = 5 * 5120 * 5120 + 5 * 2 * 4 * 128 * 5120 + 262144 * 128  # and its own table of positions
    ngram = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}
    p, without = with_dflash(), with_dflash(drafts=ngram)
    assert p.weights_gib - without.weights_gib == pytest.approx(2 * (layers + joining) / (1 << 30), abs=0.01)
    assert not any("draft" in doubt for doubt in p.settings.doubts)
    eager, other = (with_dflash(flags="--enforce-eager", drafts=d).activation_gib for d in (BLOCKS, ngram))
    assert eager - other == pytest.approx(8192 * 5 * 5120 * 2 / (1 << 30), abs=0.01)


def test_its_layers_share_no_group_with_layers_of_another_shape(with_dflash):
    """4 heads of 128 take as much as 2 of 256, and are another spec (kv_cache_interface.py merge): groups of five
    layers, not of 21. A public log of two RTX 4090 has these 1251 blocks and 67,728 tokens."""
    p = with_dflash("0.20.0", kv_gib="9.74")
    assert p.pool is not None
    assert [g.layers for g in p.pool.groups] == [5] * 15
    assert (p.gpu_blocks, p.kv_tokens) == (1251, 67728)


@pytest.mark.parametrize(("version", "bits"), [("0.21.0", 16), ("0.22.0", 8)])
def test_to_0_21_its_cache_is_of_the_models_type(with_dflash, version, bits):
    p = with_dflash(version, "--kv-cache-dtype fp8")
    assert p.pool is not None
    drafter = next(g.spec for g in p.pool.groups if g.spec.kind == "full" and g.spec.heads == 4)
    assert drafter.token_bytes * 8 == 2 * 4 * 128 * bits


def test_another_class_of_dflash_leaves_the_verdict_open(with_dflash):
    p = with_dflash("0.33.0", draft={**DFLASH, "architectures": ["DFlashLagunaForCausalLM"]})
    assert any("drafter of class DFlashLagunaForCausalLM" in doubt for doubt in p.settings.doubts)

"""Weight bytes against sums done by hand from the published dimensions."""

import pytest

from tests.plan.models import DEEPSEEK_LIKE, GEMMA3_LIKE, LLAMA_8B, arch
from tests.plan.test_plan import model, plan
from vllm_doctor.plan.launch.parallel import Parallel, stage_layers
from vllm_doctor.plan.model.config_json import Section
from vllm_doctor.plan.model.describe import describe
from vllm_doctor.plan.model.experts import experts_of
from vllm_doctor.plan.model.quantization import GGUF_BITS, Format, Scheme, gguf_bits, scheme, unquantized_format
from vllm_doctor.plan.terms.matrices import Matrix, feed_forward, layer_matrices, padded_vocab
from vllm_doctor.plan.terms.weights import GIB, MIB, WeightTarget, allocated, rank_weights, step_buffers, tensors

__all__ = ["model"]

TARGET = WeightTarget(2)


def of(config, tp=1, pp=1, stage=0, quantization=None, online=None, target=TARGET):  # noqa: PLR0917
    a = arch(config, **({"quantization_config": quantization} if quantization else {}))
    return rank_weights(a, scheme(a.quantization, online, 2), Parallel(tp, pp), stage, target)


def test_llama_8b_is_its_parameters_plus_the_rope_table():
    layer = 4096 * 4096 * 2 + 2 * 1024 * 4096 + 3 * 14336 * 4096 + 2 * 4096
    parameters = 32 * layer + 2 * 128256 * 4096 + 4096
    rope = 131072 * 128  # cos and sin of 64 each, model dtype (rotary_embedding/base.py)
    assert of(LLAMA_8B) == 2 * (parameters + rope)
    # 14.99 GiB is what vLLM 0.19.0 logged (llm-d-planner pull 205, llama-3.1-8b on H100).
    assert of(LLAMA_8B) / GIB == pytest.approx(14.99, abs=0.005)


def test_kv_heads_are_copied_when_tp_exceeds_them():
    a = of(LLAMA_8B, tp=16)
    # One KV head a rank instead of half of one: q 2, k and v 1 head each, of 128.
    qkv = (2 + 1 + 1) * 128 * 4096
    assert a == pytest.approx(
        2 * (32 * (qkv + 256 * 4096 + 3 * 896 * 4096 + 2 * 4096) + 2 * 8016 * 4096 + 4096 + 131072 * 128), rel=1e-6
    )


def test_pipeline_stages_share_layers_and_only_the_ends_hold_the_vocabulary():
    assert stage_layers(61, 4) == (15, 15, 16, 15)
    assert stage_layers(62, 4) == (15, 16, 16, 15)
    middle, last = of(LLAMA_8B, pp=4, stage=1), of(LLAMA_8B, pp=4, stage=3)
    assert last - middle == 2 * (128256 * 4096 + 4096)


def test_vocabulary_is_padded_to_64_and_to_the_ranks():
    assert padded_vocab(49155, 1) == 49216
    assert padded_vocab(49155, 3) % 3 == 0


@pytest.mark.parametrize(
    ("size", "splits", "charged"),
    [
        (31.5, True, 32.0),  # half a MiB left over stays with the tensor
        (24.5, True, 24.5),  # 1.5 MiB left over is split off
        (24.5, False, 26.0),  # not while vLLM 0.22.1+ forbids it for blocks of 20 MiB and more
        (9.5, True, 9.5),  # below 10 MiB segments are shared
    ],
)
def test_the_allocator_rounds_large_tensors(size, splits, charged):
    assert allocated(size * MIB, splits_large=splits) == pytest.approx(charged * MIB)


def test_linear_rope_scaling_stretches_the_table():
    plain = of(GEMMA3_LIKE)
    stretched = of({**GEMMA3_LIKE, "rope_scaling": {"rope_type": "linear", "factor": 8.0}})
    # 8 × 131072 rows for the global layers, and 131072 more for the local ones (gemma3.py).
    assert stretched - plain == 8 * 131072 * 128 * 2


def test_int4_groups_carry_scales_and_zero_points():
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    values = 4096 * 4096 * 2 + 2 * 1024 * 4096 + 3 * 14336 * 4096
    assert of(LLAMA_8B, quantization=awq) == pytest.approx(
        32 * values * (0.5 + 2.5 / 128) + 32 * 2 * 4096 * 2 + 2 * (2 * 128256 * 4096 + 4096 + 131072 * 128), rel=2e-3
    )


def test_fp8_blocks_cost_one_byte_and_a_scale_per_tile():
    a = arch(DEEPSEEK_LIKE)
    got = rank_weights(a, scheme(a.quantization, None, 2), Parallel(8), 0, TARGET)
    experts = 58 * 256 * 3 * 2048 * 7168 / 8
    assert got / GIB == pytest.approx(79.5, abs=1.0)
    assert got > experts * (1 + 4 / 128**2)


def test_ignored_modules_keep_the_model_dtype():
    config = {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.mlp", "lm_head"]}
    everything = {"quant_method": "fp8", "modules_to_not_convert": ["lm_head"]}
    assert of(LLAMA_8B, quantization=config) - of(LLAMA_8B, quantization=everything) == pytest.approx(
        3 * 14336 * 4096, rel=1e-4
    )


def test_patterns_by_name_glob_and_expression():
    ct = {
        "quant_method": "compressed-tensors",
        "ignore": ["re:.*self_attn.*", "lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "group_size": None},
            }
        },
    }
    fmt = scheme(Section(ct), None, 2)
    assert fmt.choose("model.layers.3.self_attn.q_proj", False).bits == 16
    assert fmt.choose("model.layers.3.mlp.up_proj", False).bits == 8


def test_the_type_of_a_gguf_file_is_in_its_name():
    assert gguf_bits("Llama-3.2-3B-Instruct-Q8_0.gguf") == 8.5
    assert gguf_bits("x.Q4_K_M.gguf") == 4.83
    assert gguf_bits("x.gguf") is None


def test_experts_spread_whole_under_expert_parallel():
    a = arch(DEEPSEEK_LIKE)
    fmt = scheme(a.quantization, None, 2)
    split = rank_weights(a, fmt, Parallel(8), 0, TARGET)
    whole = rank_weights(a, fmt, Parallel(8, expert=True), 0, TARGET)
    assert whole == pytest.approx(split, rel=0.01)


def test_data_parallel_ranks_share_each_experts_width_as_tensor_parallel_ones_do():
    """fused_moe/config.py: two ranks hold half of the experts' bytes each, whole ones or half of the width of all."""
    a = arch(
        {
            **LLAMA_8B,
            "architectures": ["Qwen3MoeForCausalLM"],
            "model_type": "qwen3_moe",
            "num_experts": 64,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 1024,
        }
    )
    fmt = scheme(a.quantization, None, 2)
    width, whole, one = (
        rank_weights(a, fmt, par, 0, TARGET) for par in (Parallel(dp=2), Parallel(dp=2, expert=True), Parallel())
    )
    assert width == whole
    assert one - width == 32 * 64 * 3 * 1024 * 4096 * 2 // 2


def test_yarn_stretches_the_four_lengths_of_multimodal_rope():
    rope = {"mrope_section": [11, 11, 10], "rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 1000}
    plain = {"mrope_section": [11, 11, 10], "rope_type": "default"}
    sizes = [arch(LLAMA_8B, max_position_embeddings=1000, rope_scaling=r).ropes for r in (plain, rope)]
    assert sizes == [((4000, 128),), ((12000, 128),)]


def test_gemma_4_keeps_a_rope_table_for_each_kind_of_layer():
    # 58.99 GiB logged of the 31B: 0.25 GiB of it is the table of the full layers, as wide as their heads of 512.
    wide = arch(
        {
            **GEMMA3_LIKE,
            "model_type": "gemma4_text",
            "head_dim": 256,
            "global_head_dim": 512,
            "max_position_embeddings": 262144,
        }
    )
    assert set(wide.ropes) == {(262144, 512), (262144, 256)}


def test_gemma_3_turns_its_windows_with_a_base_of_their_own():
    assert len(arch(GEMMA3_LIKE, rope_local_base_freq=10000).ropes) == 2
    assert len(arch(LLAMA_8B).ropes) == 1


def test_inner_features_of_an_encoder_are_kept_for_the_widest_step():
    # 16.78 GiB logged of Qwen3-VL-8B with steps of 8192 tokens, 0.19 more than its tensors: 3 levels of 8192 × 4096.
    tower = {"model_type": "qwen3_vl", "depth": 27, "hidden_size": 1152, "deepstack_visual_indexes": [8, 16, 24]}
    vl = arch(
        {"model_type": "qwen3_vl", "text_config": {**LLAMA_8B, "model_type": "qwen3_vl_text"}, "vision_config": tower}
    )
    assert step_buffers(vl, 8192, 2) == 3 * 8192 * 4096 * 2
    assert step_buffers(arch(LLAMA_8B), 8192, 2) == 0


# Bytes of one block and the values in it, as ggml-common.h lays them out (its static_asserts).
BLOCKS = {
    "F32": (4, 1), "F16": (2, 1), "BF16": (2, 1), "Q8_0": (34, 32), "Q4_0": (18, 32), "Q4_1": (20, 32),
    "Q5_0": (22, 32), "Q5_1": (24, 32), "Q2_K": (84, 256), "Q3_K": (110, 256), "Q4_K": (144, 256),
    "Q5_K": (176, 256), "Q6_K": (210, 256), "IQ1_S": (50, 256), "IQ1_M": (56, 256), "IQ2_XXS": (66, 256),
    "IQ2_XS": (74, 256), "IQ2_S": (82, 256), "IQ3_XXS": (98, 256), "IQ3_S": (110, 256), "IQ4_NL": (18, 32),
    "IQ4_XS": (136, 256),
}  # fmt: skip


def test_bits_of_gguf_types_are_their_blocks():
    assert {name: 8 * size / values for name, (size, values) in BLOCKS.items()} == GGUF_BITS


FALCON_MAMBA = {
    "architectures": ["FalconMambaForCausalLM"],
    "model_type": "falcon_mamba",
    "conv_kernel": 4,
    "expand": 16,
    "hidden_size": 4096,
    "intermediate_size": 8192,
    "num_hidden_layers": 64,
    "state_size": 16,
    "time_step_rank": 256,
    "vocab_size": 65024,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
MAMBA = {
    "architectures": ["MambaForCausalLM"],
    "model_type": "mamba",
    "conv_kernel": 4,
    "expand": 2,
    "hidden_size": 2560,
    "intermediate_size": 5120,
    "num_hidden_layers": 64,
    "state_size": 16,
    "time_step_rank": 160,
    "vocab_size": 50280,
    "tie_word_embeddings": True,
    "torch_dtype": "float16",
}
JAMBA = {
    "architectures": ["JambaForCausalLM"],
    "model_type": "jamba",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "attn_layer_period": 8,
    "attn_layer_offset": 4,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "mamba_d_conv": 4,
    "mamba_d_state": 16,
    "mamba_dt_rank": 256,
    "mamba_expand": 2,
    "vocab_size": 65536,
    "max_position_embeddings": 262144,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


@pytest.mark.parametrize(
    ("config", "published"),
    [(FALCON_MAMBA, 7.27e9), (MAMBA, 2.77e9), (JAMBA, 51.6e9)],  # parameters, as the models' pages state them
)
def test_mixers_without_attention_weigh_what_is_published(config, published):
    a = describe(Section(config))
    size = rank_weights(a, scheme(a.quantization, None, 2), Parallel(), 0, WeightTarget(2))
    assert size == pytest.approx(2 * published, rel=0.015)  # the allocator rounds up


def test_a_model_of_mixers_alone_keeps_states_and_no_keys():
    a = describe(Section(FALCON_MAMBA))
    assert {layer.kind for layer in a.layers} == {"mamba"}
    assert (a.width, a.heads, a.linear.value_dim, a.linear.step_rank) == (0, 0, 8192, 256)


def test_gemma_4_s_experts_stand_beside_an_mlp_of_the_layer_itself():
    kinds = (["sliding_attention"] * 5 + ["full_attention"]) * 5
    text = {
        "model_type": "gemma4_text", "hidden_size": 2816, "intermediate_size": 2112, "num_hidden_layers": 30,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "global_head_dim": 512,
        "num_global_key_value_heads": 2, "attention_k_eq_v": True, "vocab_size": 262144, "tie_word_embeddings": True,
        "max_position_embeddings": 262144, "sliding_window": 1024, "layer_types": kinds, "torch_dtype": "bfloat16",
        "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704,
    }  # fmt: skip
    sparse = of({**text, "enable_moe_block": True})
    # 48.5 GiB is what 0.20.0 logged of gemma-4-26B-A4B, its vision tower of 1.1 GiB included.
    assert sparse / GIB == pytest.approx(47.4, abs=0.05)
    one = 3 * 2816 * 2112 * 2 * 30
    assert sparse - of({**text, "enable_moe_block": True, "intermediate_size": 1056}) == pytest.approx(
        one / 2, rel=1e-3
    )


def test_small_gemma_4_s_layers_without_keys_of_their_own_have_a_wide_mlp():
    text = {**GEMMA3_LIKE, "model_type": "gemma4_text", "num_kv_shared_layers": 3}
    wide = of({**text, "use_double_wide_mlp": True}) - of(text)
    assert wide == pytest.approx(3 * 3 * text["hidden_size"] * text["intermediate_size"] * 2, rel=1e-3)


HYBRID = {
    "model_type": "nemotron_h",
    "hidden_size": 2688,
    "intermediate_size": 1856,
    "num_hidden_layers": 4,
    "hybrid_override_pattern": "ME*E",
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "vocab_size": 131072,
    "max_position_embeddings": 8192,
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "n_routed_experts": 128,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1856,
}


def test_experts_without_a_gate_have_two_matrices():
    # Nemotron-3-Nano in fp8 logged 30.52 GiB with 0.14.1, where three matrices would make 43.6.
    fewer = of({**HYBRID, "n_routed_experts": 64})
    experts, routers = 2 * 64 * 2 * 2688 * 1856, 2 * 64 * 2688
    assert of(HYBRID) - fewer == pytest.approx(2 * (experts + routers), rel=3e-3)


@pytest.mark.parametrize(
    ("changes", "width"),  # of all shared experts together, of two layers of experts
    [
        ({"n_shared_experts": 1}, 1856),
        ({"n_shared_experts": 1, "moe_shared_expert_intermediate_size": 3712}, 3712),
        ({"num_shared_experts": 2, "moe_shared_expert_intermediate_size": 512}, 1024),
        ({"moe_shared_expert_intermediate_size": 3712}, 3712),  # the count is 1 where it is not given
        ({"n_shared_experts": 0, "moe_shared_expert_intermediate_size": 3712}, 0),
        ({"n_shared_experts": 3, "shared_expert_intermediate_size": 512}, 512),
        ({"share_expert_dim": 5120}, 5120),
    ],
)
def test_shared_experts_are_as_wide_as_their_model_names_them(changes, width):
    a = describe(Section({**HYBRID, **changes}))
    assert a.moe is not None
    assert a.moe.shared_width == width
    assert of({**HYBRID, **changes}) - of(HYBRID) == pytest.approx(2 * 2 * 2 * 2688 * width, abs=8 * MIB)


def test_param2moe_names_the_width_of_all_shared_experts():
    moe = {**HYBRID, "num_shared_experts": 2, "moe_shared_expert_intermediate_size": 512}
    found = experts_of(Section(moe), 4, 1856, "param2moe")
    assert found is not None
    assert found.shared_width == 512


def test_latent_experts_take_and_give_a_narrower_width_between_two_projections():
    # Nemotron 3 Super: 40 layers of 512 experts of 2688 channels, from latents of 1024 instead of hidden states of 4096
    # (nemotron_h.py fc1_latent_proj, fc2_latent_proj, which each rank has whole).
    plain, latent = ({**HYBRID, **more} for more in ({}, {"moe_latent_size": 672}))
    experts, projections = 2 * 128 * 2 * (2688 - 672) * 1856, 2 * 2 * 2688 * 672
    assert of(plain) - of(latent) == pytest.approx(2 * (experts - projections), rel=1e-3)
    a = describe(Section(latent))
    assert (a.moe.inputs(2688), describe(Section(plain)).moe.inputs(2688)) == (672, 2688)
    whole = [m for m in feed_forward(a, 1, "layers.1", Parallel(tp=4)) if "latent" in m.name]
    assert [(m.name, m.out, m.inner) for m in whole] == [
        ("layers.1.mixer.fc1_latent_proj", 672, 2688),
        ("layers.1.mixer.fc2_latent_proj", 2688, 672),
    ]


def test_hy3_names_the_width_of_an_expert_in_its_own_word():
    config = {**HYBRID, "model_type": "hy_v3", "hybrid_override_pattern": None, "num_shared_experts": 1}
    config |= {"n_routed_experts": None, "num_experts": 128, "moe_intermediate_size": None, "expert_hidden_dim": 1536}
    found = experts_of(Section({k: v for k, v in config.items() if v is not None}), 4, 13312, "hy_v3")
    assert found is not None
    assert (found.width, found.shared_width) == (1536, 1536)


def test_a_list_of_nemotron_h_names_mixers_below_the_backbone():
    fp8 = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}
    left = {**fp8, "ignore": ["lm_head", "backbone.layers.2.mixer.o_proj"]}
    assert of(HYBRID, quantization=left) - of(HYBRID, quantization=fp8) == pytest.approx(2688 * 32 * 128, abs=2 * MIB)


LLAMA_4 = {
    "model_type": "llama4_text",
    "hidden_size": 5120,
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16384,
    "num_hidden_layers": 2,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 202048,
    "max_position_embeddings": 8192,
    "num_local_experts": 16,
    "num_experts_per_tok": 1,
    "interleave_moe_layer_step": 2,
}


def test_llama_4_s_layers_without_experts_are_wider_than_an_expert():
    # Maverick logged 93.79 GiB a rank of eight with 0.11.2; with the experts' width its 24 dense layers lack 0.70.
    narrow = {k: v for k, v in LLAMA_4.items() if k != "intermediate_size_mlp"}
    assert of(LLAMA_4) - of(narrow) == 2 * 3 * 5120 * (16384 - 8192)


def test_a_list_of_llama_4_names_its_feed_forward():
    fp8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    left = {**fp8, "ignored_layers": [f"model.layers.0.feed_forward.{m}_proj" for m in ("gate", "up", "down")]}
    assert of(LLAMA_4, quantization=left) - of(LLAMA_4, quantization=fp8) == pytest.approx(3 * 5120 * 16384, rel=1e-3)


def test_the_first_qwen_names_twice_the_width_that_gate_and_up_have():
    # Qwen-7B: 7,721,324,544 parameters, published; the cos and sin of its positions beside them, and torch rounds the
    # 1187 MiB of embedding and of head up to 1188.
    qwen = {
        "model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
        "num_attention_heads": 32, "kv_channels": 128, "vocab_size": 151936, "seq_length": 8192,
        "max_position_embeddings": 32768, "tie_word_embeddings": False, "bf16": True,
    }  # fmt: skip
    assert of(qwen) == 2 * (7_721_324_544 + 32768 * 128) + 2 * MIB


def _sized(model_type, hidden, width, layers, heads, kv, vocab, **more):  # noqa: PLR0917
    return {
        "model_type": model_type, "hidden_size": hidden, "intermediate_size": width, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv, "vocab_size": vocab, "max_position_embeddings": 4096,
        "tie_word_embeddings": False, **more,
    }  # fmt: skip


TIED_WORDS = {"tie_word_embeddings": True}


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (_sized("internlm2", 4096, 14336, 32, 32, 8, 92544), 7_737_708_544),
        (_sized("exaone", 4096, 14336, 32, 32, 8, 102400), 7_818_448_896),
        (_sized("seed_oss", 5120, 27648, 64, 80, 8, 155136, head_dim=128, attention_bias=True), 36_151_104_512),
        (_sized("stablelm", 2048, 5632, 24, 32, 32, 100352), 1_644_515_328),
        (_sized("olmo", 2048, 8192, 16, 16, 16, 50304, **TIED_WORDS), 1_176_764_416),
        (_sized("baichuan", 4096, 11008, 32, 32, 32, 125696), 7_505_973_248),
        (_sized("chatglm", 4096, 13696, 28, 32, 2, 65024, head_dim=128), 6_243_584_000),
        (_sized("gpt_neox", 4096, 16384, 32, 32, 32, 50432), 6_857_302_016),
        (_sized("minicpm", 2304, 5760, 40, 36, 36, 122753, **TIED_WORDS), 2_724_880_896),
        (_sized("phi", 2560, 10240, 32, 32, 32, 51200), 2_779_683_840),
        (_sized("ernie4_5", 1024, 3072, 18, 16, 2, 103424, head_dim=128, **TIED_WORDS), 360_748_032),
        (_sized("hunyuan_v1_dense", 4096, 14336, 32, 32, 8, 128167, head_dim=128, **TIED_WORDS), 7_505_227_776),
        (_sized("apertus", 4096, 21504, 32, 32, 8, 131072), 8_053_338_176),
        (_sized("mpt", 4096, 16384, 32, 32, 32, 50432, **TIED_WORDS), 6_649_286_656),
        (_sized("bloom", 4096, 16384, 30, 32, 32, 250880, **TIED_WORDS), 7_069_016_064),
        # What pools has no head.
        (_sized("modernbert", 1024, 2624, 28, 16, 16, 50368, **TIED_WORDS), 394_781_696),
        (_sized("nomic_bert", 768, 3072, 12, 12, 12, 30528, **TIED_WORDS), 136_731_648),
    ],
    ids=lambda x: x["model_type"] if isinstance(x, dict) else "",
)
def test_weights_are_those_of_the_published_checkpoint(config, parameters):
    # Torch rounds large tensors up, at most 2 MiB each.
    a = arch(config)
    got = rank_weights(a, scheme(None, None, 2), Parallel(), 0, WeightTarget(2, rope_rows=0)) / 2
    assert a.known
    assert got == pytest.approx(parameters, rel=0.006)


MLLAMA = {
    "architectures": ["MllamaForConditionalGeneration"],
    "model_type": "mllama",
    "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "mllama_text_model",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38],
    },
    "vision_config": {
        "model_type": "mllama_vision_model",
        "hidden_size": 1280,
        "intermediate_size": 5120,
        "num_hidden_layers": 32,
        "num_global_layers": 8,
        "attention_heads": 16,
        "image_size": 560,
        "patch_size": 14,
        "max_num_tiles": 4,
        "vision_output_dim": 7680,
    },
}


def _minicpmv(version, hidden, width, layers, heads, vocab, kv_heads=None, **more):  # noqa: PLR0917
    tower = {"model_type": "siglip", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27}
    told = {
        "architectures": ["MiniCPMV"], "model_type": "minicpmv", "hidden_size": hidden, "intermediate_size": width,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads or heads,
        "vocab_size": vocab, "max_position_embeddings": 32768, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
        "vision_config": {**tower, "num_attention_heads": 16, "image_size": 980, "patch_size": 14}, **more,
    }  # fmt: skip
    return told | ({"version": version} if version else {})


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        # Published: 8.54, 8.10 and 8.70 billion.
        (_minicpmv(None, 4096, 14336, 32, 32, 128256, 8, query_num=96, drop_vision_last_layer=True), 8.537e9),
        (_minicpmv(2.6, 3584, 18944, 28, 28, 151666, 4, query_num=64), 8.099e9),
        (_minicpmv(4.5, 4096, 12288, 36, 32, 151748, 8, query_num=64, head_dim=128), 8.695e9),
    ],
)
def test_minicpm_v_has_its_language_model_a_tower_and_a_resampler(config, parameters):
    assert of(config) / 2 == pytest.approx(parameters, rel=0.005)  # torch rounds large tensors up


def test_the_resampler_of_minicpm_v_is_whole_on_each_rank_and_its_profile_is_not_known(model):
    config = _minicpmv(2.6, 3584, 18944, 28, 28, 151666, 4)
    assert of(config, tp=4) / 2 > (8.099e9 - 68.7e6) / 4 + 68.7e6
    p = plan(model(config), "--max-model-len 512", gpu="H100", version="0.33.0").predict()
    assert p.verdict == "unknown"
    assert p.settings.doubts[0].startswith("the plan has the weights and the KV cache of MiniCPMV")
    first = plan(model(_minicpmv(2.0, 2304, 5760, 40, 36, 122753)), "--max-model-len 512", gpu="H100", version="0.33.0")
    assert any("is not known" in note for note in first.notes)


def test_internvits_attention_is_whole_on_each_rank_where_its_heads_do_not_divide():
    # InternVL3-78B on eight cards: "model weights take 21.67GiB" (0.6.6), of which 3 GiB are attention of 25 heads.
    sizes = {"hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80, "vocab_size": 151674}
    text = {"model_type": "qwen2", "num_attention_heads": 64, "num_key_value_heads": 8, "torch_dtype": "bfloat16"}
    tower = {"model_type": "intern_vit_6b", "hidden_size": 3200, "intermediate_size": 12800, "num_hidden_layers": 45}
    tower |= {"num_attention_heads": 25, "image_size": 448, "patch_size": 14}
    config = {
        "architectures": ["InternVLChatModel"],
        "model_type": "internvl_chat",
        "downsample_ratio": 0.5,
        "llm_config": {**sizes, **text, "tie_word_embeddings": False},
        "vision_config": tower,
    }
    eight = of(config, tp=8) / GIB
    assert eight == pytest.approx(21.67, rel=0.012)
    attention = 45 * 4 * 3200 * 3200 * 2 / GIB
    five = of(config, tp=5) / GIB
    assert eight - (five * 5 - attention) / 8 > 0.8 * attention, "five ranks split it"


def test_the_tower_of_phi_3_vision_stands_in_the_code_alone():
    # Published as 4.15 billion parameters; of the tower's 24 layers vLLM makes 23, so 12.6 million fewer.
    config = {
        "architectures": ["Phi3VForCausalLM"],
        "model_type": "phi3_v",
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32064,
        "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
        "img_processor": {"name": "clip_vision_model", "image_dim_out": 1024, "num_img_tokens": 144},
    }
    assert of(config) / 2 == pytest.approx(4.15e9 - 12.6e6, rel=0.003)


@pytest.mark.parametrize(("tp", "logged"), [(1, 19.9073), (2, 10.0714)])
def test_llama_3_2_vision_weighs_what_is_logged(tp, logged):
    # 32 local and 8 global layers of the tower, a table of positions for each tile of each shape, a wide projector.
    assert of(MLLAMA, tp=tp) / GIB == pytest.approx(logged, rel=0.005)


def test_the_weights_of_llama_3_2_vision_are_certain_and_its_profile_is_not(model):
    small = plan(model(MLLAMA), "--max-model-len 512 --dtype half", gpu="T4", version="0.6.3").predict()
    large = plan(model(MLLAMA), "--max-model-len 512", gpu="H100", version="0.6.3").predict()
    assert (small.outcome, large.outcome) == ("oom-weights", "unknown")
    assert large.settings.doubts[0].startswith(
        "the plan has the weights and the KV cache of MllamaForConditionalGeneration"
    )


@pytest.mark.parametrize(("name", "bits"), GGUF_BITS.items())
def test_a_block_of_a_gguf_type_is_whole_bytes(name, bits):
    """ggml stores 256 weights (of the older types 32) as one struct; a share of a byte would be a misread size."""
    assert (bits * 256 / 8).is_integer(), name


@pytest.mark.parametrize("sign", ["-", ".", "/"])
@pytest.mark.parametrize(("name", "bits"), GGUF_BITS.items())
def test_the_name_of_a_type_is_read_behind_each_sign_that_files_have_before_it(name, bits, sign):
    """And in small letters, and with a part number behind it."""
    mixed = gguf_bits(f"{name}.gguf")
    assert mixed in {bits, gguf_bits(name)}
    for file in (
        f"model{sign}{name}.gguf",
        f"model{sign}{name.lower()}.gguf",
        f"model{sign}{name}-00001-of-00002.gguf",
    ):
        assert gguf_bits(file) == mixed, file


@pytest.mark.parametrize(
    ("capability", "scales"),
    [
        (8.0, 32.2e9 / 128 * 2),  # two bytes for each row and each 128 inputs
        (8.9, 32.2e9 / 128**2 * 4),  # four bytes for a block
    ],
)
def test_marlin_repeats_a_block_s_scale_for_each_of_its_rows(capability, scales):
    # Qwen3.5-35B-A3B in fp8 on an A100 of 0.19.0: 34.71 GiB logged, 34.2 without what Marlin adds.
    blocks = Scheme("fp8", lambda _name, _expert: Format("fp8", 8, block=128))
    matrices = [Matrix("experts.0.up_proj", 512, 2048, 3 * 256 * 40, expert=True, tensor="w13")]
    target = WeightTarget(2, capability=capability)
    assert tensors(matrices, blocks, unquantized_format(2), target).scales == pytest.approx(scales, rel=1e-2)


def test_ranks_that_share_a_group_of_mamba_2_each_have_a_copy_of_it():
    """mamba_mixer2.py: of one group two ranks have two, so that each projects 128 keys and 128 queries; windows of four
    are as wide."""
    mixer = {
        **LLAMA_8B, "model_type": "granitemoehybrid", "layer_types": ["mamba"] * 32, "mamba_n_heads": 128,
        "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128, "mamba_d_conv": 4,
    }  # fmt: skip
    a = arch(mixer)
    found = {m.name.rpartition(".")[2]: m.out for m in layer_matrices(a, 0, Parallel(tp=2), "model.layers")}
    assert found["in_proj"] == 2 * 4096 + 2 * 128 + 64
    one = {m.name.rpartition(".")[2]: m.out for m in layer_matrices(a, 0, Parallel(), "model.layers")}
    assert one["in_proj"] == 2 * 8192 + 2 * 128 + 128

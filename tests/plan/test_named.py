"""What a checkpoint's lists leave unquantized, read as each quantizer of vLLM reads them: bits of a value."""

import pytest

from tests.plan.models import LLAMA_8B, arch
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.model.config_json import ConfigError, Section
from vllm_doctor.plan.model.quantization import scheme
from vllm_doctor.plan.terms.matrices import first_expert
from vllm_doctor.plan.terms.weights import WeightTarget, rank_weights

LINEAR = {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel"}}}
UP, Q = "model.layers.3.mlp.up_proj", "model.layers.3.self_attn.q_proj"
DEEP_UP = "model.language_model.layers.3.mlp.up_proj"
EXPERT = "model.layers.3.mlp.experts.0.up_proj"


def bits(name, **config):
    return scheme(Section(config), None, 2).choose(name, ".experts." in name).bits


@pytest.mark.parametrize(
    ("entry", "name", "left"),
    [
        (UP, UP, 16),
        ("model.layers.3.mlp", UP, 16),  # a parent stands for its tree
        ("mlp.up_proj", UP, 8),  # fp8 takes whole names, no part of one
        ("up_proj", UP, 8),
        ("model.layers.3", "model.layers.31.mlp.up_proj", 8),
        ("language_model.model.layers.3.mlp.up_proj", DEEP_UP, 16),  # as vLLM names it
        ("model.layers.3.mlp.up_proj", DEEP_UP, 16),
        ("model.layers.3.mlp.gate_up_proj", UP, 16),  # a checkpoint that keeps both as one names that
        ("model.layers.3.linear_attn.in_proj_ba", "model.layers.3.linear_attn.in_proj_a", 16),
        ("model.layers.3.self_attn.qkv_proj", UP, 8),
    ],
)
def test_fp8_takes_whole_names(entry, name, left):
    assert bits(name, quant_method="fp8", modules_to_not_convert=[entry]) == left


def test_fp8_reads_one_key_and_not_both():
    told = {"quant_method": "fp8", "ignored_layers": [UP], "modules_to_not_convert": [Q]}
    assert (bits(UP, **told), bits(Q, **told)) == (16, 8)


@pytest.mark.parametrize(
    ("entry", "name", "left"),
    [
        ("re:.*self_attn.*", Q, 16),
        ("re:self_attn", Q, 8),  # from the start of the name
        ("re:.*", "lm_head", 16),
        (UP, UP, 16),
        ("*up_proj", UP, 8),  # no wildcards
    ],
)
def test_compressed_tensors_takes_names_and_expressions(entry, name, left):
    assert bits(name, quant_method="compressed-tensors", ignore=[entry], config_groups=LINEAR) == left


def test_the_head_is_no_linear_layer_of_compressed_tensors_unless_a_target_names_it():
    config = {"quant_method": "compressed-tensors", "config_groups": LINEAR}
    named = {"g": {**LINEAR["group_0"], "targets": ["re:.*lm_head"]}}
    assert bits("lm_head", **config) == 16
    assert bits("lm_head", **{**config, "config_groups": named}) == 8


@pytest.mark.parametrize(
    ("entry", "name", "left"),
    [
        ("mlp.up_proj", UP, 16),  # any part of the text
        ("visual", "model.visual.blocks.0.attn.qkv", 16),
        ("experts.7", EXPERT, 4),  # experts are one layer, whose name ends before their numbers
        ("mlp.experts", EXPERT, 16),
    ],
)
def test_awq_takes_parts_of_a_name(entry, name, left):
    assert bits(name, quant_method="awq", bits=4, modules_to_not_convert=[entry]) == left


@pytest.mark.parametrize(
    ("entry", "name", "left"),
    [
        ("model.layers.3*", UP, 16),
        ("*self_attn*", Q, 16),
        ("layers.3.mlp", UP, 16),
        ("model.language_model.layers.3.mlp*", DEEP_UP, 16),
        ("model.layers.4*", UP, 4),
        ("model.vision_tower.x", "model.vision_tower.encoder.layers.0.self_attn.q_proj", 16),  # never, listed or not
    ],
)
def test_modelopt_takes_names_parts_and_wildcards(entry, name, left):
    assert bits(name, quant_method="modelopt", quant_algo="NVFP4", ignore=[entry]) == left


def test_modelopt_s_list_goes_before_its_layers():
    layers = {UP: {"quant_algo": "FP8"}, Q: {"quant_algo": "FP8"}}
    told = {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": layers,
        "ignore": ["*mlp*"],
    }
    assert (bits(UP, **told), bits(Q, **told)) == (16, 8)


def test_modelopt_s_layers_are_found_under_the_checkpoint_s_names():
    """Nemotron-H's checkpoints say `backbone` where vLLM says `model` (modelopt.py apply_vllm_mapper)."""
    layers = {"backbone.layers.3.mixer.experts.0.up_proj": {"quant_algo": "NVFP4", "group_size": 16}}
    told = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    assert bits("model.layers.3.mixer.experts.0.up_proj", **told) == 4
    assert bits("model.layers.3.mixer.in_proj", **told) == 16


def test_gptq_s_exceptions_match_the_fused_name_and_the_first_decides():
    rules = {"-:.*self_attn.qkv_proj": {}, "+:.*gate_up_proj": {"bits": 8}, "-:.*mlp.*": {}}
    told = {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": rules}
    assert (bits(Q, **told), bits(UP, **told), bits(EXPERT, **told)) == (16, 8, 16)
    assert bits("model.layers.3.self_attn.o_proj", **told) == 4


def test_gptq_quantizes_the_head_where_it_says_so():
    assert bits("lm_head", quant_method="gptq", bits=4) == 16
    assert bits("lm_head", quant_method="gptq", bits=4, lm_head=True) == 4


def test_auto_round_finds_a_module_by_its_name_its_end_and_an_expression():
    told = {
        "quant_method": "auto-round",
        "bits": 4,
        "block_name_to_quantize": "model.language_model.layers",
        "extra_config": {DEEP_UP: {"bits": 16}, "lm_head": {"bits": 8}, ".*\\.k_proj": {"bits": 8}},
    }
    assert bits(DEEP_UP, **told) == 16
    assert bits("model.language_model.lm_head", **told) == 8
    assert bits("model.language_model.layers.0.self_attn.k_proj", **told) == 8
    assert bits("model.language_model.layers.0.self_attn.o_proj", **told) == 4
    assert bits("model.visual.blocks.0.attn.qkv", **told) == 16


@pytest.mark.parametrize("key", ["block_name_to_quantize", "to_quant_block_names"])
@pytest.mark.parametrize(
    ("blocks", "bits_of_a_layer"),
    [
        (["thinker.model.layers", "model.other"], 4),
        ("model.other, model.language_model.layers", 4),
        (["model.other"], 16),
        ("model.other", 16),
        ([], 4),
        ("", 4),
        (None, 4),
    ],
)
def test_blocks_that_are_packed_are_a_list_or_a_text_with_commas(key, blocks, bits_of_a_layer):
    """layers/quantization/inc.py (0.10 to 0.14 auto_round.py) from_config."""
    told = {"quant_method": "auto-round", "bits": 4, key: blocks}
    assert bits("model.language_model.layers.3.mlp.up_proj", **told) == bits_of_a_layer


@pytest.mark.parametrize("rule", [{"-:(a+)+$": {}}, {"-:(": {}}])
def test_an_expression_that_is_none_or_runs_away_is_said(rule):
    with pytest.raises(ConfigError, match="pattern"):
        scheme(Section({"quant_method": "gptq", "bits": 4, "dynamic": rule}), None, 2)


SEEING = {
    **LLAMA_8B,
    "vision_config": {
        "model_type": "qwen3_vl",
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_heads": 16,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "out_hidden_size": 4096,
    },
}


def tower(online=None, **config):
    """Bytes that a vision tower adds."""
    given = {"quantization_config": config} if config else {}
    sizes = []
    for model in (SEEING, {k: v for k, v in SEEING.items() if k != "vision_config"}):
        a = arch(model, **given)
        sizes.append(rank_weights(a, scheme(a.quantization, online, 2), Parallel(), 0, WeightTarget(2)))
    return sizes[0] - sizes[1]


def test_a_vision_tower_is_quantized_where_nothing_leaves_it_out():
    whole = tower()
    blocks = 27 * (4 * 1152 * 1152 + 2 * 1152 * 4304) + 4608 * 4608 + 4608 * 4096
    assert whole - tower(online="fp8") == pytest.approx(blocks, rel=0.001)
    assert whole - tower(quant_method="fp8") == pytest.approx(blocks, rel=0.001)
    assert tower(quant_method="fp8", modules_to_not_convert=["model.visual"]) == whole
    assert tower(quant_method="compressed-tensors", ignore=["re:visual.*"], config_groups=LINEAR) == whole


def test_gptq_and_auto_round_leave_towers_alone():
    assert tower(quant_method="gptq", bits=4) == tower()


def test_experts_have_the_name_of_their_family():
    """Gemma 4's lists leave its MLP in 16 bits, beside which its experts are packed (models/gemma4.py: `moe`)."""
    text = {**LLAMA_8B, "model_type": "gemma4_text", "num_experts": 8, "top_k_experts": 2, "enable_moe_block": True}
    packed = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
    stored = {**packed, "ignore": ["model.layers.*.mlp*"]}
    expert = first_expert(arch({**text, "moe_intermediate_size": 704}))
    assert expert == "model.layers.0.moe.experts.0.up_proj"
    assert bits(expert, **stored) < 8
    assert bits(UP, **stored) == 16
    assert bits(expert, **{**packed, "ignore": ["model.layers.*.experts*"]}) == 16

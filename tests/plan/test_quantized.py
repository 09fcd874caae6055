"""What a release refuses of a quantization_config, each beside one that it takes."""

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_experts import MOE
from tests.plan.test_refused import settings
from vllm_doctor.plan.support import judge

INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128}
INT8 = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
FP8 = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"}
DYNAMIC = {"num_bits": 8, "dynamic": True, "strategy": "token"}
TENSOR = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor"}
TURNED = {"config_groups": {"R1": {"type": "hadamard", "apply": [{"location": "input", "targets": ["Linear"]}]}}}
STORED = {"config_groups": {"R1": {"type": "hadamard", "apply": [{"location": "weight_input", "targets": ["Linear"]}]}}}


def packed(config, weights=INT4, inputs=None, ignore=(), **more):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    ignored = ["lm_head", *ignore]
    quantized = {"quant_method": "compressed-tensors", "config_groups": {"g": group}, "ignore": ignored, **more}
    return {**config, "quantization_config": quantized}


def plain(method, **more):
    return {**LLAMA_8B, "quantization_config": {"quant_method": method, **more}}


def found(config, flags="", version="0.33.0", card="H100"):
    a, s, gpu = settings(config, flags, version, card)
    return [r.found for r in judge(a, s, gpu).refusals]


ONE = "model.layers.0.self_attn.q_proj"
ALL = ["re:.*layers[.]0[.]self_attn[.].*"]


@pytest.mark.parametrize(
    ("refused", "taken", "version", "told"),
    [
        (packed(LLAMA_8B, ignore=[ONE]), packed(LLAMA_8B, ignore=ALL), "0.33.0", "q_proj"),
        (
            plain("fp8", activation_scheme="dynamic", modules_to_not_convert=["model.layers.3.mlp.up_proj"]),
            plain("fp8", activation_scheme="dynamic", modules_to_not_convert=["model.layers.3.mlp"]),
            "0.20.0",
            "up_proj",
        ),
        (
            packed(LLAMA_8B, kv_cache_scheme={**TENSOR, "num_bits": 4}),
            packed(LLAMA_8B, kv_cache_scheme=TENSOR),
            "0.9.2",
            "kv_cache_scheme of 4 bits",
        ),
        (
            packed(LLAMA_8B, kv_cache_scheme={**TENSOR, "symmetric": False}),
            packed(LLAMA_8B, kv_cache_scheme=TENSOR),
            "0.33.0",
            "not symmetric",
        ),
        (packed(LLAMA_8B, {**INT4, "num_bits": 3}), packed(LLAMA_8B), "0.24.0", "integers of 3 bits"),
        (packed(MOE, {**INT4, "symmetric": False}), packed(MOE), "0.20.0", "zero points"),
        (packed(MOE, INT8, {**DYNAMIC, "dynamic": False}), packed(MOE, INT8, DYNAMIC), "0.19.1", "8-bit integers"),
        (packed(MOE, FP8, {**DYNAMIC, "dynamic": False}), packed(MOE, FP8, DYNAMIC), "0.19.1", "fp8 by channel"),
        (
            plain("modelopt", quant_algo="FP8_PB_WO"),
            plain("modelopt", quant_algo="FP8"),
            "0.13.0",
            "quant_algo FP8_PB_WO",
        ),
        (plain("awq", bits=3, group_size=128), plain("awq", bits=4, group_size=128), "0.19.1", "awq of 3 bits"),
        (plain("gptq", bits=5, group_size=128), plain("gptq", bits=8, group_size=128), "0.19.1", "gptq of 5 bits"),
    ],
)
def test_a_form_that_the_release_has_no_scheme_for(refused, taken, version, told):
    said = found(refused, version=version)
    assert len(said) == 1
    assert told in said[0]
    assert found(taken, version=version) == []


@pytest.mark.parametrize(
    ("config", "before", "first"),
    [
        (packed(LLAMA_8B, {**INT4, "num_bits": 3}), "0.24.0", "0.25.0"),
        (packed(MOE, {**INT4, "symmetric": False}), "0.22.1", "0.23.0"),
        (plain("modelopt", quant_algo="FP8_PB_WO"), "0.13.0", "0.14.0"),
    ],
)
def test_a_later_release_takes_it(config, before, first):
    assert found(config, version=before)
    assert found(config, version=first) == []


@pytest.mark.parametrize(
    ("flags", "version", "told"),
    [("", "0.10.0", True), ("--quantization awq", "0.10.0", False), ("", "0.10.1", False)],
)
def test_a_description_of_the_language_model_alone_is_out_of_sight(flags, version, told):
    text = plain("awq", bits=4, group_size=128, zero_point=True)
    whole = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": text}
    assert ("not given" in found(whole, flags, version)) == told


def test_transforms_at_each_step_are_of_one_card():
    assert found(packed(LLAMA_8B, transform_config=TURNED), "-tp 2") == ["2"]
    assert found(packed(LLAMA_8B, transform_config=TURNED)) == []
    assert found(packed(LLAMA_8B, transform_config=STORED), "-tp 2") == []


def test_the_scales_of_qwen2_experts_have_a_place_from_0_5_2():
    stored = {
        **MOE,
        "architectures": ["Qwen2MoeForCausalLM"],
        "model_type": "qwen2_moe",
        "shared_expert_intermediate_size": 1024,
        "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"},
        "rope_scaling": None,
    }
    assert found(stored, version="0.5.1") == ["experts stored in fp8"]
    assert found(stored, version="0.5.2") == []


QWEN3_NEXT = {
    **MOE,
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "shared_expert_intermediate_size": 512,
}
BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


@pytest.mark.parametrize(
    ("config", "version", "ends"),
    [
        ({**QWEN3_NEXT, "quantization_config": BLOCKS}, "0.10.2", True),
        ({**QWEN3_NEXT, "quantization_config": BLOCKS}, "0.11.0", False),
        (QWEN3_NEXT, "0.10.2", False),
        ({**MOE, "quantization_config": BLOCKS}, "0.10.2", False),
    ],
)
def test_projections_that_are_one_layer_must_each_fill_their_blocks(config, version, ends):
    assert any("in_proj, where" in one for one in found(config, "", version)) == ends


NAMELESS = {**LLAMA_8B, "quantization_config": {"quant_algo": "NVFP4", "producer": {"name": "modelopt"}}}
WITHIN = {"quantization": {"quant_algo": "NVFP4"}, "producer": {"name": "modelopt"}}


def test_a_method_without_a_name_is_none_that_a_release_has():
    assert "no quant_method" in found(NAMELESS, "", "0.10.0", "B200")
    assert "no quant_method" in found(NAMELESS, "--quantization modelopt_fp4", "0.33.0", "B200")
    assert "no quant_method" in found({**LLAMA_8B, "quantization_config": WITHIN}, "", "0.10.0", "B200")
    assert "no quant_method" not in found({**LLAMA_8B, "quantization_config": WITHIN}, "", "0.10.1", "B200")

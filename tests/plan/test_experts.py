"""NVFP4 experts on consumer Blackwell: what chooses a kernel that has no code for the card."""

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_refused import settings
from vllm_doctor.plan.support import judge

MOE = {
    **LLAMA_8B,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
}
WEIGHTS = {"num_bits": 4, "type": "float", "group_size": 16, "strategy": "tensor_group"}


def packed(inputs):
    group = {"targets": ["Linear"], "weights": WEIGHTS, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"]}


BOTH = {**MOE, "quantization_config": packed({**WEIGHTS, "dynamic": "local"})}
WEIGHTS_ALONE = {**MOE, "quantization_config": packed(None)}
MODELOPT = {**MOE, "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}}
DENSE = {**LLAMA_8B, "quantization_config": packed({**WEIGHTS, "dynamic": "local"})}


@pytest.mark.parametrize(
    ("config", "version", "card", "env", "ends"),
    [
        (BOTH, "0.10.1.1", "RTX 5090", {}, True),
        (BOTH, "0.12.0", "NVIDIA GB10", {}, True),
        (MODELOPT, "0.11.2", "RTX 5070 Ti", {}, True),
        (BOTH, "0.10.0", "RTX 5090", {}, False),  # on Marlin
        (BOTH, "0.13.0", "RTX 5090", {}, False),
        (BOTH, "0.11.2", "B200", {}, False),
        (BOTH, "0.11.2", "L40S", {}, False),  # on Marlin
        (BOTH, "0.11.2", "RTX 5090", {"VLLM_USE_FLASHINFER_MOE_FP4": "1"}, False),
        (WEIGHTS_ALONE, "0.11.2", "RTX 5090", {}, False),
        (DENSE, "0.11.2", "RTX 5090", {}, False),
        (MOE, "0.11.2", "RTX 5090", {}, False),
    ],
)
def test_experts_in_four_bits_end_the_start_where_the_kernel_is_of_another_card(config, version, card, env, ends):
    a, s, gpu = settings(config, "", version, card, env=env)
    found = [r for r in judge(a, s, gpu).refusals if r.found.startswith("NVFP4 experts")]
    assert len(found) == ends


NARROW = {**MODELOPT, "moe_intermediate_size": 1488}  # 93 groups of 16
LINEAR = {**MODELOPT, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "intermediate_size": 14352}
del LINEAR["num_experts"], LINEAR["moe_intermediate_size"], LINEAR["num_experts_per_tok"]


@pytest.mark.parametrize(
    ("config", "launch", "card", "ends"),
    [
        (NARROW, "-tp 2", "H100", True),  # Marlin has 46 scales for 744 inputs
        (NARROW, "-tp 2 --enable-expert-parallel", "H100", False),
        (NARROW, "-dp 2", "H100", True),  # the width of each expert is split among data-parallel ranks as well
        (NARROW, "-dp 2 --enable-expert-parallel", "H100", False),
        (NARROW, "", "H100", False),
        (NARROW, "-tp 2", "B200", False),  # another kernel, of which this was not read
        (MODELOPT, "-tp 2", "H100", False),
        (LINEAR, "-tp 2", "B200", True),  # linear layers ask for whole groups on every card
        (LINEAR, "-tp 1", "B200", False),
        ({**LINEAR, "intermediate_size": 14336}, "-tp 2", "B200", False),
    ],
)
def test_a_rank_holds_whole_groups_of_nvfp4(config, launch, card, ends):
    a, s, gpu = settings(config, launch, "0.25.1", card)
    asked = "--data-parallel-size" if "-dp" in launch else "--tensor-parallel-size"
    found = [r for r in judge(a, s, gpu).refusals if r.flag == asked]
    assert len(found) == ends


NEMOTRON = {
    "architectures": ["NemotronHForCausalLM"],
    "model_type": "nemotron_h",
    "torch_dtype": "bfloat16",
    "hidden_size": 2048,
    "intermediate_size": 1856,
    "num_hidden_layers": 6,
    "hybrid_override_pattern": "MEM*EM",
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "n_routed_experts": 64,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
    "vocab_size": 131072,
    "max_position_embeddings": 32768,
    "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"},
}
PLAIN = {key: value for key, value in NEMOTRON.items() if key != "quantization_config"}


@pytest.mark.parametrize(
    ("config", "version", "card", "refused", "doubted"),
    [
        (NEMOTRON, "0.15.1", "L40S", True, False),
        (NEMOTRON, "0.15.1", "H100", False, True),
        (NEMOTRON, "0.16.0", "L40S", False, False),
        (NEMOTRON, "0.14.1", "L40S", False, False),
        (PLAIN, "0.15.1", "L40S", False, False),
        ({**MOE, "quantization_config": {"quant_method": "fp8"}}, "0.15.1", "L40S", False, False),
    ],
)
def test_quantized_experts_without_a_gate_are_left_to_flashinfer(config, version, card, refused, doubted):
    a, s, gpu = settings(config, "", version, card)
    judged = judge(a, s, gpu)
    assert any("without a gate" in r.found for r in judged.refusals) == refused
    assert any("without a gate" in one for one in judged.doubts) == doubted


def integers(config, group=128):
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": group}
    one = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    quantized = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"g": one}}
    return {**config, "quantization_config": quantized}


AWQ = {**MOE, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}}


@pytest.mark.parametrize(
    ("config", "flags", "version", "ends"),
    [
        (integers(MOE), "-tp 4", "0.10.0", True),  # 192 each
        (AWQ, "-tp 4", "0.9.1", True),
        (integers(MOE), "-tp 2", "0.10.0", False),  # 384
        (integers(MOE, group=64), "-tp 4", "0.10.0", False),  # Marlin takes them
        (integers(MOE), "-tp 4 --enable-expert-parallel", "0.10.0", False),
        (integers(MOE), "-tp 4 --enforce-eager", "0.10.0", False),  # the first request ends it
        (integers(LLAMA_8B), "-tp 4", "0.10.0", False),
        (MOE, "-tp 4", "0.10.0", False),
    ],
)
def test_packed_experts_that_marlin_does_not_take_end_the_capture_of_graphs(config, flags, version, ends):
    a, s, gpu = settings(config, flags, version, "L20")
    assert any("moe_wna16" in r.needed for r in judge(a, s, gpu).refusals) == ends


@pytest.mark.parametrize(
    ("config", "flags", "version", "ends"),
    [
        (AWQ, "-tp 2 --enable-expert-parallel", "0.8.3", True),
        (integers(MOE), "-tp 2 --enable-expert-parallel", "0.8.3", True),
        (AWQ, "-tp 2", "0.8.3", False),
        (AWQ, "--enable-expert-parallel", "0.8.3", False),  # of one rank
        (MOE, "-tp 2 --enable-expert-parallel", "0.8.3", False),
        (AWQ, "-tp 2 --enable-expert-parallel", "0.8.4", False),
    ],
)
def test_marlin_at_first_spreads_no_experts(config, flags, version, ends):
    a, s, gpu = settings(config, flags, version, "L20")
    assert any("spreads no experts" in r.needed for r in judge(a, s, gpu).refusals) == ends


NVFP4_PACKED = {
    "quant_method": "compressed-tensors",
    "format": "nvfp4-pack-quantized",
    "ignore": ["lm_head", "re:.*gate$"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
        }
    },
}
IN_NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}


@pytest.mark.parametrize(
    ("quantized", "version", "flag"),
    [
        (NVFP4_PACKED, "0.13.0", "quantization_config"),  # vLLM issue 31782
        (NVFP4_PACKED, "0.15.0", None),
        (IN_NVFP4, "0.13.0", None),
        (IN_NVFP4, "0.11.2", "quantization_config"),
        (NEMOTRON["quantization_config"], "0.11.2", None),
        (None, "0.13.0", None),
    ],
)
def test_experts_without_a_gate_are_modelopt_s_or_not_quantized(quantized, version, flag):
    config = {**PLAIN, "quantization_config": quantized} if quantized else PLAIN
    a, s, gpu = settings(config, "", version, "RTX PRO 6000")
    assert [r.flag for r in judge(a, s, gpu).refusals if "without a gate" in r.found] == ([flag] if flag else [])


def test_experts_quantized_while_loading_are_none_of_modelopt_s():
    a, s, gpu = settings(PLAIN, "--quantization fp8", "0.13.0", "RTX PRO 6000")
    assert [r.flag for r in judge(a, s, gpu).refusals if "without a gate" in r.found] == ["--quantization"]


FP8 = {**MOE, "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}}
ASKED = {"VLLM_USE_FLASHINFER_MOE_FP4": "1"}


@pytest.mark.parametrize(
    ("config", "flags", "version", "card", "env", "told"),
    [
        (MODELOPT, "--moe-backend cutlass", "0.19.0", "H100", {}, "--moe-backend"),
        (MODELOPT, "--moe-backend cutlass", "0.19.0", "RTX 5090", {}, None),
        (MODELOPT, "--moe-backend marlin", "0.19.0", "H100", {}, None),
        (FP8, "--moe-backend flashinfer_trtllm", "0.33.0", "H100", {}, "--moe-backend"),
        (FP8, "--moe-backend flashinfer_trtllm", "0.33.0", "B200", {}, None),
        (FP8, "--moe-backend auto", "0.33.0", "H100", {}, None),
        # 0.15.0 has FlashInfer's kernels for 9.0 and 10.x; 0.15.1 has them for 12.x too, none for 8.x.
        (MODELOPT, "", "0.15.0", "RTX 5090", ASKED, "VLLM_USE_FLASHINFER_MOE_FP4"),
        (MODELOPT, "", "0.15.1", "RTX 5090", ASKED, None),
        (MODELOPT, "", "0.23.0", "L40S", ASKED, "VLLM_USE_FLASHINFER_MOE_FP4"),
        (MODELOPT, "", "0.24.0", "L40S", ASKED, None),  # asks for nothing any more
        (WEIGHTS_ALONE, "", "0.15.0", "RTX 5090", ASKED, None),
        (FP8, "", "0.15.0", "RTX 5090", ASKED, None),
    ],
)
def test_a_kernel_of_experts_that_is_asked_for_must_run_on_the_card(config, flags, version, *, card, env, told):
    a, s, gpu = settings(config, flags, version, card, env=env)
    found = [r.flag for r in judge(a, s, gpu).refusals if r.flag in {"--moe-backend", "VLLM_USE_FLASHINFER_MOE_FP4"}]
    assert found == ([told] if told else [])

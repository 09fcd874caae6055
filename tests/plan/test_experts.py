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

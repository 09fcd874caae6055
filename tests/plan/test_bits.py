"""Bitsandbytes: ranks, experts and the pair of options, each beside what is taken; and what its scales take."""

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_plan import model, plan
from tests.plan.test_refused import EXPERTS, refused

__all__ = ["model"]

STORED = {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False}
DENSE = {**LLAMA_8B, "quantization_config": STORED}
MOE = {**EXPERTS, "quantization_config": STORED}
EIGHT = {**EXPERTS, "quantization_config": {**STORED, "load_in_4bit": False, "load_in_8bit": True}}
DEEPSEEK = {**MOE, "architectures": ["DeepseekV2ForCausalLM"]}
BOTH = "--quantization bitsandbytes --load-format bitsandbytes"


@pytest.mark.parametrize(
    ("config", "flags", "version", "flag"),
    [
        (DENSE, "-tp 2", "0.27.1", "--tensor-parallel-size"),
        (DENSE, f"-tp 8 {BOTH}", "0.7.3", "--tensor-parallel-size"),
        (LLAMA_8B, f"-tp 2 {BOTH}", "0.6.1", "--tensor-parallel-size"),
        (LLAMA_8B, f"-pp 2 {BOTH}", "0.6.1", "--pipeline-parallel-size"),
        (LLAMA_8B, "--quantization bitsandbytes", "0.7.3", "--quantization"),
        (LLAMA_8B, "--load-format bitsandbytes", "0.7.3", "--load-format"),
        (LLAMA_8B, f"-tp 16 {BOTH}", "0.27.1", "--tensor-parallel-size"),  # of 8 KV heads
        (EIGHT, "", "0.27.1", "quantization_config"),
        (MOE, "", "0.10.0", "quantization_config"),
        (DEEPSEEK, "", "0.10.1", "--quantization"),  # no map of its experts
        (DEEPSEEK, "", "0.9.2", "--quantization"),  # no method for a fused layer
    ],
)
def test_this_is_refused(config, flags, version, flag):
    assert refused(config, flags, version) == [flag]


@pytest.mark.parametrize(
    ("config", "flags", "version"),
    [
        (DENSE, "", "0.27.1"),
        (DENSE, "-pp 2", "0.27.1"),
        (LLAMA_8B, f"-tp 2 {BOTH}", "0.6.2"),  # quantized while it loads, a rank has its own
        (LLAMA_8B, f"-tp 8 {BOTH}", "0.27.1"),
        (LLAMA_8B, "--quantization bitsandbytes", "0.8.2"),
        (MOE, "", "0.10.1"),
        (DEEPSEEK, "", "0.27.1"),
    ],
)
def test_this_is_taken(config, flags, version):
    assert refused(config, flags, version) == []


@pytest.mark.parametrize(
    ("config", "flags", "version", "bytes_of_a_scale"),
    [
        (DENSE, "", "0.9.1", 1 + 4 / 256),
        (DENSE, "", "0.9.2", 4),
        (LLAMA_8B, BOTH, "0.9.1", 1 + 4 / 256),  # quantized twice as it loads
        (LLAMA_8B, BOTH, "0.9.2", 4),
        ({**DENSE, "quantization_config": {**STORED, "bnb_4bit_use_double_quant": False}}, "", "0.9.1", 4),
    ],
)
def test_scales_that_are_quantized_twice_stay_so_to_0_9_1(model, config, flags, version, bytes_of_a_scale):
    linear = 32 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336)
    tables = 2 * 128256 * 4096 * 2
    gib = (linear * (0.5 + bytes_of_a_scale / 64) + tables) / 2**30
    assert plan(model(config), flags, version=version).predict().weights_gib == pytest.approx(gib, abs=0.04)


def test_the_range_is_narrower_where_all_is_quantized_as_it_loads(model):
    def width(config, flags=""):
        low, high = plan(model(config), flags, version="0.9.2").predict().margin_gib
        return high - low

    assert width(DENSE) - width(LLAMA_8B, BOTH) > 0.3

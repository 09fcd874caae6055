"""Layers of 8-bit floats that do not fill the tiles of Marlin's kernel, on a card without such floats."""

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_refused import settings
from vllm_doctor.plan.support import marlin

FLOATS = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}
INPUTS = {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True, "dynamic": True}
GROUP = {"targets": ["Linear"], "weights": FLOATS, "input_activations": INPUTS}
STORED = {"quant_method": "compressed-tensors", "config_groups": {"g": GROUP}, "ignore": []}
ODD = {**LLAMA_8B, "intermediate_size": 10944, "quantization_config": STORED}  # 2 x 2736 outputs on each of four ranks


def told(config, flags, version="0.10.2", card="RTX A6000"):
    a, s, gpu = settings(config, flags, version, card)
    return [(r.flag, r.found, r.needed) for r in marlin.refusals(a, s, gpu)]


def test_a_merged_layer_fills_tiles_of_64_outputs():
    ((flag, found, needed),) = told(ODD, "-tp 4")
    assert (flag, found) == ("--tensor-parallel-size", "4")
    assert needed.startswith("a multiple of 64 outputs of gate_up_proj for each rank, not 5472: NVIDIA RTX A6000 has")
    assert needed.endswith("; or vLLM 0.24, which fills them up")


def test_a_layer_fills_tiles_of_16_inputs_on_one_card_too():
    ((flag, found, needed),) = told({**ODD, "intermediate_size": 10952}, "")
    assert (flag, found) == ("quantization_config", "fp8")
    assert needed.startswith("a multiple of 16 inputs of down_proj for each rank, not 10952")


@pytest.mark.parametrize(
    ("config", "flags", "version", "card"),
    [
        (ODD, "-tp 2", "0.10.2", "RTX A6000"),  # 10944 = 171 x 64
        (ODD, "-tp 4", "0.24.0", "RTX A6000"),
        (ODD, "-tp 4", "0.10.2", "L40S"),  # has 8-bit floats
        ({**ODD, "quantization_config": {**STORED, "ignore": ["re:.*mlp.*"]}}, "-tp 4", "0.10.2", "RTX A6000"),
        ({**LLAMA_8B, "intermediate_size": 10944}, "-tp 4", "0.10.2", "RTX A6000"),
        (ODD, "-tp 4 --linear-backend marlin", "0.33.0", "H100"),
    ],
)
def test_these_start(config, flags, version, card):
    assert told(config, flags, version, card) == []

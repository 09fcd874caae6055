"""Packed integers whose part for a rank none of the kernels takes."""

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_refused import settings
from vllm_doctor.plan.support import packed

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
ODD = {**LLAMA_8B, "intermediate_size": 29568, "quantization_config": GPTQ}  # 14784 = 115.5 x 128 on each of two ranks
INTEGERS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
CT = {"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": ["Linear"], "weights": INTEGERS}}}
NARROW = {**LLAMA_8B, "intermediate_size": 9312, "quantization_config": {**CT, "ignore": []}}  # 291 x 32, 72.75 x 128


def told(config, flags, version="0.10.2", card="A100"):
    a, s, gpu = settings(config, flags, version, card)
    return [(r.flag, r.found, r.needed) for r in packed.refusals(a, s, gpu)]


def test_a_rank_has_half_a_group_and_exllama_takes_no_bfloat16():
    ((flag, found, needed),) = told(ODD, "-tp 2")
    assert (flag, found) == ("--tensor-parallel-size", "2")
    said = "--dtype float16, or a size with which a kernel of 0.10.2 takes each rank's part, such as 1"
    assert needed.startswith(said)
    assert needed.endswith(": none takes 14784 inputs and 4096 outputs of down_proj")


def test_without_exllama_no_type_helps():
    activation = {**ODD, "quantization_config": {**GPTQ, "desc_act": True}}  # rows in another order, on two ranks
    ((flag, _, needed),) = told(activation, "-tp 2 --dtype float16")
    assert flag == "--tensor-parallel-size"
    assert needed.startswith("a size with which a kernel of 0.10.2 takes each rank's part, such as 1")


def test_one_card_alone_does_not_help_a_layer_that_is_no_whole_tile():
    ((flag, found, needed),) = told(NARROW, "")
    assert (flag, needed) == ("quantization_config", "--dtype float16, or another format")
    assert found == "4-bit integers, 9312 inputs and 4096 outputs of down_proj in bfloat16"


@pytest.mark.parametrize(
    ("config", "flags", "version", "card"),
    [
        (ODD, "-tp 2 --dtype float16", "0.10.2", "A100"),
        (ODD, "", "0.10.2", "A100"),  # 29568 = 231 x 128
        (ODD, "-tp 2", "0.10.2", "H100"),  # Machete: 14784 = 231 x 64
        (ODD, "-tp 2", "0.6.2", "A100"),
        (ODD, "-tp 2", "0.23.0", "A100"),
        (ODD, "-tp 2 --quantization gptq", "0.10.2", "A100"),
        (ODD, "-tp 2", "0.10.2", "T4"),  # below 8.0 it is GPTQ's own class
        (NARROW, "--dtype float16", "0.10.2", "A100"),
        ({**NARROW, "quantization_config": {**CT, "ignore": ["re:.*mlp.*"]}}, "", "0.10.2", "A100"),
        ({**LLAMA_8B, "intermediate_size": 29568}, "-tp 2", "0.10.2", "A100"),
    ],
)
def test_these_start(config, flags, version, card):
    assert told(config, flags, version, card) == []


def test_allspark_takes_whole_rows_of_8_bits_from_0_8_on():
    rows = {**ODD, "quantization_config": {**GPTQ, "bits": 8, "group_size": -1}}
    assert [told(rows, "-tp 4", version=v) == [] for v in ("0.7.3", "0.8.0")] == [False, True]
    assert told(rows, "-tp 4", version="0.8.0", card="RTX 5090") != []


def test_a_tower_is_packed_too_where_nothing_leaves_it_out():
    tower = {"model_type": "qwen2_5_vl", "depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16}
    seeing = {"model_type": "qwen2_5_vl", "text_config": LLAMA_8B, "vision_config": tower, "quantization_config": CT}
    ((flag, found, needed),) = told(seeing, "")
    assert (flag, needed) == ("quantization_config", "another format")
    assert found == "4-bit integers, 3420 inputs and 1280 outputs of down_proj in the vision tower in bfloat16"
    assert told({**seeing, "quantization_config": {**CT, "ignore": ["re:visual.*"]}}, "") == []
    assert told({**seeing, "quantization_config": GPTQ}, "") == []
    assert told(seeing, "--language-model-only", "0.20.0") == []

"""Experts that are balanced over the ranks: spare copies, a second place for one layer, and the profile's gathering."""

import pytest

from tests.plan.test_refused import settings
from vllm_doctor.plan.launch.flags import SettingError
from vllm_doctor.plan.prediction.predict import predict
from vllm_doctor.plan.prediction.record import GIB
from vllm_doctor.plan.support import judge

# 8 layers of 64 experts: 3 matrices of 2048 × 1024, in 2 bytes 12 MiB each.
EXPERTS = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 4096,
    "moe_intermediate_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 32000,
    "num_experts": 64,
    "num_experts_per_tok": 4,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
EACH = 12 / 1024  # GiB of one expert of one layer
RANKS = "-dp 4 --enable-expert-parallel"


def planned(flags: str, version: str = "0.19.0"):
    a, s, gpu = settings(EXPERTS, flags, version)
    return predict(a, s, gpu, gpu.total_gib)


@pytest.mark.parametrize(
    ("flags", "version", "more"),  # experts of each layer on one of four ranks, and one layer of them again
    [
        ("--enable-eplb", "0.11.0", 0),
        ("--enable-eplb", "0.12.0", 16),
        ('--enable-eplb --eplb-config {"num_redundant_experts":8}', "0.12.0", 8 * 2 + 18),
        ("--enable-eplb --eplb-config.num_redundant_experts 8", "0.12.0", 8 * 2 + 18),
        ("--enable-eplb --num-redundant-experts 8", "0.9.2", 8 * 2),
        ('--eplb-config {"num_redundant_experts":8}', "0.12.0", 0),  # refused, and nothing is balanced
    ],
)
def test_spare_copies_weigh_and_a_second_place_for_one_layer_does(flags, version, more):
    found = planned(f"{RANKS} {flags}", version).weights_gib - planned(RANKS, version).weights_gib
    assert found == pytest.approx(more * EACH, abs=0.003)


def test_the_profile_gathers_the_widest_matrix_of_all_ranks_beside_one_layer():
    # Gate and up of 64 experts are 512 MiB, a rank's own 16 experts 192 MiB, hidden states of 8192 tokens 32 MiB.
    p = planned(f"{RANKS} --enable-eplb")
    (term,) = (t for t in p.terms if t.name == "balancing of experts in the profile")
    assert term.bytes / GIB == pytest.approx((512 + 192 + 32) / 1024)
    assert p.activation.winner == term.name
    assert not any(t.name == term.name for t in planned(RANKS).terms)


@pytest.mark.parametrize(
    ("config", "version", "by"),
    [
        ("", "0.21.0", "gathered"),
        ("", "0.22.0", "either"),  # NIXL, where it is installed
        ('{"communicator":"nixl"}', "0.22.0", "nixl"),
        ('{"communicator":"torch_gloo"}', "0.33.0", "gathered"),
    ],
)
def test_nixl_gathers_nothing(config, version, by):
    p = planned(f"{RANKS} --enable-eplb" + (f" --eplb-config {config}" if config else ""), version)
    assert p.settings.balances == by
    assert any(t.name.startswith("balancing") for t in p.terms) is (by != "nixl")


def test_where_no_launch_tells_what_moves_experts_the_range_reaches_the_larger_pool():
    plain, nixl, either = (
        planned(f"{RANKS} --enable-eplb{config}", "0.33.0")
        for config in (' --eplb-config {"communicator":"torch_gloo"}', ' --eplb-config {"communicator":"nixl"}', "")
    )
    more = nixl.available_kv_gib - plain.available_kv_gib
    assert more > 0.2
    assert either.available_kv_gib == plain.available_kv_gib
    assert either.margin_gib == (plain.margin_gib[0], pytest.approx(plain.margin_gib[1] + more))


@pytest.mark.parametrize(
    ("flags", "version", "needed"),
    [
        ("-dp 4", "0.33.0", None),
        ("-dp 6", "0.33.0", "num_redundant_experts 2 in --eplb-config, or more by 6"),
        ('-dp 6 --eplb-config {"num_redundant_experts":8}', "0.33.0", None),
        ('-dp 4 --eplb-config {"num_redundant_experts":2}', "0.12.0", "no num_redundant_experts, or more by 4"),
        ("-dp 3 -tp 2", "0.9.2", "num_redundant_experts 2 in --eplb-config, or more by 6"),
    ],
)
def test_experts_and_their_copies_divide_by_the_ranks(flags, version, needed):
    _, s, _ = settings(EXPERTS, f"--enable-expert-parallel --enable-eplb {flags}", version)
    found = [r.needed for r in s.refusals if r.flag == "--enable-eplb"]
    assert [text.partition(":")[0] for text in found] == ([] if needed is None else [needed])
    _, s, _ = settings(EXPERTS, f"--enable-expert-parallel {flags}", version)
    assert not [r for r in s.refusals if r.flag == "--enable-eplb"]


def test_a_count_that_is_none_is_refused():
    with pytest.raises(SettingError, match="num_redundant_experts"):
        settings(EXPERTS, f'{RANKS} --enable-eplb --eplb-config {{"num_redundant_experts":"many"}}')


@pytest.mark.parametrize(
    ("flags", "version", "told"),
    [
        ("--num-redundant-experts 2", "0.9.2", "--num-redundant-experts"),
        ("--num-redundant-experts 2", "0.10.2", "--num-redundant-experts"),
        ("--num-redundant-experts 0", "0.10.2", None),
        ('--eplb-config {"num_redundant_experts":2}', "0.10.2", "--eplb-config"),
        ('--eplb-config {"num_redundant_experts":2}', "0.33.0", "--eplb-config"),
        ('--eplb-config {"num_redundant_experts":4} --enable-eplb', "0.33.0", None),
    ],
)
def test_copies_that_nothing_balances_are_refused_once(flags, version, told):
    s = settings(EXPERTS, f"{RANKS} {flags}", version)[1]
    assert [r.flag for r in s.refusals] == ([told] if told else [])


PHI = {**EXPERTS, "architectures": ["PhiMoEForCausalLM"], "model_type": "phimoe"}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
FIRST = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
# Transformers' name of a model of images whose text model alone has experts that are handed over.
SEEN = {
    "architectures": ["KimiVLForConditionalGeneration"],
    "model_type": "kimi_vl",
    "text_config": {**EXPERTS, "architectures": ["DeepseekV3ForCausalLM"]},
    "vision_config": {"model_type": "moonvit", "hidden_size": 1152, "num_attention_heads": 16, "patch_size": 14},
}


@pytest.mark.parametrize(
    ("config", "version", "found"),
    [
        (PHI, "0.19.0", "balances no experts of PhiMoEForCausalLM"),
        (EXPERTS, "0.19.0", None),
        (PHI, "0.33.0", "balances no experts of PhiMoEForCausalLM"),
        # Quantized experts say themselves whether they are, from 0.11.1 on.
        ({**EXPERTS, "quantization_config": AWQ}, "0.12.0", "balances no experts in awq"),
        ({**EXPERTS, "quantization_config": AWQ}, "0.11.0", None),
        (SEEN, "0.21.0", "balances no experts of KimiVLForConditionalGeneration"),
        (SEEN, "0.22.0", None),  # looks within
    ],
)
def test_a_class_that_hands_over_no_experts_has_none_balanced(config, version, found):
    a, s, gpu = settings(config, f"{RANKS} --enable-eplb", version, env=FIRST)
    told = [r.needed for r in judge(a, s, gpu).refusals if r.flag == "--enable-eplb"]
    assert told == ([f"no --enable-eplb: vLLM {version} {found}"] if found else [])

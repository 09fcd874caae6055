"""DeepSeek V4: compressed attention, experts in 4-bit floats beside matrices in 8 bits, streams of hidden states."""

import pytest

from tests.plan.models import LLAMA_8B, arch
from tests.plan.test_kv import cache
from tests.plan.test_plan import model, plan
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.launch.resolve import resolve
from vllm_doctor.plan.model.quantization import scheme
from vllm_doctor.plan.terms.compressed_pass import compressed_pass, gathered_latents
from vllm_doctor.plan.terms.matrices import layer_matrices
from vllm_doctor.plan.terms.weights import GIB, WeightTarget, rank_weights, rope_bytes, step_buffers

__all__ = ["model"]

FLASH = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "num_hidden_layers": 43,
    "num_attention_heads": 64,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "q_lora_rank": 1024,
    "o_lora_rank": 1024,
    "o_groups": 8,
    "qk_rope_head_dim": 64,
    "vocab_size": 129280,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 6,
    "num_hash_layers": 3,
    "num_nextn_predict_layers": 1,
    "index_head_dim": 128,
    "index_n_heads": 64,
    "index_topk": 512,
    "hc_mult": 4,
    "sliding_window": 128,
    "max_position_embeddings": 1048576,
    "tie_word_embeddings": False,
    "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0],
    "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
}
EXPERT = 3 * 4096 * 2048  # values of one


def plan_settings(line):
    v, a = as_version("0.22.0"), arch(FLASH)
    return resolve(parse_launch(["vllm", "serve", "m", *line.split()], v), v, a, None, 94.5, 2)


def loaded(config=FLASH, tp=2):
    a = arch(config)
    return rank_weights(a, scheme(a.quantization, None, 2), Parallel(tp, 1), 0, WeightTarget(2)) / GIB


def named(index, tp=1):
    found = {}
    for m in layer_matrices(arch(FLASH), index, Parallel(tp, 1), "model.layers"):
        found[m.name.removeprefix(f"model.layers.{index}.")] = (m.out, m.inner)
    return found


def test_two_ranks_of_flash_are_within_a_hundredth_of_what_a_start_logs():
    # "Model loading took 74.08 GiB" of 0.23.0 on two H200 NVL, the buffers of its widest step included.
    buffers = step_buffers(arch(FLASH), 8192, 2) / GIB
    assert loaded() + buffers == pytest.approx(74.08, rel=0.01)


def test_experts_are_4_bit_floats_where_the_config_names_no_other():
    fp4, fp8 = loaded(), loaded({**FLASH, "expert_dtype": "fp8"})
    assert loaded({**FLASH, "expert_dtype": "fp4"}) == fp4
    each = 43 * 256 * EXPERT / 2 / GIB  # values on a rank
    assert fp8 - fp4 == pytest.approx(each * (1 - 0.5 - 1 / 32), rel=0.01)
    nvfp4 = {**FLASH, "quantization_config": {**FLASH["quantization_config"], "moe_quant_algo": "NVFP4"}}
    assert loaded(nvfp4) - fp4 == pytest.approx(each / 32, rel=0.01)


@pytest.mark.parametrize(("index", "compresses", "chooses"), [(0, False, False), (2, True, True), (3, True, False)])
def test_a_layer_has_what_its_ratio_asks_for(index, compresses, chooses):
    got = named(index)
    assert ("compressor" in got) is compresses
    assert ("attn.indexer.wq_b" in got) is chooses
    assert ("experts by word, 4 bytes" in got) is (index < 3)


def test_the_states_of_a_ratio_of_four_overlap():
    assert named(2)["compressor"] == (2 * 2 * 512, 4096)
    assert named(3)["compressor"] == (2 * 512, 4096)


def test_ranks_split_the_heads_and_the_groups_of_the_output():
    whole, half = named(0), named(0, tp=2)
    assert whole["attn.wqa_wkv"] == half["attn.wqa_wkv"] == (1024 + 512, 4096)
    assert (whole["attn.wq_b"], half["attn.wq_b"]) == ((64 * 512, 1024), (32 * 512, 1024))
    assert (whole["attn.wo_a"], half["attn.wo_a"]) == ((8 * 1024, 8 * 512), (4 * 1024, 8 * 512))
    assert (whole["attn.wo_b"], half["attn.wo_b"]) == ((4096, 8 * 1024), (4096, 4 * 1024))


def test_layers_that_compress_turn_by_a_table_of_their_own():
    assert rope_bytes(arch(FLASH), WeightTarget(2)) == 2 * 1048576 * 64 * 4


def test_a_step_keeps_its_chosen_tokens_and_its_streams():
    assert step_buffers(arch(FLASH), 100, 2) == 100 * (4 * 512 + 4 * 4096 * 2)


def test_the_answer_says_what_is_known_and_what_is_not(model):
    asked = plan(model(FLASH), "--tensor-parallel-size 2 --kv-cache-dtype fp8", gpu="H200", gpus=2, version="0.23.0")
    p = asked.predict()
    assert p.verdict == "unknown"
    assert p.weights_gib == pytest.approx(74, rel=0.01)
    below = p.available_kv_gib - p.margin_gib[0]
    assert 0.5 * p.activation_gib < below < 0.1 * p.weights_gib
    told = " ".join(asked.arch.doubts)
    assert "the memory of a pass is a general transformer's" in told


PAIR = "-tp 2 --kv-cache-dtype fp8 --max-model-len"
DRAFTED = "--speculative-config.method mtp --speculative-config.num_speculative_tokens 2"


@pytest.mark.parametrize(
    ("version", "flags", "length", "gib", "tokens"),
    [
        ("0.23.0", f"{PAIR} 262144", 262144, 32.08, 2_175_276),  # two H200 NVL
        (  # two RTX PRO 6000
            "0.25.0",
            f"{PAIR} 1048576 --max-num-batched-tokens 4096 {DRAFTED}",
            1048576,
            10.29,
            1_993_100,
        ),
        ("0.31.0", "-tp 8 --kv-cache-dtype fp8 --max-num-batched-tokens 8192", 262144, 47.43, 1_728_531),
    ],
)
def test_logged_pools_of_compressed_layers_give_the_logged_tokens(version, flags, length, gib, tokens):
    p = cache(FLASH, flags, version)
    assert p.tokens(p.blocks(gib * GIB), length) == pytest.approx(tokens, rel=0.006 / gib)


def test_a_block_of_compressed_layers_is_what_the_release_makes_it():
    # 21 layers of one in four with an indexer's keys, 20 of one in 128, windows of 43 in two groups of 22 and 21.
    sizes = {v: cache(FLASH, PAIR + " 8192", v) for v in ("0.22.1", "0.23.0", "0.26.0", "0.27.0", "0.28.0", "0.29.0")}
    latents, keys, thin = 37440, 8640, 1728
    tuples, by_size = 22 * (latents + keys + thin), 22 * latents + 21 * keys + 20 * thin
    largest = 21 * (latents + keys) + 20 * thin
    assert [p.block_bytes for p in sizes.values()] == [tuples, by_size, by_size, largest, largest, largest]
    assert [p.needed(1) // p.request_blocks(1) for p in sizes.values()] == [tuples] * 5 + [largest]
    assert [g.layers for g in sizes["0.29.0"].groups] == [21, 22, 21, 21, 20]


def test_layers_of_an_unknown_ratio_have_a_general_pool():
    other = {**FLASH, "compress_ratios": [0, 0, *[4, 64] * 20, 4, 0]}
    assert len(cache(other, PAIR + " 8192", "0.23.0").groups) == 1


def test_a_wide_step_takes_its_heads_padded_under_all_streams():
    # 32 of 64 heads on a rank, padded to 64 for queries and output both; four streams, the layer's input, ranks and
    # latents in 16 bits; scores of latents and keys in 32; queries of the indexer, and the same in 8 bits.
    s = plan_settings("--tensor-parallel-size 2 --max-num-batched-tokens 16384 --max-model-len 30000")
    each = 2 * (5 * 4096 + 2 * 64 * 512 + 2 * (1024 + 512)) + 16 * (512 + 128) + 64 * 128 * 3
    assert compressed_pass(arch(FLASH), s).bytes == 16384 * each
    assert compressed_pass(arch(LLAMA_8B), s) is None
    # What a prefill gathers: a quarter of the length beside the window and the step, of four requests.
    assert gathered_latents(arch(FLASH), s).bytes == 4 * (7500 + 128 + 16384) * 512 * 2

"""The cache arithmetic against sums done by hand and against what vLLM's own classes return."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.models import DEEPSEEK_LIKE, DSA_LIKE, GEMMA3_LIKE, HYBRID_LIKE, LLAMA_8B, arch
from vllm_doctor.knowledge.gpus import find
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.plan.launch.resolve import resolve
from vllm_doctor.plan.prediction.record import GIB
from vllm_doctor.plan.terms.kv import Rules, Spec, mla_token_bytes, pool, request_blocks, rules_for, token_bytes
from vllm_doctor.plan.terms.pages import pool_of


def cache(config, line, version="0.19.0"):
    v = as_version(version)
    a = arch(config)
    return pool_of(a, resolve(parse_launch(["vllm", "serve", "m", *line.split()], v), v, a, None, 79.19, 8), None)


def test_llama_8b_takes_128_kib_a_token_and_16_gib_for_its_whole_context():
    p = cache(LLAMA_8B, "")
    assert p.block_bytes == 16 * 131072
    assert p.needed(131072) == 16 * GIB


def test_a_logged_pool_gives_the_logged_tokens():
    # vLLM 0.19.0, llama-3.1-8b on H100: 58.11 GiB, 476,016 tokens, 58.11 × 8192 (llm-d-planner pull 205).
    p = cache(LLAMA_8B, "--max-model-len 8192")
    blocks = p.blocks(58.11 * GIB)
    assert abs(p.tokens(blocks, 8192) - 476016) <= 16 + 0.005 / 58.11 * 476016
    assert p.concurrency(blocks, 8192) == pytest.approx(58.11, abs=0.01)


def test_tensor_parallel_divides_until_there_is_one_kv_head():
    assert cache(LLAMA_8B, "-tp 4").block_bytes == cache(LLAMA_8B, "").block_bytes // 4
    assert cache(LLAMA_8B, "-tp 16").block_bytes == cache(LLAMA_8B, "-tp 8").block_bytes


def test_mla_keeps_one_latent_on_every_rank():
    assert cache(DEEPSEEK_LIKE, "-tp 8").block_bytes == 16 * 61 * 1152
    assert mla_token_bytes(576, "fp8_ds_mla", 2) == 656


@pytest.mark.parametrize(
    ("version", "environment", "a_head"),
    [("0.6.6", {}, 256), ("0.7.0", {}, 192), ("0.7.1", {}, None), ("0.9.2", {"VLLM_MLA_DISABLE": "1"}, 192)],
)
def test_latents_are_cached_from_0_7_1_on_and_before_each_heads_keys_and_values(version, environment, a_head):
    v, a = as_version(version), arch(DEEPSEEK_LIKE)
    line = parse_launch([*(f"{k}={n}" for k, n in environment.items()), "vllm", "serve", "m", "-tp", "8"], v)
    p = pool_of(a, resolve(line, v, a, None, 79.19, 8), None)
    assert p.block_bytes == 16 * 61 * (1152 if a_head is None else 16 * 2 * a_head * 2)


@pytest.mark.parametrize(
    ("version", "environment", "flags", "a_layer"),
    [
        ("0.7.1", {}, [], 1152),
        ("0.7.2", {}, [], 1280),
        ("0.7.3", {}, [], 1280),
        ("0.7.3", {"VLLM_CUDA_MEM_ALIGN_KV_CACHE": "0"}, [], 1152),
        ("0.7.3", {}, ["--kv-cache-dtype", "fp8"], 640),
        ("0.8.2", {"VLLM_USE_V1": "0"}, [], 1152),
    ],
)
def test_0_7_2_and_0_7_3_align_latents_to_256_bytes(version, environment, flags, a_layer):
    v, a = as_version(version), arch(DEEPSEEK_LIKE)
    line = parse_launch([*(f"{k}={n}" for k, n in environment.items()), "vllm", "serve", "m", "-tp", "8", *flags], v)
    assert pool_of(a, resolve(line, v, a, None, 79.19, 8), None).block_bytes == 16 * 61 * a_layer


def test_a_logged_pool_of_aligned_latents_gives_the_logged_blocks():
    # vLLM 0.7.3, DeepSeek-R1 on eight H200: 21.43 GiB, 18,418 blocks.
    assert cache(DEEPSEEK_LIKE, "-tp 8", "0.7.3").blocks(21.43 * GIB) == pytest.approx(18418, abs=5)


def test_sliding_layers_are_grouped_by_the_smaller_kind_and_padded():
    # 10 full and 52 sliding layers: groups of 10, so 1 + 6; one page is 16 × 16 heads × 256 × 2 B.
    p = cache(GEMMA3_LIKE, "--max-model-len 8192")
    assert len(p.groups) == 7
    assert p.block_bytes == 10 * 16 * 16 * 256 * 2
    # Logged by 0.19.0 on H100: 15,997 blocks, 36,560 tokens, 4.46 × 8192.
    assert p.tokens(15997, 8192) == 36560
    assert p.concurrency(15997, 8192) == pytest.approx(4.46, abs=0.005)


def test_groups_are_widened_when_the_kinds_are_nearly_even():
    specs = [Spec("full", 16, 1024)] * 13 + [Spec("sliding", 16, 1024, 128)] * 12
    assert {g.layers for g in pool(specs, Rules(padding_ratio=1.5)).groups} == {13}
    assert {g.layers for g in pool(specs, Rules(padding_ratio=0.0)).groups} == {12}


def test_window_of_4096_with_16384_tokens_in_flight_takes_1281_blocks():
    # Checked against SlidingWindowSpec.max_memory_usage_bytes of 0.32.0.
    assert request_blocks(Spec("sliding", 16, 1024, 4096), 131072, Rules(in_flight=16384)) == 1281


def test_recurrent_layers_raise_the_block_to_their_state():
    # Per rank of 2: 24 × 128 × 128 × 4 B of state and 5120 × 3 × 2 B of convolution; 2 KV heads × 512 × 1 B a token
    # in fp8.
    p = cache(HYBRID_LIKE, "-tp 2 --kv-cache-dtype fp8", "0.26.1")
    state = 24 * 128 * 128 * 4 + 5120 * 3 * 2
    block = 16 * -(-state // (16 * 1024))
    assert p.groups[0].spec.block == block == 1568
    assert p.block_bytes == 16 * block * 1024


def test_releases_print_tokens_differently_for_hybrids():
    early, late = (
        cache(GEMMA3_LIKE, "--max-model-len 8192", "0.19.0"),
        cache(GEMMA3_LIKE, "--max-model-len 8192", "0.21.0"),
    )
    assert early.tokens(7000, 8192) == 7000 // 7 * 16
    assert late.tokens(7000, 8192) == int(late.concurrency(7000, 8192) * 8192)


def test_v0_keeps_every_layer_in_full():
    p = cache(GEMMA3_LIKE, "", "0.7.2")
    assert len(p.groups) == 1
    assert p.block_bytes == 62 * 16 * 16 * 256 * 2


def test_from_0_29_one_block_is_not_for_requests():
    a, b = (rules_for(as_version(v), max_batched_tokens=2048) for v in ("0.28.0", "0.29.0"))
    assert (a.reserve_null_block, b.reserve_null_block) == (False, True)


def test_scales_of_quantized_caches_are_counted():
    assert token_bytes(8, 128, 128, "fp8_per_token_head", 2) == 8 * 256 + 64
    assert token_bytes(8, 128, 128, "auto", 2) == 4096


@given(length=st.integers(1, 200_000), gib=st.floats(0.01, 200))
def test_the_longest_request_fits_and_one_more_token_does_not(length, gib):
    p = cache(GEMMA3_LIKE, "--max-model-len 8192")
    found = p.longest(gib * GIB, length)
    assert 0 <= found <= length
    if found:
        assert p.needed(found) <= gib * GIB
    if found < length:
        assert p.needed(found + 1) > gib * GIB


def test_a_window_keeps_the_tokens_of_both_batches_in_flight_from_026():
    # gemma-4-12B on 0.26.0: "7.32 GiB KV cache is needed" for 131200 tokens, "the estimated maximum … is 15280" of 4.9.
    gemma = {
        **GEMMA3_LIKE,
        "model_type": "gemma4_text",
        "num_hidden_layers": 48,
        "hidden_size": 3840,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 256,
        "global_head_dim": 512,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "sliding_window_pattern": 6,
        "max_position_embeddings": 262144,
    }
    p = cache(gemma, "--max-model-len 131200 --max-num-batched-tokens 8192", "0.26.0")
    assert p.needed(131200) / GIB == pytest.approx(7.32, abs=0.005)
    assert abs(p.longest(4.9 * GIB, 131200) - 15280) <= 64
    before = cache(gemma, "--max-model-len 131200 --max-num-batched-tokens 8192", "0.25.1")
    assert before.needed(131200) / GIB == pytest.approx(4.82, abs=0.005)


def test_the_printed_tokens_follow_the_concurrency_from_0201():
    hybrid = cache(HYBRID_LIKE, "--max-model-len 65536", "0.20.1")
    assert hybrid.tokens(1000, 65536) == int(hybrid.concurrency(1000, 65536) * 65536)
    assert cache(HYBRID_LIKE, "--max-model-len 65536", "0.20.0").tokens(1000, 65536) != hybrid.tokens(1000, 65536)


def test_an_indexer_keeps_132_bytes_a_token_beside_the_latents():
    # A start of 78 such layers on eight H200 (0.19.1): 32.11 GiB, 344,192 tokens in blocks of 64.
    assert cache(DSA_LIKE, "-tp 8").block_bytes == 64 * 61 * (1152 + 132)
    layers = {**DSA_LIKE, "num_hidden_layers": 78}
    p = cache(layers, "-tp 8 --max-model-len 8192")
    assert p.tokens(p.blocks(32.11 * GIB), 8192) == 344_192


def test_layers_that_use_another_s_choice_keep_no_keys_of_an_indexer():
    # Of 61 layers the first two and then every fourth choose.
    every = cache({**DSA_LIKE, "index_topk_freq": 4}, "-tp 8", "0.21.0")
    assert every.block_bytes == 64 * (61 * 1152 + 16 * 132)
    listed = {**DSA_LIKE, "index_topk_pattern": "F" + "S" * 60}
    assert cache(listed, "-tp 8", "0.21.0").block_bytes == 64 * (61 * 1152 + 132)
    assert cache(listed, "-tp 8", "0.20.2").block_bytes == 64 * 61 * (1152 + 132), "each has one to 0.20"


def test_a_layer_that_predicts_more_has_an_indexer_whatever_the_last_layer_has():
    drafts = """--speculative-config {"method":"mtp","num_speculative_tokens":2}"""
    listed = {**DSA_LIKE, "index_topk_pattern": "F" + "S" * 60, "num_nextn_predict_layers": 2}
    assert cache(listed, f"-tp 8 {drafts}", "0.24.0").block_bytes == 64 * (61 * 1152 + 132 + 2 * (1152 + 132))


@pytest.mark.parametrize(
    ("version", "card", "line", "each"),
    [
        ("0.11.0", "H200", "", 656),  # packed unasked to 0.17
        ("0.11.0", "H200", "--kv-cache-dtype bfloat16", 1152),
        ("0.19.0", "H200", "", 1152),
        ("0.19.0", "H200", "--kv-cache-dtype fp8", 656),
        ("0.33.0", "B200", "--kv-cache-dtype fp8", 576),
    ],
)
def test_sparse_attention_packs_its_latents_by_release_and_card(version, card, line, each):
    v, a, gpu = as_version(version), arch(DSA_LIKE), find(card)
    s = resolve(parse_launch(["vllm", "serve", "m", "-tp", "8", *line.split()], v), v, a, gpu, gpu.total_gib, 8)
    assert pool_of(a, s, gpu).block_bytes == 64 * 61 * (each + 132)

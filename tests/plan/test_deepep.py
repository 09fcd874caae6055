"""What ranks that exchange tokens keep beside torch, and the step where experts take batches of one size."""

import pytest

from tests.plan.test_balanced import EXPERTS
from tests.plan.test_refused import settings
from vllm_doctor.plan.launch.exchange import ELASTIC, HIGH_THROUGHPUT, LOW_LATENCY, NIXL, ONE_SIDED, TWO_SIDED, Exchange
from vllm_doctor.plan.terms.outside_torch import non_torch

RANKS = "-dp 4 --enable-expert-parallel"
LOW, HIGH = ("--all2all-backend deepep_low_latency", "--all2all-backend deepep_high_throughput")
DEEPSEEK = {**EXPERTS, "hidden_size": 7168, "num_attention_heads": 56, "num_experts": 256}


def grown(config, flags, version="0.33.0", env=None):
    a, s, gpu = settings(config, flags, version, env=env)
    return non_torch(a, s, gpu, gpu.total_gib).gib, s


def test_each_expert_has_room_for_the_tokens_of_a_rank_in_four_places():
    # A row of 7168 in 16 bits has 14336 B, with 56 scales 14560; 256 experts of 256 tokens, and 1 GiB over NVLink.
    found, _ = grown(DEEPSEEK, f"{RANKS} {LOW}")
    plain, _ = grown(DEEPSEEK, f"{RANKS} --max-num-batched-tokens 256")
    assert found - plain == pytest.approx(1 + 4 * 256 * 256 * 14560 / 2**30, abs=0.02)


@pytest.mark.parametrize(
    ("flags", "version", "env", "kept"),
    [
        (RANKS, "0.33.0", {}, None),
        (f"{RANKS} {HIGH}", "0.33.0", {}, Exchange(1024, False, 0, HIGH_THROUGHPUT)),
        (f"{RANKS} {HIGH} --data-parallel-size-local 2", "0.33.0", {}, Exchange(1024, True, 0, HIGH_THROUGHPUT)),
        (f"{RANKS} {HIGH}", "0.33.0", {"VLLM_DEEPEP_BUFFER_SIZE_MB": "512"}, Exchange(512, False, 0, HIGH_THROUGHPUT)),
        (f"{RANKS} {LOW}", "0.33.0", {}, Exchange(1024, False, 256, LOW_LATENCY)),
        (f"{RANKS} {LOW} --max-num-batched-tokens 4096", "0.33.0", {}, Exchange(1024, False, 4096, LOW_LATENCY)),
        (f"{RANKS} {LOW} --max-num-batched-tokens 4096", "0.19.1", {}, Exchange(1024, False, 256, LOW_LATENCY)),
        (RANKS, "0.11.0", {"VLLM_ALL2ALL_BACKEND": "deepep_low_latency"}, Exchange(1024, False, 256, LOW_LATENCY)),
        (f"{RANKS} {LOW}", "0.19.1", {"VLLM_MOE_DP_CHUNK_SIZE": "128"}, Exchange(1024, False, 128, LOW_LATENCY)),
        (f"-dp 4 {LOW}", "0.33.0", {}, None),
        (f"-tp 4 --enable-expert-parallel {LOW}", "0.33.0", {}, None),
        (f"{RANKS} --all2all-backend nixl_ep", "0.33.0", {}, Exchange(0, False, 256, NIXL)),
        (f"{RANKS} --all2all-backend deepep_v2", "0.33.0", {}, Exchange(0, False, 8192, ELASTIC)),
        (f"{RANKS} --all2all-backend deepep_v2 --data-parallel-size-local 2", "0.33.0", {}, None),
        (f"{RANKS} --all2all-backend flashinfer_all2allv", "0.12.0", {}, Exchange(0, False, 0, TWO_SIDED)),
        (f"{RANKS} --all2all-backend {ONE_SIDED}", "0.24.0", {}, Exchange(0, False, 8192, ONE_SIDED)),
    ],
)
def test_what_a_launch_keeps(flags, version, env, kept):
    assert settings(EXPERTS, flags, version, env=env)[1].exchange == kept


def test_the_buffers_lie_outside_torch():
    plain, _ = grown(EXPERTS, RANKS)
    assert grown(EXPERTS, f"{RANKS} {HIGH}")[0] - plain == pytest.approx(1)
    assert grown(EXPERTS, f"{RANKS} {HIGH} --data-parallel-size-local 2")[0] - plain == pytest.approx(2)


def test_nixl_has_the_rooms_of_low_latency_and_nothing_over_nvlink():
    found, _ = grown(DEEPSEEK, f"{RANKS} --all2all-backend nixl_ep")
    plain, _ = grown(DEEPSEEK, f"{RANKS} --max-num-batched-tokens 256")
    assert found - plain == pytest.approx(4 * 256 * 256 * 14560 / 2**30, abs=0.02)


FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
FP4 = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": []}}


@pytest.mark.parametrize(
    ("more", "backend", "size"),
    [
        # 16 ranks of an H100: 132 multiprocessors make 16 channels of 16 queues; and 1 MiB of each rank.
        ("-tp 4", TWO_SIDED, 16 * 16 * (2**21 + 256) + 16 * (2**20 + 256)),
        ("", TWO_SIDED, 4 * 33 * (2**21 + 256) + 4 * (2**20 + 256)),
        # What four ranks send of a step of 8192, and what comes back; a route of eight experts has 64 B.
        ("", ONE_SIDED, 4 * 8192 * (14336 + 64 + 14336)),
        (FP4, ONE_SIDED, 4 * 8192 * (3584 + 448 + 64 + 14336)),
        # Of a token come back eight rows, more than four ranks send.
        ("", ELASTIC, 8 * 8192 * (14336 + 32)),
        ("-tp 4", ELASTIC, 16 * 8192 * (14336 + 64)),
        (FP8 | {"num_experts_per_tok": 2}, ELASTIC, 4 * 8192 * (7168 + 896 + 16)),
    ],
)  # fmt: skip
def test_each_way_of_exchange_has_its_own_sum(more, backend, size):
    changed, flags = ({}, more) if isinstance(more, str) else (more, "")
    config = {**DEEPSEEK, "num_experts_per_tok": 8, **changed}
    line = f"-dp 4 --data-parallel-size-local 4 --enable-expert-parallel {flags} --max-num-batched-tokens 8192"
    found = grown(config, f"{line} --all2all-backend {backend}")[0] - grown(config, line)[0]
    assert found == pytest.approx(size / 2**30, abs=0.008)


@pytest.mark.parametrize(
    ("flags", "version", "step"),
    [
        (f"{RANKS} {LOW}", "0.33.0", 256),
        (f"{RANKS} --all2all-backend nixl_ep", "0.33.0", 256),
        (f"{RANKS} {LOW} --performance-mode throughput", "0.33.0", 512),
        (f"{RANKS} {LOW} --max-num-batched-tokens 1024", "0.33.0", 1024),
        (f"{RANKS} {LOW}", "0.19.1", 8192),
        (f"{RANKS} {HIGH}", "0.33.0", 8192),
        (f"-dp 4 {LOW}", "0.33.0", 8192),
    ],
)
def test_batches_of_one_size_have_a_short_step_where_none_is_asked_for(flags, version, step):
    s = settings(EXPERTS, flags, version)[1]
    assert s.batched == step
    assert s.seqs <= step


def test_data_parallel_ranks_that_exchange_tokens_are_joined_as_tensor_parallel_ones():
    dense = {**EXPERTS, "num_experts": 0, "architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    alone, _ = grown(dense, "-dp 4", "0.19.1")
    joined, _ = grown(EXPERTS, "-dp 4", "0.19.1")
    assert joined - alone > 0.2
    assert joined == pytest.approx(grown(EXPERTS, "-tp 4 --enforce-eager", "0.19.1")[0], abs=0.01)
    assert grown(EXPERTS, "-dp 4 --data-parallel-size-local 1", "0.19.1")[0] == pytest.approx(alone, abs=0.01)

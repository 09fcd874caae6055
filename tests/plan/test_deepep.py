"""What DeepEP keeps beside torch, and the step of a launch whose experts take batches of one size."""

import pytest

from tests.plan.test_balanced import EXPERTS
from tests.plan.test_refused import settings
from vllm_doctor.plan.launch.exchange import Exchange
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
        (f"{RANKS} {HIGH}", "0.33.0", {}, Exchange(1024, across=False)),
        (f"{RANKS} {HIGH} --data-parallel-size-local 2", "0.33.0", {}, Exchange(1024, across=True)),
        (f"{RANKS} {HIGH}", "0.33.0", {"VLLM_DEEPEP_BUFFER_SIZE_MB": "512"}, Exchange(512, across=False)),
        (f"{RANKS} {LOW}", "0.33.0", {}, Exchange(1024, False, 256)),
        (f"{RANKS} {LOW} --max-num-batched-tokens 4096", "0.33.0", {}, Exchange(1024, False, 4096)),
        (f"{RANKS} {LOW} --max-num-batched-tokens 4096", "0.19.1", {}, Exchange(1024, False, 256)),
        (RANKS, "0.11.0", {"VLLM_ALL2ALL_BACKEND": "deepep_low_latency"}, Exchange(1024, False, 256)),
        (f"{RANKS} {LOW}", "0.19.1", {"VLLM_MOE_DP_CHUNK_SIZE": "128"}, Exchange(1024, False, 128)),
        (f"-dp 4 {LOW}", "0.33.0", {}, None),
        (f"-tp 4 --enable-expert-parallel {LOW}", "0.33.0", {}, None),
        (f"{RANKS} --all2all-backend nixl_ep", "0.33.0", {}, None),  # of which the sizes are not known
    ],
)
def test_what_a_launch_keeps(flags, version, env, kept):
    assert settings(EXPERTS, flags, version, env=env)[1].exchange == kept


def test_the_buffers_lie_outside_torch():
    plain, _ = grown(EXPERTS, RANKS)
    assert grown(EXPERTS, f"{RANKS} {HIGH}")[0] - plain == pytest.approx(1)
    assert grown(EXPERTS, f"{RANKS} {HIGH} --data-parallel-size-local 2")[0] - plain == pytest.approx(2)


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

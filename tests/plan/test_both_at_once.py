"""Falcon-H1: every layer attends and keeps a state, and has one MLP."""

import pytest
from msgspec.structs import replace

from tests.plan.models import arch
from tests.plan.test_which_engine import asked
from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.model.quantization import scheme
from vllm_doctor.plan.terms.pages import pool_of
from vllm_doctor.plan.terms.weights import GIB, WeightTarget, rank_weights

FALCON_H1_3B = {
    "architectures": ["FalconH1ForCausalLM"],
    "model_type": "falcon_h1",
    "hidden_size": 2560,
    "intermediate_size": 6144,
    "num_hidden_layers": 32,
    "num_attention_heads": 10,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "mamba_d_ssm": 4096,
    "mamba_n_heads": 32,
    "mamba_d_head": 128,
    "mamba_d_state": 256,
    "mamba_n_groups": 1,
    "mamba_d_conv": 4,
    "vocab_size": 65536,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
LAUNCH = "vllm serve m --dtype bfloat16 --max-model-len 2048 --max-num-seqs 8"
LOGGED = 5.28 * GIB


def test_each_layer_has_a_cache_and_a_state_and_one_mlp():
    a = arch(FALCON_H1_3B)
    assert a.known
    assert [layer.kind for layer in a.layers] == ["full", "mamba"] * 32
    assert not any(layer.shares_kv for layer in a.layers)


def test_its_weights_are_those_of_a_log():
    a = arch(FALCON_H1_3B)
    got = rank_weights(a, scheme(a.quantization, None, 2), Parallel(), 0, WeightTarget(2)) / GIB
    assert got == pytest.approx(5.897, abs=0.002)  # the log: 5.8981


def test_its_pool_is_that_of_a_log():
    a, s = arch(FALCON_H1_3B), asked(LAUNCH, "0.12.0", config=FALCON_H1_3B)
    pool = pool_of(a, s, None)
    assert pool is not None
    blocks = pool.blocks(LOGGED)
    assert [(g.layers, g.spec.block) for g in pool.groups] == [(32, 2080), (32, 2080)]  # "attention block size to 2080"
    assert pool.concurrency(blocks, 2048) == 41.5
    assert pool.tokens(blocks, 2048) == 83968


@pytest.mark.parametrize(("length", "aligned", "each"), [(2079, False, 2079), (2081, False, 2080), (2048, True, 2080)])
def test_a_state_counts_as_a_block_of_the_whole_length(length, aligned, each):
    pool = pool_of(arch(FALCON_H1_3B), asked(LAUNCH, "0.12.0", config=FALCON_H1_3B), None)
    pool = replace(pool, rules=replace(pool.rules, align_states=aligned))
    assert pool.tokens(83, length) == 41 * each

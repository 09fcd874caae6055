"""Pages of models with recurrent layers: the state by hand, from the shapes that vLLM gives it, and the blocks that
logs state."""

import pytest

from tests.plan.models import DSA_LIKE, HYBRID_LIKE, arch
from vllm_doctor.knowledge.gpus import find
from vllm_doctor.knowledge.versions import as_version
from vllm_doctor.launch.parse import parse_launch
from vllm_doctor.plan.launch.resolve import resolve
from vllm_doctor.plan.prediction.record import GIB
from vllm_doctor.plan.terms.activation import estimate
from vllm_doctor.plan.terms.outside_torch import graphs
from vllm_doctor.plan.terms.pages import pool_of

NEMOTRON = {
    "model_type": "nemotron_h",
    "hidden_size": 2688,
    "num_hidden_layers": 4,
    "hybrid_override_pattern": "ME*M",
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "n_groups": 8,
    "ssm_state_size": 128,
    "conv_kernel": 4,
    "intermediate_size": 1856,
    "vocab_size": 131072,
    "torch_dtype": "bfloat16",
}
KIMI = {
    "model_type": "kimi_linear",
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "vocab_size": 163840,
    "max_position_embeddings": 1048576,
    "linear_attn_config": {
        "num_heads": 32,
        "head_dim": 128,
        "short_conv_kernel_size": 4,
        "full_attn_layers": [4],
    },
    "torch_dtype": "bfloat16",
}


def settings(config, line, version, card=None):
    v, a = as_version(version), arch(config)
    gpu = find(card) if card else None
    return a, resolve(parse_launch(["vllm", "serve", "m", *line.split()], v), v, a, gpu, 79.19, 8), gpu


def groups(config, line, version, card=None):
    return pool_of(*settings(config, line, version, card), None).groups


def block(config, line, version, card=None):
    return max(g.spec.block for g in groups(config, line, version, card))


FP8 = "-tp 2 --kv-cache-dtype fp8"


def test_nemotron_s_states_have_the_type_that_the_config_names():
    # 32 heads of 64 x 128 in 4 bytes and a window of 3 x 3072 in 2: 1,067,008 B, in pages of 256 B a token.
    # A start of 0.13 on two cards logged blocks of this size by its concurrency (222 blocks, 6.17 requests).
    named = {**NEMOTRON, "mamba_ssm_cache_dtype": "float32"}
    assert block(named, FP8, "0.13.0") == 4176
    assert block(named, FP8, "0.12.0") == 2128  # read no such key
    assert block(NEMOTRON, FP8, "0.13.0") == 2128  # float16 where there is none
    assert block(NEMOTRON, FP8, "0.20.0") == 4176  # float32 since
    assert block(NEMOTRON, f"{FP8} --mamba-ssm-cache-dtype float16", "0.20.0") == 2128


def test_ranks_that_share_a_group_of_mamba2_each_have_a_copy():
    # 16 ranks of 8 groups: 4 heads of 64 x 128 x 4 B, and a window of 3 x (4096 + 2 x 16 x 128) / 16 x 2 B.
    state = next(g.spec for g in groups(NEMOTRON, "-tp 16", "0.20.0") if g.spec.kind == "mamba")
    assert state.state_bytes == 4 * 64 * 128 * 4 + 3 * (4096 + 2 * 16 * 128) // 16 * 2


@pytest.mark.parametrize(
    ("version", "line", "size"),
    [
        ("0.16.0", "", 64),  # latent attention's blocks before backends told their own
        ("0.16.0", "--attention-backend CUTLASS_MLA", 128),
        ("0.33.0", "", 128),
    ],
)
def test_hybrids_with_latent_attention_take_wide_steps(version, line, size):
    # State: 32 heads of 128 x 128 x 4 B, window 3 x 3 x 4096 x 2 B; a token's latents are 1152 B.
    assert block(KIMI, line, version) == -(-(32 * 128 * 128 * 4 + 9 * 4096 * 2) // (1152 * size)) * size


def test_states_that_a_prefill_leaves_for_prefix_caching_are_one_more_a_request():
    line = "--enable-prefix-caching"
    before = next(g.spec for g in groups(NEMOTRON, line, "0.31.0") if g.spec.kind == "mamba")
    after = next(g.spec for g in groups(NEMOTRON, line, "0.32.0") if g.spec.kind == "mamba")
    assert (before.spec_blocks, after.spec_blocks) == (0, 1)


@pytest.mark.parametrize(
    ("version", "card", "kept"),
    [("0.32.0", "H100", 0), ("0.33.0", "H100", 1), ("0.33.0", "RTX 5090", 1), ("0.33.0", "L40S", 0)],
)
def test_a_delta_net_leaves_states_where_flashinfer_prefills_it(version, card, kept):
    hybrid = {**HYBRID_LIKE, "model_type": "qwen3_next"}
    found = groups(hybrid, "--enable-prefix-caching", version, card)
    state = next(g.spec for g in found if g.spec.kind == "mamba")
    assert state.spec_blocks == kept
    assert not kept or state.block % 64 == 0


@pytest.mark.parametrize(("version", "each"), [("0.26.0", 5), ("0.31.0", 5), ("0.32.0", 2), ("0.33.0", 2)])
def test_an_indexer_s_workspace_is_cut_for_long_requests_from_032(version, each):
    # Four GB200 of 0.26 at a length of 819200 logged a peak of 6.31 GiB; 4.03 of it are this.
    a, s, _ = settings(DSA_LIKE | {"max_position_embeddings": 1048576}, "-tp 8 --max-model-len 819200", version)
    told = estimate(a, s, capability=10.0, multiprocessors=148)
    workspace = next(t for t in told.terms if t.name == "indexer workspace")
    assert workspace.bytes == 819200 * 8 * each * 132


@pytest.mark.parametrize(
    ("version", "asked", "each"),
    [
        ("0.12.0", None, 2),  # rows for each token of the length
        ("0.13.0", None, 40),
        ("0.31.0", 3, 40),  # no such key yet
        ("0.32.0", 3, 24),
        ("0.33.0", 8, 64),
    ],
)
def test_an_indexer_gathers_as_many_keys_as_the_release_and_the_launch_say(version, asked, each):
    flags = f'--attention-config {{"sparse_mla_prefill_workspace_factor":{asked}}}' if asked else ""
    a, s, _ = settings(DSA_LIKE, f"-tp 8 --max-model-len 65536 {flags}", version)
    told = estimate(a, s, capability=9.0, multiprocessors=132)
    workspace = next(t for t in told.terms if t.name == "indexer workspace")
    assert workspace.bytes == 65536 * each * 132


def test_a_decode_graph_holds_the_scores_of_an_indexer():
    # 512 rows of 4 bytes for each token of the length: 1.6 GiB at 819200.
    a, short, card = settings(DSA_LIKE, "-tp 8 --max-model-len 8192", "0.23.0")
    _, long, _ = settings(DSA_LIKE | {"max_position_embeddings": 819200}, "-tp 8 --max-model-len 819200", "0.23.0")
    more = graphs(a, long, card).gib - graphs(a, short, card).gib
    assert more == pytest.approx(512 * (819200 - 8192) * 4 / GIB)


def test_the_profile_s_pass_makes_room_for_an_indexer_s_scores_from_019_on():
    def passed(version):
        a, s, _ = settings(DSA_LIKE, "-tp 8 --max-model-len 8192 --max-num-seqs 1", version)
        told = estimate(a, s, capability=9.0, multiprocessors=132)
        return next(t.bytes for t in told.terms if t.name == "forward pass with experts")

    assert passed("0.19.0") - passed("0.18.1") == 512 * 2**20


def test_v0_keeps_the_states_of_a_whole_batch_beside_its_pool():
    # 2 layers of 64 heads of 64 x 128 and a window of 3 x (4096 + 2 x 8 x 128), 2 B a value, for 64 sequences.
    line = "--max-num-seqs 64 --max-model-len 8192"
    a, s, _ = settings(NEMOTRON, line, "0.7.3")
    first = estimate(a, s, capability=8.9, multiprocessors=142)
    states = next(t for t in first.terms if t.name == "recurrent states")
    assert states.bytes == 2 * 64 * 2 * (64 * 64 * 128 + 3 * (4096 + 2 * 8 * 128))
    a, s, _ = settings(NEMOTRON, line, "0.19.0")
    assert "recurrent states" not in {t.name for t in estimate(a, s, capability=8.9, multiprocessors=142).terms}

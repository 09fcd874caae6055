"""Where ranks split tokens instead of widths, each holds the shared experts whole: which launches do, read from the
releases' config/parallel.py use_sequence_parallel_moe and from the models' classes."""

import pytest

from tests.plan.test_refused import settings
from vllm_doctor.plan.launch.parallel import Shared
from vllm_doctor.plan.prediction.predict import predict

DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "moe_intermediate_size": 1024,
    "num_hidden_layers": 9,
    "first_k_dense_replace": 1,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "vocab_size": 32000,
    "n_routed_experts": 64,
    "n_shared_experts": 4,
    "num_experts_per_tok": 4,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
QWEN = {
    **{k: v for k, v in DEEPSEEK.items() if not k.endswith(("rank", "_dim"))},
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_moe",
    "head_dim": 128,
    "num_key_value_heads": 4,
    "num_experts": 64,
    "shared_expert_intermediate_size": 4096,
}
SPLIT, WHOLE, PERHAPS = Shared.SPLIT, Shared.WHOLE, Shared.PERHAPS
RANKS = "-tp 2 -dp 2 --enable-expert-parallel"


def held(config, flags, version="0.33.0", env=None):
    return settings(config, flags, version, env=env)[1].parallel.shared


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        (RANKS, WHOLE),
        ("-tp 2 -dp 2", SPLIT),
        ("-tp 2 --enable-expert-parallel", SPLIT),
        ("-dp 2 --enable-expert-parallel", SPLIT),  # one rank has the whole width anyhow
        (f"{RANKS} --all2all-backend deepep_low_latency", WHOLE),
        (f"{RANKS} --all2all-backend flashinfer_nvlink_two_sided", SPLIT),
        (f"{RANKS} --all2all-backend pplx", WHOLE),  # gone, and replaced by the default one
        (f"{RANKS} --model-impl transformers", PERHAPS),
    ],
)
def test_tokens_are_split_with_experts_and_data_in_parallel_by_some_backends(flags, found):
    assert held(DEEPSEEK, flags) is found


@pytest.mark.parametrize(
    ("version", "backend", "found"),
    [
        ("0.10.1", None, SPLIT),
        ("0.10.2", None, SPLIT),  # naive is its default
        ("0.10.2", "deepep_low_latency", WHOLE),
        ("0.11.0", None, WHOLE),  # allgather_reducescatter is
        ("0.11.0", "pplx", SPLIT),
        ("0.16.0", "pplx", SPLIT),
        ("0.16.1", "pplx", PERHAPS),  # not read: 0.17.0 takes another in its place
        ("0.17.0", "pplx", WHOLE),
        ("0.28.0", "flashinfer_nvlink_one_sided", SPLIT),
        ("0.29.0", "flashinfer_nvlink_one_sided", WHOLE),
        ("99.0", None, WHOLE),  # as the newest that was read
    ],
)
def test_which_backends_do_changes_from_release_to_release(version, backend, found):
    by_variable = version < "0.11.1" and backend is not None
    flags = RANKS if backend is None or by_variable else f"{RANKS} --all2all-backend {backend}"
    env = {"VLLM_ALL2ALL_BACKEND": backend} if by_variable else None
    assert held(DEEPSEEK, flags, version, env) is found


def test_in_0_10_2_one_data_parallel_rank_is_enough():
    env = {"VLLM_ALL2ALL_BACKEND": "deepep_high_throughput"}
    assert held(DEEPSEEK, "-tp 2 --enable-expert-parallel", "0.10.2", env) is WHOLE
    assert held(DEEPSEEK, "-tp 2 --enable-expert-parallel", "0.11.0", env) is SPLIT


def test_an_option_and_its_variable_that_differ_leave_it_open():
    flags, env = f"{RANKS} --all2all-backend pplx", {"VLLM_ALL2ALL_BACKEND": "naive"}
    assert held(DEEPSEEK, flags, "0.13.0", env) is PERHAPS
    assert held(DEEPSEEK, flags, "0.13.0") is SPLIT


@pytest.mark.parametrize(
    ("architecture", "version", "found"),
    [
        ("Qwen2MoeForCausalLM", "0.33.0", SPLIT),  # its class always splits them
        ("Qwen3NextForCausalLM", "0.18.1", SPLIT),
        ("Qwen3NextForCausalLM", "0.20.2", WHOLE),
        ("Glm4MoeForCausalLM", "0.33.0", SPLIT),
        ("KimiLinearForCausalLM", "0.33.0", PERHAPS),  # by a variable of its own
        ("NoneSuchForCausalLM", "0.33.0", PERHAPS),  # whatever runs it
    ],
)
def test_a_class_follows_or_does_not(architecture, version, found):
    assert held({**QWEN, "architectures": [architecture]}, RANKS, version) is found


def weights(config, flags, version="0.33.0"):
    a, s, gpu = settings(config, flags, version)
    return predict(a, s, gpu, gpu.total_gib)


def test_a_rank_that_holds_them_whole_weighs_more_and_the_range_spans_what_is_open():
    # 8 layers, 3 matrices of 2048 × 4096 in 2 bytes: half of it more on each of two ranks.
    more = 8 * 3 * 2048 * 4096 * 2 / 2 / 2**30
    split, whole, open_ = (
        weights({**QWEN, "architectures": [name]}, RANKS)
        for name in ("Qwen2MoeForCausalLM", "Qwen3NextForCausalLM", "KimiLinearForCausalLM")
    )
    assert whole.weights_gib - split.weights_gib == pytest.approx(more, abs=0.005)
    assert open_.weights_gib == split.weights_gib
    low, high = (p.margin_gib[0] - p.available_kv_gib for p in (open_, split))
    assert high - low == pytest.approx(more, abs=0.005)

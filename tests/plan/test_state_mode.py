"""What a release asks of a launch with recurrent layers: ranks that split their groups, and steps that hold a block
where prefixes are cached at the ends of blocks."""

import pytest

from tests.plan.models import HYBRID_LIKE, LLAMA_8B
from tests.plan.test_refused import settings
from vllm_doctor.plan.support import judge
from vllm_doctor.plan.terms.pages import specs

NEMOTRON = {
    "architectures": ["NemotronHForCausalLM"],
    "model_type": "nemotron_h",
    "hidden_size": 4096,
    "intermediate_size": 8192,
    "num_hidden_layers": 4,
    "hybrid_override_pattern": "M*M-",
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "n_groups": 8,
    "ssm_state_size": 128,
    "conv_kernel": 4,
    "vocab_size": 131072,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
FP8 = {"quant_method": "modelopt", "quant_algo": "FP8"}
CACHED = "--enable-prefix-caching"


def told(config, flags, version):
    a, s, gpu = settings(config, flags, version)
    return [(r.flag, r.needed) for r in (*s.refusals, *judge(a, s, gpu).refusals)]


def block(flags, version):
    a, s, gpu = settings(HYBRID_LIKE, flags, version)
    return next(one.block for one in specs(a, s, gpu, range(len(a.layers))) if one.kind == "mamba")


def test_a_step_holds_a_block():
    length = block(CACHED, "0.17.1")
    ((flag, needed),) = told(HYBRID_LIKE, f"{CACHED} --max-num-batched-tokens {length - 1}", "0.17.1")
    assert (flag, needed.split(",")[0]) == ("--max-num-batched-tokens", f"at least {length} tokens")
    assert told(HYBRID_LIKE, f"{CACHED} --max-num-batched-tokens {length}", "0.17.1") == []


@pytest.mark.parametrize(
    ("flags", "version"),
    [
        (CACHED, "0.28.0"),  # states are kept within blocks too
        ("--no-enable-prefix-caching", "0.17.1"),
        ("", "0.17.1"),  # not cached unasked before 0.26
    ],
)
def test_or_need_not(flags, version):
    words = f"{flags} --max-num-batched-tokens {block(flags, version) - 1}"
    assert told(HYBRID_LIKE, words, version) == []


@pytest.mark.parametrize(
    ("flags", "version", "flag"),
    [
        (f"{CACHED} --no-enable-chunked-prefill --max-model-len 8192", "0.19.1", "--no-enable-chunked-prefill"),
        ("--no-enable-chunked-prefill --max-model-len 8192", "0.33.0", "--no-enable-chunked-prefill"),
    ],
)
def test_prompts_are_cut_into_steps(flags, version, flag):
    assert flag in [found for found, _ in told(HYBRID_LIKE, flags, version)]
    assert told(LLAMA_8B, flags, version) == []


@pytest.mark.parametrize(
    ("changes", "ranks", "version", "needed"),
    [
        ({}, 8, "0.33.0", None),
        ({}, 16, "0.33.0", "a divisor of 8, the groups of Mamba 2"),
        ({"n_groups": 1}, 16, "0.33.0", None),  # whole on each rank
        ({"quantization_config": FP8}, 8, "0.10.2", "1: 0.10.2 does not split quantized layers of Mamba 2"),
        ({"quantization_config": FP8}, 8, "0.11.0", None),
        (
            {"quantization_config": FP8, "n_groups": 1},
            8,
            "0.15.1",
            "1: 0.15.1 does not split quantized layers of Mamba 2",
        ),
        ({"quantization_config": FP8, "n_groups": 1}, 8, "0.16.0", None),
    ],
)
def test_ranks_split_the_groups_of_mamba_2(changes, ranks, version, needed):
    found = [text for flag, text in told({**NEMOTRON, **changes}, f"-tp {ranks}", version) if "tensor" in flag]
    assert found == ([] if needed is None else [needed])

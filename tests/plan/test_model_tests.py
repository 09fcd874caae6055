"""What a model's own classes refuse as they are made is foreseen, with the sentence that the release ends with; what
config.json does not say refuses nothing."""

from dataclasses import replace

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_refused import ENCODER, refused, settings
from vllm_doctor.plan.support import judge, model_tests

ROTARY = {**ENCODER, "position_embedding_type": "rotary"}
EXPERTS = {
    **LLAMA_8B,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 1536,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}


def told(config, flags="", version="0.33.0", card="H100"):
    a, s, gpu = settings(config, flags, version, card)
    return [(r.flag, r.found, r.needed) for r in model_tests.refusals(a, s, gpu)]


def test_positions_of_another_kind_than_a_class_has():
    ((flag, found, needed),) = told(ROTARY, "--task embedding", "0.6.4.post1")
    assert (flag, found) == ("position_embedding_type", "'rotary'")
    assert needed.startswith("another value: RobertaEmbedding of vLLM 0.6.4 ends with “Only 'absolute' position_emb")
    assert needed.endswith("; 0.8.4 is the first that takes it")


@pytest.mark.parametrize("config", [ENCODER, {**ENCODER, "position_embedding_type": None}])
def test_a_key_that_is_not_there_or_null_refuses_nothing(config):
    assert told(config, "--task embedding", "0.6.4.post1") == []


@pytest.mark.parametrize(
    ("config", "flags", "version", "asked"),
    [
        ({**LLAMA_8B, "hidden_act": "gelu"}, "", "0.33.0", "hidden_act"),
        ({**LLAMA_8B, "intermediate_size": 14338}, "-tp 4", "0.33.0", "--tensor-parallel-size"),
        (EXPERTS, "-tp 16", "0.33.0", "--tensor-parallel-size"),  # eight experts among sixteen ranks
    ],
)
def test_what_a_class_asks_of_the_config_and_of_the_ranks(config, flags, version, asked):
    assert asked in {flag for flag, _, _ in told(config, flags, version)}
    assert asked in refused(config, flags, version)


def test_a_width_that_does_not_divide_is_told_with_sizes_that_do():
    ((_, found, needed),) = told({**LLAMA_8B, "intermediate_size": 14338}, "-tp 4")
    assert found == "4"
    assert needed == (
        "a divisor of 14338, intermediate_size, such as 1, 2: LlamaForCausalLM of vLLM 0.33.0 ends with "
        "“… is not divisible by …”"
    )


@pytest.mark.parametrize(
    ("config", "flags"),
    [
        ({**LLAMA_8B, "hidden_act": "silu"}, "-tp 4"),
        (LLAMA_8B, "-tp 8"),
        ({**LLAMA_8B, "hidden_act": "gelu"}, "--hf-config-path other"),
        ({**LLAMA_8B, "hidden_act": "gelu", "architectures": ["NobodyKnowsIt"]}, ""),
    ],
)
def test_these_are_refused_nothing(config, flags):
    assert told(config, flags) == []


def test_another_build_of_vllm_is_asked_nothing():
    a, s, gpu = settings({**LLAMA_8B, "hidden_act": "gelu"}, "", "0.33.0")
    assert list(model_tests.refusals(a, s, gpu))
    assert list(model_tests.refusals(a, s, replace(gpu, backend="ROCm"))) == []


def test_one_mistake_is_said_once():
    a, s, gpu = settings(LLAMA_8B, "-tp 5", "0.33.0")
    assert "--tensor-parallel-size" in {r.flag for r in s.refusals}
    assert "--tensor-parallel-size" in {flag for flag, _, _ in told(LLAMA_8B, "-tp 5")}
    assert not any("ends with" in r.needed for r in judge(a, s, gpu).refusals)

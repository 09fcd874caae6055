"""A packed matrix that no kernel reads as it is takes memory of its own while a wide step is multiplied by it."""

import pytest

from tests.plan.models import LLAMA_8B
from tests.plan.test_refused import settings
from vllm_doctor.plan.terms.unpacked import packed_pass

# Gate and up of Llama-8B: 28672 outputs of 4096 inputs. A step of 4096 tokens keeps residual, input and product.
UP, HIDDEN, TOKENS, BYTES = 28672, 4096, 4096, 2
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
MIXTRAL = {
    **LLAMA_8B,
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "torch_dtype": "float16",
}


def taken(stored, flags="", version="0.6.6", card="L4", config=LLAMA_8B):
    asked = {**config, "torch_dtype": "float16", "quantization_config": stored}
    a, s, gpu = settings(asked, f"--max-model-len {TOKENS} {flags}", version, card)
    found = packed_pass(a, s, gpu.capability)
    return None if found is None else found.bytes


@pytest.mark.parametrize(
    ("stored", "version", "card"),
    [(GPTQ, "0.4.1", "L4"), (AWQ, "0.5.2", "L4"), (GPTQ, "0.6.6", "T4"), (AWQ, "0.6.6", "T4")],
)
def test_before_marlin_and_below_ampere_the_whole_matrix_is_made_in_16_bits(stored, version, card):
    assert taken(stored, version=version, card=card) == BYTES * (TOKENS * (2 * HIDDEN + UP) + UP * HIDDEN)


@pytest.mark.parametrize(("stored", "version"), [(GPTQ, "0.4.2"), (AWQ, "0.5.3")])
def test_marlin_unpacks_nothing_unless_the_plain_method_is_asked_for(stored, version):
    assert taken(stored, version=version) is None
    assert taken(stored, f"--quantization {stored['quant_method']}", version=version)


def test_two_ranks_unpack_half_of_the_matrix_each():
    halves = taken(AWQ, "-tp 2", version="0.5.2")
    assert halves == BYTES * (TOKENS * (2 * HIDDEN + UP // 2) + UP // 2 * HIDDEN)


def test_awq_of_02_keeps_eight_parts_of_the_product_side_by_side():
    assert taken(AWQ, version="0.2.7") == BYTES * TOKENS * (2 * HIDDEN + 9 * UP)
    assert taken(AWQ, version="0.3.0") < taken(AWQ, version="0.2.7")


def test_quantized_mixtral_runs_each_expert_on_one_rank_as_a_whole():
    # vLLM issue 2382: 6487 blocks of 1 MiB on each of two A100 of 0.2.7, at half of the card.
    one, two = (taken(AWQ, f"-tp {n}", version="0.2.7", config=MIXTRAL) for n in (1, 2))
    assert one == two == BYTES * TOKENS * (4 * HIDDEN + 10 * UP // 2)


def test_a_plain_checkpoint_and_one_in_floats_are_never_unpacked():
    assert taken({"quant_method": "fp8"}, version="0.6.6") is None

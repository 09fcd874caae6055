"""Methods of quantization that have nothing for a model's experts, each beside what is taken."""

import pytest

from tests.plan.test_refused import EXPERTS, settings
from vllm_doctor.plan.support import judge

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "FP8"}


def told(stored, flags, version, gpu, architecture):
    config = {**EXPERTS, "architectures": [architecture], "torch_dtype": "float16", "quantization_config": stored}
    arch, s, card = settings(config, flags, version, gpu)
    needed = [r.needed for r in judge(arch, s, card).refusals]
    return [one.removeprefix("another method: ") for one in needed if "nothing for the experts" in one]


@pytest.mark.parametrize(
    ("stored", "flags", "version", "gpu", "architecture", "by"),
    [
        (AWQ, "", "0.8.5", "T4", "Qwen3MoeForCausalLM", "awq of 0.8.5"),  # where Marlin stands back
        (AWQ, "", "0.8.5", "A100", "Qwen3MoeForCausalLM", None),
        (AWQ, "--quantization awq", "0.8.5", "A100", "Qwen3MoeForCausalLM", "awq of 0.8.5"),
        (AWQ, "", "0.11.0", "T4", "Qwen3MoeForCausalLM", None),
        (AWQ, "", "0.5.4", "A100", "MixtralForCausalLM", None),  # a class of its own stands in
        (GPTQ, "", "0.5.4", "A100", "Qwen2MoeForCausalLM", "gptq of 0.5.4"),
        (GPTQ, "", "0.8.5", "A100", "Qwen2MoeForCausalLM", None),
        (GPTQ, "", "0.4.1", "A100", "Qwen2MoeForCausalLM", "gptq of 0.4.1"),  # whose plain weights it joins
        (GPTQ, "", "0.9.2", "A100", "DeepseekForCausalLM", "gptq of 0.9.2"),
        (MODELOPT, "", "0.8.5", "H100", "Qwen3MoeForCausalLM", "modelopt of 0.8.5"),
        (MODELOPT, "", "0.11.0", "H100", "Qwen3MoeForCausalLM", None),
        (MODELOPT, "", "0.8.5", "H100", "LlamaForCausalLM", None),
    ],
)
def test_a_method_with_nothing_for_experts_ends_the_start(  # noqa: PLR0917
    stored, flags, version, gpu, architecture, by
):
    expected = [] if by is None else [f"{by} has nothing for the experts of {architecture}"]
    assert told(stored, flags, version, gpu, architecture) == expected

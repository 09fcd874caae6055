"""Does the release have a kernel for the experts' format on this card, where it chooses one without asking the card?"""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.quantization import NVFP4, scheme

# Consumer Blackwell and GB10: they multiply four bits themselves, with machine code of their own.
_TWELVE = 12


def refusals(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """NVFP4 experts on compute capability 12.x, where the compiled kernel is of 10.0 alone and Marlin, which would do,
    stands back because the card multiplies four bits."""
    if gpu is None or gpu.capability is None or int(gpu.capability) != _TWELVE or a.moe is None:
        return
    if not s.does.four_bit_experts_on_ten_alone or s.flashinfer_experts:
        return
    fmt = scheme(a.quantization, s.quantization, s.element, s.gguf)
    layer = min(a.moe.layers, default=0)
    if fmt.choose(f"{a.text_prefix}.layers.{layer}.mlp.experts.0.up_proj", True) == NVFP4 and _in_four_bits(a):
        yield Refusal(
            "quantization_config",
            f"NVFP4 experts on {gpu.name}, compute capability {gpu.capability}",
            f"vLLM 0.13.0 or later, whose kernel of grouped matrices has code for it; that of {s.version} has code for "
            f"10.0 alone",
        )


def _in_four_bits(a: Architecture) -> bool:
    """Are the inputs of the experts rounded to four bits too? What has weights alone in four bits runs on Marlin."""
    config = a.quantization
    if config is None:
        return False
    groups, method = config.section("config_groups"), config.text("quant_method")
    if groups is None or method.startswith("modelopt"):
        return True
    found = [groups.section(key) for key in groups.values]
    return any(group is not None and group.section("input_activations") is not None for group in found)

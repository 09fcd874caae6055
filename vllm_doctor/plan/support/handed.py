"""What a model hands its attention (attention/layer.py extra_impl_args), and the class of the backend does not take: a
TypeError ends the start as the first layer is made."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.knowledge.history import history
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.describe import text_section

_KEY, _BACKEND = "dual_chunk_attention_config", "DUAL_CHUNK_FLASH_ATTN"
# The model types whose classes hand it on (models/qwen2.py, qwen2_moe.py, qwen3.py, qwen3_moe.py).
_HAND_ON = frozenset({"qwen2", "qwen2_moe", "qwen3", "qwen3_moe"})


def refusals(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """Sinks: V0's FlashAttention of 0.10.1 and 0.10.2 has no parameter of that name; nor has it one for chunks of
    Llama 4 in 0.8.3."""
    if s.engine == "V0" and (what := _without_a_parameter(a, s)):
        needed = f"unset, and nothing that V1 leaves to V0: attention of V0 takes no {what} in {s.version}"
        yield Refusal("VLLM_USE_V1", "the V0 engine", needed)
    config = text_section(a.config).values.get(_KEY) if a.config is not None else None
    if not config or a.model_type not in _HAND_ON or not s.does.hands_chunks_to_attention:
        return
    if (s.backend or "").upper() == _BACKEND and s.does.has_dual_chunk_backend:
        return
    without = f"""--hf-overrides '{{"{_KEY}": null}}', without which no backend of {s.version} takes its layers"""
    with_it = f", or VLLM_ATTENTION_BACKEND={_BACKEND}" if s.does.has_dual_chunk_backend else ""
    yield Refusal(_KEY, "given", without + with_it)


def _without_a_parameter(a: Architecture, s: Settings) -> str:
    """What V0's attention has no parameter for, in a release that has the model's code."""
    if history("models", "architectures").exists(a.name, s.version) is False:
        return ""
    if a.model_type == "gpt_oss":
        return "sinks"
    chunked = a.model_type.startswith("llama4") and not s.does.takes_chunked_layers_in_v0
    return "layers in chunks" if chunked else ""

"""What runs a model where the launch leaves it open: the runner, pooling or generating, prefix caching."""

from __future__ import annotations

from vllm_doctor.knowledge.versions import Version
from vllm_doctor.plan.behaviour import behaviour
from vllm_doctor.plan.launch.flags import Flags
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.families import pools_by_name

# The V2 model runner where nothing is asked (config/vllm.py _is_default_v2_model_runner_model and
# DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES, read in every release from 0.22.0 to 0.29.0).
_V2_LISTED = frozenset({"DeepseekV2ForCausalLM", "Qwen2MoeForCausalLM", "GraniteMoeForCausalLM"})
_V2_LISTED_DENSE = frozenset({"Qwen3ForCausalLM", "LlamaForCausalLM", "MistralForCausalLM"})


def on_v2(version: Version, env: dict[str, str], arch: Architecture, quantized: bool) -> bool:
    """Does the second model runner run it, as asked or as the release chooses?"""
    asked = env.get("VLLM_USE_V2_MODEL_RUNNER")
    if asked is not None:
        return asked == "1"
    does = behaviour(version)
    if does.v2_all:
        return True
    if not does.v2_qwen3 or (quantized and not does.v2_listed_experts):
        # Quantized models: the code of 0.24 to 0.28 asks nothing of them, that of 0.22 does.
        return False
    listed = does.v2_listed_experts and arch.name in _V2_LISTED
    if does.v2_dense:
        return not arch.hybrid and (arch.moe is None or listed)
    return listed or arch.name in (_V2_LISTED_DENSE if does.v2_llama else {"Qwen3ForCausalLM"})


def answers_pooled(flags: Flags, arch: Architecture) -> bool:
    """Does it answer with vectors or classes: as asked, else by what the architecture's name ends with (config/model.py
    _SUFFIX_TO_DEFAULTS)?"""
    runner, task = flags.text("runner"), flags.text("task")
    if runner in {"generate", "pooling"}:
        return runner == "pooling"
    if flags.text("convert") not in {None, "auto", "none"}:  # since 0.22; before, it ends the start without --runner
        return True
    if task not in {None, "auto"}:
        return task in {"embed", "embedding", "classify", "score", "reward"}
    return pools_by_name(arch.name)


def caches_prefixes(version: Version, arch: Architecture) -> bool:
    """Prefix caching where nothing is asked: on with V1, for recurrent layers only since 0.28 (engine/arg_utils.py: to
    0.25.1 the model does not support it, in 0.26.0 to 0.27.1 it does and is left out unasked, in 0.28.0 no more)."""
    return not arch.encoder_decoder and (not arch.hybrid or behaviour(version).caches_recurrent_prefixes)

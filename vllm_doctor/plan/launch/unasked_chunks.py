"""Whether V0 cuts long prompts into chunks though nothing asks for it: above a length of 32768, to keep its profile
small, and not with what chunks did not go with then (engine/arg_utils.py create_engine_config and, from 0.8 on,
_set_default_args_v0; read in 0.5.3 to 0.10.2)."""

from __future__ import annotations

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.plan.behaviour import Behaviour
from vllm_doctor.plan.launch.flags import Flags
from vllm_doctor.plan.model.architecture import Architecture

_LONG = 32768


def chunks_unasked(
    flags: Flags, a: Architecture, does: Behaviour, gpu: Card | None, length: int, *, drafts: bool, pooling: bool
) -> bool:
    """Does V0 chunk the prompts of this launch, of which nothing says whether it should?"""
    if length <= _LONG or not does.chunks_long_prompts or drafts:
        return False
    if any(flags.on(name, default=False) for name in ("enable-lora", "enable-prompt-adapter")):
        return False
    if (a.multimodal and does.chunks_no_images) or (a.mla is not None and does.chunks_no_latents):
        return False
    if does.chunks_on_cuda_alone and (pooling or (gpu is not None and gpu.backend != "CUDA")):
        return False
    return not _windowed(flags, a)


def _windowed(flags: Flags, a: Architecture) -> bool:
    """Is every layer's attention to a window? One of layers that differ is taken as full (config.py
    interleaved_sliding_window)."""
    attends = [layer for layer in a.layers if layer.heads]
    return not flags.on("disable-sliding-window", default=False) and all(x.window is not None for x in attends)

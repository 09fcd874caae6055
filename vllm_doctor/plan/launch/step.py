"""How many tokens a step has at most, and the largest batch for which graphs are captured."""

from __future__ import annotations

import re

from vllm_doctor.knowledge.generations import BLACKWELL, THOR
from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.plan.behaviour import behaviour
from vllm_doctor.plan.launch.flags import Flags, whole
from vllm_doctor.plan.model.architecture import Architecture


def largest_capture(  # noqa: PLR0917
    flags: Flags, seqs: int, batched: int, draft: int, version: Version, arch: Architecture, gpu: Card | None
) -> int | None:
    """Largest captured batch, when the launch, the release or the model limits it. gpt-oss raises the limit, whatever
    the number of sequences (model_executor/models/config.py GptOssForCausalLMConfig)."""
    listed = flags.text("cudagraph-capture-sizes") or flags.text("cuda-graph-sizes")
    if listed:
        sizes = [whole("cudagraph-capture-sizes", s) for s in re.split(r"[,\s\[\]]+", listed) if s]
        return max(sizes) if sizes else None
    asked = flags.int("max-cudagraph-capture-size", 0, 0, 10**6)
    if asked:
        return asked
    if arch.model_type == "gpt_oss":
        return min(1024, batched)
    does = behaviour(version)
    if not does.captures_by_sequences:
        return None
    ten = gpu is not None and gpu.capability is not None and BLACKWELL <= gpu.capability < THOR
    most = 1024 if ten and does.captures_more_on_ten else 512
    return min(2 * seqs * (1 + draft if does.captures_whole_drafts else 1), most, batched)


def batched_tokens(  # noqa: PLR0917
    flags: Flags,
    version: Version,
    which: str,
    arch: Architecture,
    length: int,
    seqs: int,
    chunked: bool,
    default: int | None,
) -> int:
    """max_num_batched_tokens as resolved (engine/arg_utils.py, config/scheduler.py)."""
    asked = flags.int("max-num-batched-tokens", 0, 1, 10**9)
    if asked:
        return asked
    does = behaviour(version)
    if which == "V0" or default is None:
        if chunked:
            return 2048 if does.wide_chunks else 512
        floor = 5120 if arch.multimodal and does.multimodal_step_floor else 2048
        return max(length, floor)
    tokens = default if chunked else max(default, length)
    limited = flags.on("language-model-only", default=False) or "limit-mm-per-prompt" in flags.values
    if does.raises_step_to_items and not limited:
        tokens = max(tokens, arch.whole_item)
    return min(tokens, seqs * length) if does.caps_step_by_sequences else tokens

"""What the first engine asks of prompts in chunks and of cached prefixes (config.py SchedulerConfig and CacheConfig,
engine/arg_utils.py create_engine_config: read in 0.5.5 to 0.10.2)."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.knowledge.versions import Engine
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.behaviour import Behaviour
from vllm_doctor.plan.launch.flags import Flags
from vllm_doctor.plan.model.architecture import Architecture


def refusals(
    flags: Flags, a: Architecture, engine: Engine, does: Behaviour, *, chunked: bool, pooling: bool
) -> Iterator[Refusal]:
    """Each thing that ends the start before memory counts."""
    if engine != "V0":
        return
    if pooling and does.pooling_unchunked and flags.on("enable-chunked-prefill", default=False):
        yield Refusal("--enable-chunked-prefill", "set", "no --enable-chunked-prefill: this model makes vectors")
    parts = flags.int("max-num-partial-prefills", 1, -(10**6), 10**6)
    if parts > 1 and not chunked and does.parts_need_chunks:
        yield Refusal("--max-num-partial-prefills", str(parts), "1, or --enable-chunked-prefill beside it")
    windows = bool(a.layers) and all(one.kind == "sliding" for one in a.layers) and not a.multimodal
    asked = flags.on("enable-prefix-caching", default=False)
    if asked and windows and does.windows_keep_no_prefixes and not flags.on("disable-sliding-window", default=False):
        yield Refusal("--enable-prefix-caching", "set", "--disable-sliding-window beside it: each layer has a window")

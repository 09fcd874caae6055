"""In what a model's weights and its KV cache may be kept: as they are stored, or in 8 bits."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from vllm_doctor.knowledge.generations import HOPPER
from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.versions import flag
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.question.planner import Planner


class FormatOptions(msgspec.Struct, frozen=True):
    """The options that make it, under the name that a reader sees."""

    name: str
    weights: str | None = None  # of --quantization
    cache: str | None = None  # of --kv-cache-dtype

    @property
    def options(self) -> dict[str, str]:
        """The options to add to a launch."""
        wanted = {"quantization": self.weights, "kv-cache-dtype": self.cache}
        return {name: value for name, value in wanted.items() if value is not None}

    def plainer(self, other: FormatOptions) -> bool:
        """Does it change less than the other one, and nothing that the other one leaves?"""
        return self.options.items() < other.options.items()


AS_STORED = FormatOptions("as stored")
FP8 = FormatOptions("fp8", weights="fp8")
FP8_CACHE = FormatOptions("fp8 KV cache", cache="fp8")
FP8_BOTH = FormatOptions("fp8 and fp8 KV cache", weights="fp8", cache="fp8")


def formats(planner: Planner) -> Iterator[FormatOptions]:
    """What the release and the checkpoint allow, the plainer first. What the launch says of itself stays."""
    s = planner.settings()
    stored = planner.arch.quantization is None and s.quantization is None and s.gguf is None
    weights = stored and history("models", "quantizations").exists("fp8", planner.version)
    cache = _cache_can_change(planner)
    yield AS_STORED
    if cache:
        yield FP8_CACHE
    if weights:
        yield FP8
    if cache and weights:
        yield FP8_BOTH


def _cache_can_change(planner: Planner) -> bool:
    fact = flag("kv-cache-dtype", planner.version)
    if "kv-cache-dtype" in planner.line.flags or fact is None or not fact.exists:
        return False
    plain, small = planner.predict(), planner.predict({"kv-cache-dtype": "fp8"})
    return plain.pool is not None and small.needed_kv_gib < plain.needed_kv_gib


def computes_fp8_cache(arch: Architecture, gpu: Card | None) -> bool:
    """Does the card read keys and values in 8 bits with its own instructions? On others it costs time, or a kernel
    is missing: FlashMLA's of an 8-bit cache has code from Hopper on."""
    return gpu is not None and gpu.computes_fp8 and (arch.mla is None or (gpu.capability or 0) >= HOPPER)

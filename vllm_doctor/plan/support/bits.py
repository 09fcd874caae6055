"""What the loader of bitsandbytes does not take: ranks that would share a stored matrix, experts, the options of old
releases that must stand together (model_loader/bitsandbytes_loader.py, before 0.9 loader.py; engine/arg_utils.py)."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.knowledge.traits import has_trait, lacks
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture

METHOD = "bitsandbytes"


def refusals(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """One refusal, where the start ends while weights are loaded, or before. A release without the method says so of
    the method alone."""
    stored = a.quantization is not None and a.quantization.text("quant_method").lower() == METHOD
    if s.gguf is not None or not (stored or s.quantization == METHOD) or not s.does.loads_bits:
        return
    if (missing := _unplaced(a, s)) is not None:
        yield missing
        return
    ranks = s.parallel.tp
    if stored and ranks > 1 and s.does.splits_no_stored_bits:
        yield Refusal(
            "--tensor-parallel-size",
            str(ranks),
            f"1: a checkpoint stored in {METHOD} is not split among ranks, only into stages",
        )
    elif not stored and a.mla is None and 0 < a.kv_heads < ranks:
        needed = f"at most {a.kv_heads}: {METHOD} gives each rank an even part of the keys, less than a head"
        yield Refusal("--tensor-parallel-size", str(ranks), needed)
    elif stored and a.moe is not None and a.quantization is not None:
        eight = a.quantization.values.get("load_in_8bit") is True
        if eight and s.does.packs_experts_in_bits:
            yield Refusal("quantization_config", "experts stored in 8 bits", f"4 bits: {METHOD} loads no others")
        elif s.does.loads_no_stored_experts:
            found = f"experts stored in {METHOD}"
            yield Refusal("quantization_config", found, f"experts in 16 bits with --quantization {METHOD}, or 0.10.1")


def _unplaced(a: Architecture, s: Settings) -> Refusal | None:
    """Experts of a class that does not say where they lie, which the loader asks of it."""
    if a.moe is None or any(r.flag == "--quantization" for r in s.refusals) or not s.does.packs_experts_in_bits:
        return None
    if lacks(a.name, "get_expert_mapping", s.version) and has_trait(a.name, "fused_experts", s.version):
        needed = f"another method: vLLM {s.version} has no {METHOD} for the experts of {a.name}"
        return Refusal("--quantization", METHOD, needed)
    return None

"""What a release asks of a launch with recurrent layers. Ranks split the groups of Mamba 2 (layers/mamba/
mamba_mixer2.py). Where prefixes are cached at the ends of blocks (--mamba-cache-mode align, config/vllm.py and
models/config.py) a step holds a block, whose length follows from the model's state."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.terms.pages import specs


def _aligned(a: Architecture, s: Settings) -> bool:
    """Are states kept where a step ends, at the end of a block? Mamba's classes keep those of all blocks where they
    may (SupportsMambaPrefixCaching), and have to be asked."""
    if s.engine != "V1" or a.linear is None or not a.hybrid or not s.prefix_caching or not s.does.aligns_states:
        return False
    every = a.linear.kind in {"mamba1", "mamba2"} and (s.does.keeps_states_of_all_blocks or s.state_mode == "all")
    return s.state_mode == "align" or not every


def _split(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """One refusal, for groups that share a state's projection and do not divide by the ranks; one group is whole on
    each."""
    r, ranks = a.linear, s.parallel.tp
    if r is None or r.kind != "mamba2" or ranks == 1 or any(one.flag == "--tensor-parallel-size" for one in s.refusals):
        return
    quantized = (a.quantization is not None or s.quantization is not None) and s.gguf is None
    found = str(ranks)
    if r.key_heads > 1 and r.key_heads % ranks:
        yield Refusal("--tensor-parallel-size", found, f"a divisor of {r.key_heads}, the groups of Mamba 2")
    elif r.value_heads % ranks:
        yield Refusal("--tensor-parallel-size", found, f"a divisor of {r.value_heads}, the heads of Mamba 2")
    elif quantized and (s.does.splits_no_quantized_mamba or (r.key_heads % ranks and s.does.splits_quantized_groups)):
        yield Refusal("--tensor-parallel-size", found, f"1: {s.version} does not split quantized layers of Mamba 2")


def refusals(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """Each thing that ends the start before memory counts."""
    yield from _split(a, s)
    if not _aligned(a, s):
        return
    if s.does.aligns_chunked_alone and not s.chunked:
        yield Refusal("--no-enable-chunked-prefill", "set", "chunked prefill, or --no-enable-prefix-caching")
    if a.multimodal and s.whole_items:
        yield Refusal("--disable-chunked-mm-input", "set", "none of it, or --no-enable-prefix-caching")
    block = next((one.block for one in specs(a, s, gpu, range(len(a.layers))) if one.kind == "mamba"), 0)
    if s.does.fills_step_with_blocks and block > s.batched:
        why = f"which a block of {a.name or a.model_type} has with prefix caching"
        instead = f"at least {block} tokens, {why}; or --no-enable-prefix-caching"
        yield Refusal("--max-num-batched-tokens", str(s.batched), instead)

"""From an architecture and a launch to the cache pages of one rank, and to the pool that the engine makes of them."""

from __future__ import annotations

from math import ceil

from msgspec.structs import replace

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.plan.launch.parallel import stage_layers
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture, Attention, Linear
from vllm_doctor.plan.model.families import ENCODER_ONLY
from vllm_doctor.plan.terms.kv import Kind, Pool, Spec, mla_token_bytes, pool, rules_for, token_bytes, v0_rules


def block_size(a: Architecture, s: Settings, gpu: Card | None) -> int:
    """Tokens of a block: what the user asks, else 16, else what the attention backend prefers
    (attention/backends/*)."""
    if s.block:
        return s.block
    if s.engine == "V0":
        return 16
    if a.mla is not None:
        if s.backend in {"FLASHMLA", "FLASHINFER_MLA", "FLASHMLA_SPARSE"} or a.mla.indexer_heads:
            return 64
        if s.backend == "CUTLASS_MLA":
            return 128
        if gpu is not None and (gpu.capability or 0.0) >= 10.0:
            return 64 if s.does.mla_block_64 else 128
    return 16


def _state_bytes(r: Linear, s: Settings) -> int:
    """Bytes of one recurrent state: convolution window and state matrix (mamba/mamba_utils.py)."""
    tp, e = s.parallel.tp, s.element
    wide = 4 if r.state_float32 or s.mamba_dtype == "float32" else e
    keys, values = r.key_heads * r.key_dim, r.value_heads * r.value_dim
    if r.kind == "gdn":
        return (2 * keys + values) // tp * (
            r.conv - 1 + s.draft_tokens
        ) * e + r.value_heads // tp * r.value_dim * r.key_dim * wide
    if r.kind == "conv":
        return values // tp * (r.conv - 1) * e
    if r.kind == "mamba2":
        return (values + 2 * keys) // tp * (r.conv - 1) * e + values // tp * r.key_dim * wide
    return values // tp * (r.conv - 1) * e + values // tp * r.key_dim * wide


def _token(layer: Attention, a: Architecture, s: Settings) -> int:
    if layer.kind == "mla" and a.mla is not None:
        return mla_token_bytes(a.mla.kv_rank + a.mla.rope, s.kv_dtype, s.element)
    heads = max(1, layer.kv_heads // s.parallel.tp)
    return token_bytes(heads, layer.head_dim, layer.value_dim, s.kv_dtype, s.element)


def specs(a: Architecture, s: Settings, gpu: Card | None, layers: range) -> list[Spec]:
    """The cache of each of these layers, in order; layers that keep none are left out."""
    if a.model_type in ENCODER_ONLY:
        return []
    block = block_size(a, s, gpu)
    attention = [
        _token(a.layers[i], a, s)
        for i in range(len(a.layers))
        if a.layers[i].kind not in {"linear", "mamba", "conv", "none"}
    ]
    state = _state_bytes(a.linear, s) if a.linear is not None and a.hybrid else 0
    padded: int | None = None
    if state and attention:
        # The attention page is raised to the state's, in steps of the kernel block (platforms/interface.py
        # _align_hybrid_block_size).
        one = max(attention)
        step = block
        if not s.does.state_page_by_kernel_block:
            step = 16
        block = max(block, step * ceil(state / (step * one)))
        padded = block * one
    out: list[Spec] = []
    for i in layers:
        layer = a.layers[i]
        if layer.kind in {"linear", "mamba", "conv"}:
            if s.engine == "V1":
                out.append(Spec("mamba", block, state_bytes=state, spec_blocks=s.draft_tokens, padded=padded))
        elif layer.kind != "none" and not layer.shares_kv:
            kind: Kind = (
                "mla"
                if layer.kind == "mla"
                else "sliding"
                if layer.kind == "sliding"
                else "chunked"
                if layer.kind == "chunked"
                else "full"
            )
            out.append(Spec(kind, block, _token(layer, a, s), layer.window or 0))
    if a.encoder_context:
        # Attention to the encoder's output: a cache of its own, as long as the encoder's input.
        out += [replace(x, kind="cross", window=a.encoder_context) for x in out if x.kind == "full"]
    if s.speculative in {"eagle", "eagle3", "mtp"} and layers.stop == len(a.layers) and out:
        # The one-layer draft keeps a cache of its own in the same pool, in full attention.
        last = next((x for x in reversed(out) if x.kind in {"full", "mla"}), None)
        if last is not None:
            out.append(replace(last))
    return out


def pool_of(a: Architecture, s: Settings, gpu: Card | None, stage: int | None = 0) -> Pool | None:
    """The pool of one pipeline stage, or (None) of all layers together. None for a model that keeps no cache."""
    parts = stage_layers(len(a.layers), s.parallel.pp)
    start = sum(parts[:stage]) if stage is not None else 0
    stop = start + parts[stage] if stage is not None else len(a.layers)
    listed = specs(a, s, gpu, range(start, stop))
    if s.engine == "V0":
        return pool(listed, v0_rules())
    rules = rules_for(
        s.version,
        max_batched_tokens=s.batched,
        pp=s.parallel.pp,
        async_scheduling=s.async_scheduling,
        v2_runner=s.v2_runner,
        hybrid=s.hybrid_manager,
        context_parallel=s.context_parallel,
        prefix_caching=s.prefix_caching,
    )
    return pool(listed, rules)

"""From an architecture and a launch to the cache pages of one rank, and to the pool that the engine makes of them."""

from __future__ import annotations

from math import ceil, lcm

from msgspec.structs import replace

from vllm_doctor.knowledge.generations import BLACKWELL, HOPPER, RTX_BLACKWELL, THOR
from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.plan.behaviour import Behaviour
from vllm_doctor.plan.launch.cache_types import TURBOQUANT, Unpacked
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import RECURRENT, Architecture, Attention, Linear, Mla
from vllm_doctor.plan.model.families import ENCODER_ONLY
from vllm_doctor.plan.terms.compressed_cache import packed_pool
from vllm_doctor.plan.terms.kv import CacheKind, Pool, Spec, mla_token_bytes, pool, rules_for, token_bytes, v0_rules


def block_size(a: Architecture, s: Settings, gpu: Card | None) -> int:
    """Tokens of a block: what the user asks, else 16, else what the attention backend prefers
    (attention/backends/*)."""
    if s.block:
        return s.block
    if s.engine == "V0":
        return 16
    if a.mla is not None and s.latents:
        if s.backend in {"FLASHMLA", "FLASHINFER_MLA", "FLASHMLA_SPARSE"} or a.mla.indexer_top:
            return 64
        if s.backend == "CUTLASS_MLA":
            return 128
        if gpu is not None and (gpu.capability or 0.0) >= BLACKWELL:
            return 64 if s.does.mla_block_64 else 128
    return 16


def _state_width(a: Architecture, s: Settings, r: Linear, window: int) -> int:
    """Bytes of a value of the state: as asked, as the model's config has it, else as wide as its window's
    (mamba_utils.py, models/config.py)."""
    named = s.mamba_dtype
    if named == "auto" and r.state_float32:
        named = "float32"
    if named == "auto" and a.model_type == "nemotron_h" and s.does.nemotron_state_as_named:
        named = r.state_type or ("float32" if s.does.nemotron_state_float32 else "float16")
    return window if named == "auto" else 4 if named == "float32" else 2


def state_bytes(a: Architecture, s: Settings, r: Linear) -> int:
    """Bytes of one recurrent state: convolution window and state matrix (mamba/mamba_utils.py)."""
    tp = s.parallel.tp
    e = 4 if s.window_dtype == "float32" else s.element
    wide = _state_width(a, s, r, e)
    drafts = {
        "gdn": True,
        "conv": s.does.drafts_widen_convolutions,
        "mamba2": s.does.drafts_widen_mamba2,
        "mamba1": False,
    }[r.kind]
    steps = r.conv - 1 + (s.draft_tokens if drafts else 0)
    # Ranks that share a group of Mamba 2 each have a copy of it.
    groups = r.key_heads if r.kind != "mamba2" or r.key_heads % tp == 0 else tp
    keys, values = groups * r.key_dim, r.value_heads * r.value_dim
    if r.kind == "gdn":
        return (2 * keys + values) // tp * steps * e + r.value_heads // tp * r.value_dim * r.key_dim * wide
    if r.kind == "conv":
        return values // tp * steps * e
    if r.kind == "mamba2":
        return (values + 2 * keys) // tp * steps * e + values // tp * r.key_dim * wide
    return values // tp * steps * e + values // tp * r.key_dim * wide


# FlashInfer's prefill of a gated delta net leaves states every 64 tokens (v1/attention/backends/gdn_attn.py).
_CHECKPOINT = 64


def _checkpoints(a: Architecture, s: Settings, gpu: Card | None) -> int:
    """How many tokens lie between the states that a prefill leaves behind for prefix caching; 0 where it leaves none.
    A delta net does where FlashInfer prefills it: on Hopper, and on Blackwell with keys of 128
    (_resolve_gdn_prefill_backend); its kernels know no other kind of linear attention."""
    r = a.linear
    if r is None or not s.prefix_caching:
        return 0
    if r.kind == "mamba2":
        return 1 if s.does.checkpoints_mamba2 else 0
    capability = gpu.capability if gpu is not None and gpu.capability is not None else 0.0
    fits = HOPPER <= capability < BLACKWELL or (
        r.key_dim == 128 and (BLACKWELL <= capability < THOR or capability >= RTX_BLACKWELL)
    )
    delta = r.kind == "gdn" and a.model_type.startswith(("qwen3_next", "qwen3_5"))
    return _CHECKPOINT if delta and fits and s.does.checkpoints_delta_nets else 0


def _step(a: Architecture, s: Settings, block: int, checkpoint: int) -> int:
    """Tokens of which the block of a hybrid is a multiple."""
    if a.mla is not None:
        least = 128 if s.does.aligns_latent_hybrids else 16
        if not s.does.state_page_by_kernel_block:
            return 128 if s.backend == "CUTLASS_MLA" else 64
        return lcm(max(block, least), checkpoint or 1)
    return lcm(block if s.does.state_page_by_kernel_block else 16, checkpoint or 1)


# Values of an indexer's key that share a scale of 4 bytes (deepseek_v2.py Indexer quant_block_size).
_INDEXED = 128


def _sparse_dtype(a: Architecture, s: Settings, gpu: Card | None) -> str:
    """The layout of sparse attention's latents: packed where fp8 is asked for on Hopper and on consumer Blackwell
    (mla_attention.py), to 0.17 on every card, in 0.11.0 also where nothing is; bfloat16 is the model's own
    (models/config.py)."""
    asked = {"bfloat16": "auto"}.get(s.kv_dtype, s.kv_dtype)
    capability = gpu.capability if gpu is not None and gpu.capability is not None else HOPPER
    data_centre = BLACKWELL <= capability < RTX_BLACKWELL
    if asked == "auto" and s.kv_dtype == "auto" and s.does.packs_sparse_latents:
        return "fp8_ds_mla"
    if asked == "auto" and data_centre and a.model_type == "glm_moe_dsa" and s.does.glm_sparse_in_fp8:
        return "fp8"
    if asked == "auto" and capability >= RTX_BLACKWELL:
        return "fp8_ds_mla"
    packed = s.does.packs_asked_latents or not data_centre
    return "fp8_ds_mla" if asked in {"fp8", "fp8_e4m3"} and packed else asked


# Bytes on a multiple of which a token's latents lie (utils.py align_to_256bytes).
_ALIGNED = 256


def _token(layer: Attention, a: Architecture, s: Settings, gpu: Card | None) -> int:
    if layer.kind == "mla" and a.mla is not None and not s.latents:
        # Each head's keys, and its values padded to their width (models/deepseek_v2.py DeepseekV2Attention).
        width = 256 if s.does.pads_latent_heads_to_256 else a.mla.nope + a.mla.rope
        return token_bytes(max(1, layer.heads // s.parallel.tp), width, width, s.kv_dtype, s.element)
    if layer.kind == "mla" and a.mla is not None:
        dtype = _sparse_dtype(a, s, gpu) if a.mla.indexer_top else s.kv_dtype
        latent = a.mla.kv_rank + a.mla.rope
        if s.aligned_latents:
            # By the width of the model's type, whatever the cache's (worker/cache_engine.py get_cache_block_size).
            latent = ceil(latent * s.element / _ALIGNED) * _ALIGNED // s.element
        return mla_token_bytes(latent, dtype, s.element)
    heads = max(1, layer.kv_heads // s.parallel.tp)
    return token_bytes(heads, layer.head_dim, layer.value_dim, s.kv_dtype, s.element)


def has_indexer(layer: Attention, mla: Mla, does: Behaviour) -> bool:
    """Has it an indexer, whose choice others may share?"""
    return mla.indexer_top > 0 and (layer.indexed or not does.shares_chosen_tokens)


def _keeps_type(layer: Attention, index: int, s: Settings) -> bool:
    """Is its cache of the model's type, whatever is asked for (layers/attention/attention.py, mla_attention.py)?"""
    asked = layer.kind != "mla" or s.does.latents_keep_type_by_number
    return asked and s.unpacked.holds(index, window=layer.window is not None)


_NO_TOKENS = RECURRENT | {"none"}


def specs(a: Architecture, s: Settings, gpu: Card | None, layers: range) -> list[Spec]:
    """The cache of each of these layers, in order; layers that keep none are left out."""
    if a.model_type in ENCODER_ONLY:
        return []
    block = block_size(a, s, gpu)
    keeping = [(layer, _keeps_type(layer, i, s)) for i, layer in enumerate(a.layers)]
    typed = {False: s, True: replace(s, kv_dtype="auto")}
    alike = {
        (layer, kept): _token(layer, a, typed[kept], gpu)
        for layer, kept in dict.fromkeys(keeping)
        if layer.kind not in _NO_TOKENS
    }
    state = state_bytes(a, s, a.linear) if a.linear is not None and a.hybrid else 0
    checkpoint = _checkpoints(a, s, gpu)
    padded: int | None = None
    if state and alike:
        # The attention page is raised to the state's, in steps of the kernel block (platforms/interface.py
        # _align_hybrid_block_size).
        one = lcm(*alike.values()) if s.kv_dtype in TURBOQUANT else max(alike.values())
        step = _step(a, s, block, checkpoint)
        block = max(block, step * ceil(state / (step * one)))
        padded = block * one
    out: list[Spec] = []
    for i in layers:
        layer = a.layers[i]
        if layer.kind in RECURRENT:
            if s.engine == "V1":
                kept = s.draft_tokens + (1 if checkpoint else 0)
                out.append(Spec("mamba", block, state_bytes=state, spec_blocks=kept, padded=padded))
        elif layer.kind != "none" and not layer.shares_kv:
            kind: CacheKind = (
                "mla"
                if layer.kind == "mla" and s.latents
                else "sliding"
                if layer.kind == "sliding"
                else "chunked"
                if layer.kind == "chunked"
                else "full"
            )
            heads = max(1, layer.kv_heads // s.parallel.tp) if kind != "mla" else 0
            out.append(Spec(kind, block, alike[keeping[i]], layer.window or 0, heads=heads))
            if a.mla is not None and has_indexer(layer, a.mla, s.does):
                # The indexer's keys: a byte a value, and the scales (deepseek_v2.py DeepseekV32IndexerCache).
                out.append(Spec("mla", block, a.mla.indexer_dim + a.mla.indexer_dim // _INDEXED * 4))
    if a.encoder_context:
        # Attention to the encoder's output: a cache of its own, as long as a step (config/scheduler.py
        # max_num_encoder_input_tokens).
        out += [replace(x, kind="cross", window=s.batched) for x in out if x.kind == "full"]
    if layers.stop == len(a.layers):
        out += _of_drafter(a, s, gpu, out, block)
    return out


def _of_drafter(a: Architecture, s: Settings, gpu: Card | None, model: list[Spec], block: int) -> list[Spec]:
    """What a drafter keeps beside the model's own layers, on the last stage."""
    found: list[Spec] = []
    # Its layers are counted on from the model's, beyond all that keep their type by number.
    alone = replace(
        s, draft=None, speculative=None, draft_tokens=0, block=block, unpacked=Unpacked(windows=s.unpacked.windows)
    )
    if s.draft is None and s.speculative in {"eagle", "eagle3", "mtp"} and model:
        # The one-layer draft keeps a cache of its own in the same pool, in full attention; so does each layer of
        # multi-token prediction, which has an indexer whatever the model's last layer has (deepseek_v2.py).
        like = next((x for x in reversed(a.layers) if x.kind in {"full", "mla"} and not x.shares_kv), None)
        if like is not None and like.kind == "full" and s.speculative != "mtp":
            # EAGLE's is a layer of Llama's: with the heads of the model's first one, whatever its last one has.
            like = replace(next(x for x in a.layers if x.heads), kind="full", window=0, shares_kv=False)
        if like is not None:
            count = max(1, a.mtp_layers) if s.speculative == "mtp" else 1
            each = replace(like, indexed=a.mla is not None and a.mla.indexer_top > 0)
            found += specs(replace(a, layers=(each,) * count, encoder_context=0), alone, gpu, range(count))
    if s.draft is not None:
        # A drafter that is a separate model keeps the keys and values of each of its layers there.
        cached = s.draft.layers if s.speculative != "mtp" else s.draft.layers[-1:] * s.draft.mtp_layers
        if s.speculative == "dflash" and s.does.dflash_in_own_type:
            alone = replace(alone, kv_dtype="auto")
        found += specs(replace(s.draft, layers=cached), alone, gpu, range(len(cached)))
    return found


def pool_of(a: Architecture, s: Settings, gpu: Card | None, stage: int | None = 0) -> Pool | None:
    """The pool of one pipeline stage, or (None) of all layers together. None for a model that keeps no cache."""
    parts = s.parallel.stages(len(a.layers))
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
        context_parallel=s.context_parallel // (1 if s.does.prefill_ranks_share_cache else s.prefill_parallel),
        prefix_caching=s.prefix_caching,
    )
    packed = packed_pool(a, a.compressed, s, range(start, stop), rules) if a.compressed is not None and listed else None
    return packed or pool(listed, rules)

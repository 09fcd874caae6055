"""From config.json to the attention of one layer: its heads, its latent ranks, its indexer."""

from vllm_doctor.plan.model.architecture import RECURRENT, Attention, Compressed, LayerKind, Mla
from vllm_doctor.plan.model.config_json import Section


def latent_attention(text: Section) -> Mla | None:
    """The ranks and widths of latent attention (MLA), with its indexer; None for a model without."""
    if not text.has("kv_lora_rank") or not text.has("qk_rope_head_dim"):
        return None
    return Mla(
        kv_rank=text.whole("kv_lora_rank", high=65_536),
        q_rank=text.whole("q_lora_rank", high=65_536) if text.has("q_lora_rank") else None,
        rope=text.whole("qk_rope_head_dim", low=0, high=4096),
        nope=text.whole("qk_nope_head_dim", high=4096, default=128),
        value=text.whole("v_head_dim", high=4096, default=128),
        indexer_heads=text.whole("index_n_heads", low=0, high=4096, default=0),
        indexer_dim=text.whole("index_head_dim", low=0, high=4096, default=0),
        indexer_top=text.whole("index_topk", low=0, high=1_000_000, default=0),
    )


def compressed_attention(text: Section, model_type: str) -> Compressed | None:
    """The ranks and ratios of DeepSeek V4 (models/deepseek_v4/attention.py); None for another model."""
    if model_type != "deepseek_v4" or not text.has("compress_ratios") or not text.has("o_lora_rank"):
        return None
    return Compressed(
        q_rank=text.whole("q_lora_rank", high=65_536),
        out_rank=text.whole("o_lora_rank", high=65_536),
        out_groups=text.whole("o_groups", high=4096, default=1),
        ratios=text.ints("compress_ratios", low=0, high=65_536),
        indexer_heads=text.whole("index_n_heads", low=0, high=4096, default=0),
        indexer_dim=text.whole("index_head_dim", low=0, high=4096, default=0),
        indexer_top=text.whole("index_topk", low=0, high=1_000_000, default=0),
        streams=text.whole("hc_mult", low=0, high=64, default=0),
        hashed=text.whole("num_hash_layers", low=0, high=2000, default=0),
        rope=text.whole("qk_rope_head_dim", low=0, high=4096, default=64),
        window=text.whole("sliding_window", high=1_000_000, default=128),
    )


def _indexed(text: Section, mla: Mla | None, index: int) -> bool:
    """Has this layer an indexer of its own? Layers may use the choice of one before them (deepseek_v2.py,
    index_topk_pattern or index_topk_freq)."""
    if mla is None or not mla.indexer_top:
        return False
    pattern = text.text("index_topk_pattern")
    if pattern:
        return not (index < len(pattern) and pattern[index] == "S")
    every = text.whole("index_topk_freq", low=1, high=10_000, default=1)
    return max(index - text.whole("index_skip_topk_offset", low=0, high=10_000, default=2) + 1, 0) % every == 0


def attention_of(  # noqa: PLR0917
    text: Section,
    kind: LayerKind,
    window: int | None,
    heads: int,
    kv_heads: int,
    head_dim: int,
    mla: Mla | None,
    index: int,
    count: int,
) -> Attention:
    """What layer `index` of `count` attends with: nothing where a mixer stands in its place."""
    if kind in RECURRENT or kind == "none":
        return Attention(kind, 0, 0, 0, 0)
    if mla is not None and kind == "full":
        return Attention("mla", heads, 1, mla.kv_rank + mla.rope, 0, indexed=_indexed(text, mla, index))
    shared = text.whole("num_kv_shared_layers", low=0, high=count, default=0)
    if kind == "full" and text.has("global_head_dim"):
        same = text.values.get("attention_k_eq_v") is True
        return Attention(
            kind,
            heads,
            text.whole("num_global_key_value_heads", high=16_384, default=kv_heads) if same else kv_heads,
            (wide := text.whole("global_head_dim", high=8192)),
            wide,
            window,
            index >= count - shared,
            same,
        )
    value_dim = text.whole("v_head_dim", high=8192, default=head_dim) if mla is None else head_dim
    return Attention(kind, heads, kv_heads, head_dim, value_dim, window, index >= count - shared)

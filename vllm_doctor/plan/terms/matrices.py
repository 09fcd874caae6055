"""The matrices of a layer as one rank holds them, split as vLLM's parallel layers split them.

Sources: model_executor/layers/linear.py (column, row, QKV with replicated KV heads), vocab_parallel_embedding.py
(vocabulary padded to 64), fused_moe/layer.py (experts), mla_attention.py (absorbed up-projections kept beside
kv_b_proj).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import msgspec

from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.model.architecture import RECURRENT, Architecture, Attention, Compressed
from vllm_doctor.plan.model.families import ATTENTION_NAMES, BOTH_AT_ONCE, MLP_NAMES


class Matrix(msgspec.Struct, frozen=True):
    """One weight of a layer: name in the checkpoint, shape on this rank, how many times. Matrices of one `tensor` are
    fused by vLLM into one allocation (qkv_proj, gate_up_proj); a `vector` keeps the model dtype."""

    name: str
    out: float
    inner: float
    count: float = 1
    expert: bool = False
    vector: bool = False
    tensor: str = ""


def _kv(heads: int, tp: int) -> int:
    return max(1, heads // tp)


def _attention(a: Architecture, layer: Attention, p: str, tp: int, index: int) -> Iterator[Matrix]:
    if a.compressed is not None:
        yield from _compressed(a, a.compressed, layer, p, tp, index)
        return
    if layer.kind == "mla" and a.mla is not None:
        yield from _mla(a, p, tp, indexed=layer.indexed)
        return
    p = f"{p}.{ATTENTION_NAMES.get(a.model_type, 'self_attn')}"
    q = layer.heads * layer.head_dim // tp
    k = _kv(layer.kv_heads, tp) * layer.head_dim
    v = _kv(layer.kv_heads, tp) * layer.value_dim
    yield Matrix(f"{p}.q_proj", q * (2 if a.output_gate else 1), a.hidden, tensor="qkv")
    if not (layer.shares_kv and a.shares_weights):
        yield Matrix(f"{p}.k_proj", k, a.hidden, tensor="qkv")
        yield Matrix(f"{p}.v_proj", v, a.hidden, tensor="qkv")
    yield Matrix(f"{p}.o_proj", a.hidden, layer.heads * layer.value_dim // tp)
    if a.qkv_bias:
        yield Matrix("bias", q + k + v, 1, vector=True)
    if a.out_bias:
        yield Matrix("bias", a.hidden, 1, vector=True)
    if a.qk_norm:
        yield Matrix("norm", 2 * layer.head_dim, 1, vector=True)


# Tokens of which one is made where an indexer chooses among them, and the states overlap (DeepseekCompressor).
_INDEXED_RATIO = 4


def _compressed(  # noqa: PLR0917
    a: Architecture, c: Compressed, layer: Attention, p: str, tp: int, index: int
) -> Iterator[Matrix]:
    """Attention of DeepSeek V4, its compressors and its mixing of streams (models/deepseek_v4/attention.py,
    compressor.py, nvidia/model.py; the same in 0.20.0 to 0.29.0)."""
    heads, p = layer.heads // tp, f"{p}.attn"
    yield Matrix(f"{p}.wqa_wkv", c.q_rank + layer.head_dim, a.hidden)  # on every rank whole
    yield Matrix(f"{p}.wq_b", heads * layer.head_dim, c.q_rank)
    yield Matrix(f"{p}.wo_a", c.out_groups * c.out_rank / tp, layer.heads * layer.head_dim / c.out_groups)
    yield Matrix(f"{p}.wo_b", a.hidden, c.out_groups * c.out_rank / tp)
    ratio = c.ratios[index] if index < len(c.ratios) else 0
    overlap = 2 if ratio == _INDEXED_RATIO else 1
    if ratio > 1:
        yield Matrix("compressor", 2 * overlap * layer.head_dim, a.hidden, vector=True)
        yield Matrix("positions, 4 bytes", overlap * layer.head_dim * ratio, 2, vector=True)
    if ratio == _INDEXED_RATIO:
        yield Matrix(f"{p}.indexer.wq_b", c.indexer_heads * c.indexer_dim, c.q_rank)
        yield Matrix("indexer", c.indexer_heads + 2 * overlap * c.indexer_dim, a.hidden, vector=True)
    mixed = (2 + c.streams) * c.streams
    yield Matrix("streams, 4 bytes", 2 * mixed, 2 * c.streams * a.hidden, vector=True)
    if index < c.hashed and a.moe is not None:
        yield Matrix("experts by word, 4 bytes", a.vocab, 2 * a.moe.top_k, vector=True)


def _mla(a: Architecture, p: str, tp: int, *, indexed: bool) -> Iterator[Matrix]:
    m = a.mla
    if m is None:
        return
    heads = a.heads // tp
    if m.q_rank:
        yield Matrix(f"{p}.self_attn.q_a_proj", m.q_rank, a.hidden)
        yield Matrix(f"{p}.self_attn.q_b_proj", heads * (m.nope + m.rope), m.q_rank)
    else:
        yield Matrix(f"{p}.self_attn.q_proj", heads * (m.nope + m.rope), a.hidden)
    yield Matrix(f"{p}.self_attn.kv_a_proj_with_mqa", m.kv_rank + m.rope, a.hidden)
    yield Matrix(f"{p}.self_attn.kv_b_proj", heads * (m.nope + m.value), m.kv_rank)
    # process_weights_after_loading keeps W_UK_T and W_UV in the model dtype beside kv_b_proj.
    yield Matrix("absorbed", heads * (m.nope + m.value), m.kv_rank, vector=True)
    yield Matrix(f"{p}.self_attn.o_proj", a.hidden, heads * m.value)
    if indexed:
        # On every rank whole; keys and weights are one matrix in the model dtype (deepseek_v2.py Indexer).
        yield Matrix(f"{p}.self_attn.indexer.wq_b", m.indexer_heads * m.indexer_dim, m.q_rank or a.hidden)
        yield Matrix("indexer", m.indexer_dim + m.indexer_heads, a.hidden, vector=True)


def _recurrent(a: Architecture, p: str, tp: int) -> Iterator[Matrix]:
    r = a.linear
    if r is None:
        return
    keys, values = r.key_heads * r.key_dim // tp, r.value_heads * r.value_dim // tp
    if r.kind == "gdn":
        yield Matrix(f"{p}.linear_attn.in_proj_qkv", 2 * keys + values, a.hidden, tensor="in")
        yield Matrix(f"{p}.linear_attn.in_proj_z", values, a.hidden, tensor="in")
        yield Matrix(f"{p}.linear_attn.in_proj_a", r.value_heads // tp, a.hidden)
        yield Matrix(f"{p}.linear_attn.in_proj_b", r.value_heads // tp, a.hidden)
        yield Matrix(f"{p}.linear_attn.out_proj", a.hidden, values)
        yield Matrix("conv", (2 * keys + values) * r.conv, 1, vector=True)
        return
    if r.kind == "conv":
        yield Matrix(f"{p}.conv.in_proj", 3 * a.hidden / tp, a.hidden)
        yield Matrix(f"{p}.conv.out_proj", a.hidden, a.hidden / tp)
        return
    if r.kind == "mamba1":
        yield Matrix(f"{p}.mixer.in_proj", 2 * values, a.hidden)
        yield Matrix(f"{p}.mixer.x_proj", r.step_rank + 2 * r.key_dim, values)
        yield Matrix(f"{p}.mixer.dt_proj", values, r.step_rank)
        yield Matrix(f"{p}.mixer.out_proj", a.hidden, values)
        yield Matrix("conv", values * r.conv, 1, vector=True)
        yield Matrix("A, D", values * (r.key_dim + 1), 2, vector=True)  # in 4 bytes
        return
    # Ranks that share a group each have a copy of it (mamba_mixer2.py extra_groups_for_head_shards).
    keys = keys if r.key_heads % tp == 0 else r.key_dim
    projected = 2 * values + 2 * keys + r.value_heads // tp
    yield Matrix(f"{p}.mixer.in_proj", projected, a.hidden)
    yield Matrix(f"{p}.mixer.out_proj", a.hidden, values)
    yield Matrix("conv", (values + 2 * keys) * r.conv, 1, vector=True)


def _names(a: Architecture, p: str) -> tuple[str, str]:
    """What the part behind attention of layer `p` is called: dense, with experts."""
    dense, sparse = MLP_NAMES.get(a.model_type, ("mlp", "mlp"))
    return f"{p}.{dense}", f"{p}.{sparse}"


def first_expert(a: Architecture, part: str = "up_proj") -> str:
    """A matrix of the first expert there is, by its name: what format experts have is asked of it."""
    layer = min(a.moe.layers, default=0) if a.moe is not None else 0
    return f"{_names(a, f'{a.text_prefix}.layers.{layer}')[1]}.experts.0.{part}"


def feed_forward(a: Architecture, index: int, p: str, par: Parallel) -> Iterator[Matrix]:
    """The matrices of one layer's MLP or experts, as one rank holds them (fused_moe/layer.py)."""
    moe = a.moe if a.moe is not None and index in a.moe.layers else None
    dense, sparse = _names(a, p)
    if moe is None:
        if a.width:
            times = 2 if a.double_wide and a.layers[index].shares_kv else 1
            yield from _mlp(a, dense, times * a.width / par.tp)
        return
    held = par.held(moe.experts)
    wide, inner = moe.width / par.width_split, moe.inputs(a.hidden)
    # Where the MLP has no gate, the experts have none either (fused_moe/layer.py is_act_and_mul).
    for part in ("gate_proj", "up_proj") if a.gated_mlp else ("up_proj",):
        yield Matrix(f"{sparse}.experts.0.{part}", wide, inner, held, expert=True, tensor="w13")
    yield Matrix(f"{sparse}.experts.0.down_proj", inner, wide, held, expert=True)
    yield Matrix(f"{sparse}.gate", moe.experts, a.hidden, vector=True)
    if moe.latent:
        # On each rank whole, but the first of them in 0.13, which 0.14 changed (nemotron_h.py).
        yield Matrix(f"{sparse}.fc1_latent_proj", moe.latent, a.hidden)
        yield Matrix(f"{sparse}.fc2_latent_proj", a.hidden, moe.latent)
    if moe.router_bias:
        yield Matrix("bias", moe.experts, 1, vector=True)
    if moe.beside_mlp:
        yield from _mlp(a, dense, a.width / par.tp)
    if moe.shared_width:
        one = moe.shared_gate or a.model_type.startswith("llama4")
        yield from _mlp(a, f"{sparse}.shared_expert" + ("" if one else "s"), moe.shared_width / par.shared_split)
    if moe.shared_gate:
        yield Matrix("gate", a.hidden, 1, vector=True)
    if a.model_type == "gpt_oss":
        yield Matrix("bias", held * (2 * wide + a.hidden), 1, vector=True)


def _mlp(a: Architecture, p: str, width: float) -> Iterator[Matrix]:
    if a.gated_mlp:
        yield Matrix(f"{p}.gate_proj", width, a.hidden, tensor=f"{p}.gate_up")
    yield Matrix(f"{p}.up_proj", width, a.hidden, tensor=f"{p}.gate_up")
    yield Matrix(f"{p}.down_proj", a.hidden, width)


def layer_matrices(a: Architecture, index: int, par: Parallel, prefix: str) -> Iterator[Matrix]:
    """The matrices of one layer as one rank holds them, under the names of the checkpoint."""
    p, layer = f"{prefix}.{index}", a.layers[index]
    if layer.kind in RECURRENT:
        yield from _recurrent(a, p, par.tp)
        if a.model_type in BOTH_AT_ONCE:
            return
    elif layer.kind != "none":
        yield from _attention(a, layer, p, par.tp, index)
    if a.model_type != "nemotron_h" or layer.kind == "none":
        yield from feed_forward(a, index, p, par)
    yield Matrix("norm", a.norms_per_layer * a.hidden, 1, vector=True)


def padded_vocab(vocab: int, tp: int) -> int:
    """Rows of the embedding over all ranks: padded to 64, then to a multiple of TP (vocab_parallel_embedding.py)."""
    rows = ceil(vocab / 64) * 64
    return ceil(rows / tp) * tp

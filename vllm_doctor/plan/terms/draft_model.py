"""What one rank keeps of a drafter that is a separate model, and what the model hands it, in bytes."""

from __future__ import annotations

from msgspec.structs import replace

from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture, TokenHeads
from vllm_doctor.plan.model.quantization import scheme
from vllm_doctor.plan.terms.matrices import padded_vocab
from vllm_doctor.plan.terms.weights import WeightTarget, allocated, mtp_bytes, rank_weights

# Methods whose drafter takes the model's states, and in most cases its tables too.
EAGLE = frozenset({"eagle", "eagle3"})
BLOCKS = frozenset({"dflash", "dspark"})  # of tokens at once
JOINING = EAGLE | BLOCKS


def drafter_bytes(a: Architecture, s: Settings, target: WeightTarget) -> float:
    """Weights, split as the model is (v1/spec_decode/draft_model.py); 0 where there is none."""
    d = s.draft
    if d is None:
        return 0.0
    fmt, own = scheme(d.quantization, None, s.element), Parallel(tp=s.parallel.tp)
    if d.token_heads is not None:
        return _heads(d, d.token_heads, s, target)
    if s.speculative == "mtp":
        return mtp_bytes(d, fmt, replace(s.parallel, pp=1), target) + _tables(a, d, s, target)
    if s.speculative not in JOINING:
        return rank_weights(d, fmt, own, 0, target)
    # Tables of words are counted apart; EAGLE turns with the model's positions where they are as long
    # (rotary_embedding/__init__.py _ROPE_DICT).
    ropes = tuple(x for x in d.ropes if s.speculative not in EAGLE or x not in a.ropes)
    weights = rank_weights(replace(d, vocab=0, tied=True, ropes=ropes), fmt, own, 0, target)
    weights += (_joining(d, s, own) + d.beside) * target.element
    return weights + _tables(a, d, s, target)


def _joining(draft: Architecture, s: Settings, own: Parallel) -> float:
    """Values of what joins the model's states, whole on each rank, and what follows from it: keys and values of all
    layers of DFlash once more where they are not quantized (qwen3_dflash.py fc, _fused_kv_weight), the wider first
    layer of EAGLE 3, which sees embeddings beside the states (llama_eagle3.py, deepseek_eagle3.py)."""
    if s.speculative == "eagle":
        return 2.0 * draft.hidden**2  # an embedding and a state (llama_eagle.py fc)
    if s.speculative in BLOCKS:
        copied = 0 if draft.quantization is not None else 2
        keys = sum(copied * max(1, layer.kv_heads // own.tp) * layer.head_dim for layer in draft.layers)
        return float((draft.joined + keys) * draft.hidden)
    first, mla = draft.layers[0], draft.mla
    if mla is None:
        heads = first.heads // own.tp + 2 * max(1, first.kv_heads // own.tp)
        wider = heads * first.head_dim
    else:
        wider = (mla.q_rank or draft.heads // own.tp * (mla.nope + mla.rope)) + mla.kv_rank + mla.rope
    return float((draft.joined + wider) * draft.hidden)


def shares_words(a: Architecture, d: Architecture, s: Settings) -> bool:
    """Does it take the model's embedding? Not in stages, nor of another shape: another vocabulary, or width
    (v1/spec_decode/eagle.py load_model); V0 has one for each (models/eagle.py). One of the same shape is taken to be
    the model's own: from 0.11.1 on they are compared, and drafters are trained with the model's."""
    return s.engine == "V1" and s.parallel.pp == 1 and (a.vocab, a.hidden) == (d.vocab, d.hidden)


def keeps_head(a: Architecture, d: Architecture, s: Settings) -> bool:
    """Has it a head of its own? EAGLE takes the model's on V1; EAGLE 3 keeps its own, but one of the model's shape in
    0.11.0; what drafts blocks has one where it chooses from other words."""
    if s.engine == "V0":
        return True
    same = (d.draft_words, d.hidden) == (a.vocab, a.hidden)
    if s.speculative == "eagle3":
        return not (same and s.does.shares_heads_by_shape)
    return s.speculative in BLOCKS and not same


def _tables(a: Architecture, d: Architecture, s: Settings, target: WeightTarget) -> float:
    """Embedding and head of its own, in the model's type, and which of the model's words its words are."""
    tp, size = s.parallel.tp, 0.0
    if not shares_words(a, d, s):
        rows = padded_vocab(d.vocab, tp) // tp
        size += allocated(rows * d.hidden * target.element, splits_large=target.splits_large)
    if keeps_head(a, d, s):
        rows = padded_vocab(d.draft_words, tp) // tp
        size += allocated(rows * d.hidden * target.element, splits_large=target.splits_large)
        size += 8 * d.draft_words * (d.draft_words != a.vocab)
    return size


def _heads(d: Architecture, heads: TokenHeads, s: Settings, target: WeightTarget) -> float:
    """One head for each drafted token (config/speculative.py num_lookahead_tokens): its blocks whole on each rank, its
    table of words split."""
    count, tp = s.draft_tokens, s.parallel.tp
    tables = 1 if heads.one_table else count
    table = padded_vocab(heads.words if heads.one_table and heads.medusa else d.vocab, tp) // tp * heads.inner
    if heads.medusa:
        return float(count * heads.blocks * d.hidden**2 + tables * table) * target.element
    later = min(count - 1, 1) if heads.one_table else count - 1
    joins = heads.inner * (d.hidden + later * heads.inner)
    return float(joins + 2 * tables * table + 2 * tables * heads.inner) * target.element


def handed(s: Settings) -> float:
    """The states of several layers that the model keeps through its pass for a drafter of DFlash or EAGLE 3
    (config.py dflash_config.target_layer_ids, eagle_aux_hidden_state_layer_ids)."""
    if s.draft is None or s.speculative not in BLOCKS | {"eagle3"}:
        return 0.0
    return float(s.batched * s.draft.joined * s.element)

"""What one rank keeps of a drafter that is a separate model, and what the model hands it, in bytes."""

from __future__ import annotations

from msgspec.structs import replace

from vllm_doctor.plan.launch.parallel import Parallel
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.quantization import scheme
from vllm_doctor.plan.terms.weights import WeightTarget, rank_weights


def drafter_bytes(s: Settings, target: WeightTarget) -> float:
    """Weights, split as the model is (v1/spec_decode/draft_model.py); 0 where there is none."""
    if s.draft is None:
        return 0.0
    own = Parallel(tp=s.parallel.tp)
    joins = s.speculative == "dflash"
    # Embedding and head of DFlash are the model's (v1/spec_decode _maybe_share_embeddings, _maybe_share_lm_head).
    shown = replace(s.draft, vocab=0, tied=True) if joins else s.draft
    weights = rank_weights(shown, scheme(s.draft.quantization, None, s.element), own, 0, target)
    return weights + (_joining(s.draft, own) * target.element if joins else 0.0)


def _joining(draft: Architecture, own: Parallel) -> float:
    """Values of what joins the model's states, whole on each rank, and of the second copy of the layers' projections
    to keys and values (qwen3_dflash.py fc, _fused_kv_weight)."""
    keys = sum(2 * max(1, layer.kv_heads // own.tp) * layer.head_dim for layer in draft.layers)
    return float((draft.joined + keys) * draft.hidden)


def handed(s: Settings) -> float:
    """The states of several layers that the model keeps through its pass for a drafter of DFlash (config.py
    dflash_config.target_layer_ids)."""
    if s.draft is None or s.speculative != "dflash":
        return 0.0
    return float(s.batched * s.draft.joined * s.element)

"""What a wide step of attention to compressed latents takes (DeepSeek V4): its heads are padded to what FlashMLA runs,
queries and output both, under all streams of hidden states; its workspaces. Sizes in bytes on one rank.

Follows models/deepseek_v4/attention.py, compressor.py and nvidia/flashmla.py (0.22.0; 0.20.0 and 0.26.0 do the same),
as the profile runs them, without metadata of a batch.
"""

from __future__ import annotations

from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.terms.term import Term

# Heads that the kernel takes (get_padded_num_q_heads), and requests whose latents a prefill gathers at once
# (PREFILL_CHUNK_SIZE).
_HEADS, _REQUESTS = 64, 4
# Tokens of which an indexed layer makes one, and entries of its workspace for each token of the length
# (v1/attention/backends/mla/indexer.py get_max_prefill_buffer_size).
_INDEXED, _ENTRIES = 4, 40


def compressed_pass(a: Architecture, s: Settings) -> Term | None:
    """The pass at the indexer of a layer, where most is alive at once, less what it reserves for scores; None for
    another model."""
    c = a.compressed
    if c is None:
        return None
    layer = next(x for x in a.layers if x.heads)
    padded = -(-layer.heads // s.parallel.tp // _HEADS) * _HEADS * layer.head_dim
    wide = (c.streams + 1) * a.hidden + 2 * padded + 2 * (c.q_rank + layer.head_dim)
    # What makes latents and the indexer's keys is in fp32, keys and gates of two overlapping windows each.
    scores = 4 * 4 * (layer.head_dim + c.indexer_dim)
    chosen = c.indexer_heads * c.indexer_dim * (s.element + 1)
    return Term(
        "forward pass, padded heads",
        float(s.batched * (s.element * wide + scores + chosen)),
        f"{s.batched} × (({c.streams}+1)×{a.hidden} + 2×{padded}) × {s.element} B, and the indexer's",
        "models/deepseek_v4/attention.py o_padded",
    )


def gathered_latents(a: Architecture, s: Settings) -> Term | None:
    """The workspace that experts and attention share: a prefill's latents, or the indexer's keys."""
    c = a.compressed
    if c is None:
        return None
    dim = next(x for x in a.layers if x.heads).head_dim
    rows = -(-s.length // min((r for r in c.ratios if r > 1), default=s.length)) + c.window + s.batched
    latents = float(_REQUESTS * rows * dim * 2)
    keys = float(s.length * _ENTRIES // _INDEXED * (c.indexer_dim + 4))
    return Term("gathered latents", max(latents, keys), f"{_REQUESTS} × {rows} × {dim} × 2 B", "nvidia/flashmla.py")

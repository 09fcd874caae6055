"""What kernels of a turboquant cache keep for decoding and for a prompt that goes on, in bytes of one rank
(v1/attention/backends/turboquant_attn.py)."""

from __future__ import annotations

from math import ceil

from vllm_doctor.plan.launch.cache_types import TURBOQUANT
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture, Attention

# Parts in which a context is read at once (config/attention.py tq_max_kv_splits_for_cuda_graph).
_SPLITS = 32
# A chunk of more tokens reads what is cached in 16 bits.
_UNPACKED_FROM = 128


def _packed(a: Architecture, s: Settings, layers: range) -> list[Attention]:
    found = ((a.layers[i], i) for i in layers)
    return [x for x, i in found if x.kind == "full" and not s.unpacked.holds(i, window=x.window is not None)]


def kept_by_layers(a: Architecture, s: Settings, stage: int) -> float:
    """To 0.20 each layer has buffers of its own for the decoding of a whole batch, which are loaded with the weights
    (layers/attention/attention.py _init_turboquant_buffers)."""
    if s.kv_dtype not in TURBOQUANT or not s.does.keeps_turboquant_buffers:
        return 0.0
    parts = s.parallel.stages(len(a.layers))
    start = sum(parts[:stage])
    rows = (
        x.heads // s.parallel.tp * (_SPLITS * (x.head_dim + 1) + x.head_dim + 1)
        for x in _packed(a, s, range(start, start + parts[stage]))
    )
    return 4.0 * s.seqs * sum(rows)


def reserved(a: Architecture, s: Settings) -> float:
    """From 0.24 on one workspace is reserved after the profile, when the pool is made: for a batch that decodes, or for
    the longest request's keys and values in 16 bits, where prompts come in chunks."""
    if s.kv_dtype not in TURBOQUANT or not s.does.reserves_turboquant_workspace:
        return 0.0
    layer = next(iter(_packed(a, s, range(len(a.layers)))), None)
    if layer is None:
        return 0.0
    heads = layer.heads // s.parallel.tp
    decoding = float(s.seqs * heads * (4 * _SPLITS * (layer.head_dim + 1) + s.element * layer.head_dim + 4))
    if not s.chunked or s.batched <= _UNPACKED_FROM:
        return decoding
    block = s.block or 16
    rows = ceil(max(0, s.length - 1) / block) * block
    return max(decoding, 2.0 * 2 * max(1, layer.kv_heads // s.parallel.tp) * rows * layer.head_dim)

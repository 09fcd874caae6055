"""Recurrent layers keep a block of the pool for each running sequence: are there as many as `max_num_seqs`?

vLLM asks before it captures graphs of whole decoding batches, with the pool's own number of blocks
(config/compilation.py resolve_cudagraph_mode_and_sizes); a launch without such graphs it does not ask.
"""

from __future__ import annotations

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.prediction.points import TOO_FEW_STATES, StartPoint
from vllm_doctor.plan.terms.kv import Pool
from vllm_doctor.plan.terms.outside_torch import uses_flashinfer

_GIB = 1 << 30


def _asked(s: Settings, gpu: Card | None, pool: Pool | None) -> bool:
    """Does the release ask of this launch?"""
    if pool is None or s.engine == "V0" or s.eager or s.pooling or not s.full_graphs:
        return False
    # An A100 gets 256 sequences unasked where others of its size get 1024: of a card without a name nobody knows.
    if gpu is None and "max-num-seqs" in s.defaulted:
        return False
    # With drafts FlashInfer captures no whole batches (v1/attention/backends/flashinfer.py).
    drafts = s.speculative is not None and uses_flashinfer(s, gpu)
    return s.does.asks_block_for_each_sequence and not drafts and any(g.spec.kind == "mamba" for g in pool.groups)


def needed_gib(s: Settings, gpu: Card | None, pool: Pool | None) -> float:
    """GiB of the pool that `max_num_seqs` sequences need for their states alone; 0 where nothing asks."""
    return s.seqs * pool.block_bytes / _GIB if pool is not None and _asked(s, gpu, pool) else 0.0


def state_point(
    s: Settings, gpu: Card | None, pool: Pool | None, available: float | None, margin: tuple[float, float] | None
) -> StartPoint | None:
    """Where the start ends with fewer blocks than sequences; None where the release does not ask."""
    needed = needed_gib(s, gpu, pool)
    if not needed or pool is None or available is None:
        return None
    if s.blocks_override:
        left = float(s.blocks_override - s.seqs) or 1.0
        return StartPoint(outcome=TOO_FEW_STATES, left=left, below=0.0, above=0.0)
    below, above = (available - margin[0], margin[1] - available) if margin is not None else (0.0, 0.0)
    left = min(available - needed, -1e-9) if pool.blocks(available * _GIB) < s.seqs else available - needed
    # What lies in the claimed range is in doubt, to its ends.
    return StartPoint(outcome=TOO_FEW_STATES, left=left, below=below, above=above, doubt=0.05)

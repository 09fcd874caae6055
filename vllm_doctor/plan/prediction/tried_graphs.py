"""Graphs are tried out before there is a pool, on a cache of their own that is given back.

It has a block for each request of the largest batch (v1/worker/gpu_model_runner.py, later gpu/cudagraph_utils.py,
_init_minimal_kv_cache_for_profiling). A block of recurrent layers is their whole state: 49 MiB for 48 gated delta nets
of 27B, 12 GiB for 256 requests, more than many a card has beside the weights.
"""

from __future__ import annotations

from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.terms.kv import Pool


def tried_bytes(s: Settings, pool: Pool | None) -> float:
    """Bytes of that cache; 0 where nothing is tried out: no graphs, a pool of a given size, which ends the profile
    before it (v1/worker/gpu_worker.py determine_available_memory), or the second runner before 0.29."""
    runs = s.does.tries_graphs_first and (s.does.v2_charges_graphs or not s.v2_runner)
    if pool is None or not runs or s.engine == "V0" or s.eager or s.kv_bytes:
        return 0.0
    largest = s.capture_sizes or min(512, s.batched)
    return float(pool.block_bytes * (min(largest, s.seqs) if s.does.tries_no_more_than_sequences else largest))

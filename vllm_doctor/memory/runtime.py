"""Memory outside torch's weights and activations: context and NCCL, persistent buffers of the runner, CUDA graphs.

Unlike the other terms these are not the size of a tensor that the code names: drivers and libraries allocate them.
Each constant says what was measured; those fitted to published start-up logs say which.
"""

from __future__ import annotations

import msgspec

from vllm_doctor.knowledge.gpus import Gpu
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.memory.architecture import Architecture
from vllm_doctor.memory.settings import Settings
from vllm_doctor.memory.weights import padded_vocab

GIB = 1 << 30


class Estimate(msgspec.Struct, frozen=True):
    """A figure in GiB, and how far below and above it the truth may lie."""

    gib: float
    below: float
    above: float


def non_torch(a: Architecture, s: Settings, gpu: Gpu | None) -> Estimate:
    """Growth of non-torch memory between the first snapshot and the end of the profile run.

    Fitted: one card 0.01-0.16 GiB (V0, eight logs), 0.07-0.14 (0.10-0.17), 0.24-0.27 (0.18-0.26: more kernels are
    loaded before the pool is sized; llm-d planner runs of 0.19; 0.04 on a V100 without graphs); several cards over
    NVLink 2.06-2.13 (the same runs: all-reduce workspaces), over PCIe 0.2-0.3 (2080 Ti, 4090, L40S; 0.5 from 0.18),
    and 0.05-0.09 from 0.11 on, when NCCL is there before the first look (L40S, a 24 GB card).
    """
    several = s.parallel.tp > 1
    linked = gpu is not None and gpu.link == "nvlink"
    if s.engine == "V0" and several and s.version < Version((0, 6, 4)):
        # The whole growth of used memory counted then, blocks that torch kept included (worker/worker.py of 0.5.4).
        # Fitted to two logs: 9.7 GiB (0.5.3, 8 cards) and 13 GiB (0.2.5, 4 cards) beyond weights and pool.
        return Estimate(9.0, 6.0, 6.0)
    if s.engine == "V0":
        return Estimate(0.28, 0.15, 0.3) if several else Estimate(0.09, 0.09, 0.12)
    if s.version < Version((0, 18)):
        if several and gpu is None:
            return Estimate(0.4, 0.35, 1.5)  # neither the link nor its buffers are known
        if several and linked:
            return Estimate(1.4, 1.0, 0.8)
        if several:
            return Estimate(0.12, 0.1, 0.3) if s.version >= Version((0, 11)) else Estimate(0.28, 0.15, 0.3)
        return Estimate(0.11, 0.1, 0.1)
    if several and gpu is None:
        base = Estimate(0.8, 0.7, 1.5)
    elif several:
        base = Estimate(2.08, 0.06, 0.12) if linked else Estimate(0.5, 0.45, 0.4)
    elif s.parallel.pp > 1:
        base = Estimate(0.1, 0.08, 0.25)
    else:
        plain = s.eager or gpu is None or (gpu.capability or 0) < 9.0
        base = Estimate(0.25, 0.2 if plain else 0.03, 0.24)
    if s.version >= Version((0, 27)):
        return Estimate(
            base.gib - (0.1 if s.v2_runner else 0.0) + persistent(a, s), base.below + 0.15, base.above + 0.3
        )
    return base


def persistent(a: Architecture, s: Settings) -> float:
    """GiB that the runner keeps for its whole life: with the V2 runner 4 bytes of output counts and one bit of
    prompt mask per (sequence x vocabulary) (v1/worker/gpu/sample/penalties.py)."""
    if not s.v2_runner:
        return 0.0
    return s.seqs * padded_vocab(a.vocab, 1) * 4.125 / GIB


def capture_sizes(largest: int, version: Version) -> int:
    """How many batch sizes are captured: 1, 2, 4, then steps of 8 to 256, then of 16 (config/vllm.py); by 8 throughout
    to 0.10."""
    if largest <= 4:
        return len([n for n in (1, 2, 4) if n <= largest])
    if version < Version((0, 11)):
        return 3 + largest // 8
    return 3 + min(largest, 255) // 8 + (max(0, (largest - 256) // 16 + 1) if largest >= 256 else 0)


def graphs(a: Architecture, s: Settings) -> Estimate:
    """CUDA graph memory: outputs of the largest captured size, and driver memory per captured graph piece.

    Fitted to the H100 runs of 0.19 with 51 + 51 captures (19 logs, 0.5-1.85 GiB, residual 0.08): 0.2 + 0.063 per
    1000 of hidden size at 512 tokens, and 0.122 MiB per layer and graph.
    """
    if s.eager:
        return Estimate(0.0, 0.02, 0.02)
    layers = len(a.layers) // s.parallel.pp
    if s.engine == "V0":
        # decode graphs of the whole model, 35 sizes up to 256
        return Estimate(0.08 + 35 * layers * 0.00004 + 0.02 * a.hidden / 1000, 0.1, 0.1)
    largest = s.capture_sizes or min(512, s.batched)
    modes = 2 if s.version >= Version((0, 11)) else 1
    count = capture_sizes(largest, s.version) * modes
    shared = (0.2 + 0.063 * a.hidden / 1000) * largest / 512
    moe = 0.35 * largest / 512 if a.moe is not None else 0.0
    size = shared + moe + count * layers * 0.122 / 1024
    return Estimate(size, 0.1 + 0.5 * size, 0.1 + 0.25 * size)

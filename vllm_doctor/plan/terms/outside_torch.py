"""Memory outside torch's weights and activations: context and NCCL, persistent buffers of the runner, CUDA graphs.

Unlike the other terms these are not the size of a tensor that the code names: drivers and libraries allocate them.
Each constant says what was measured; those fitted to published start-up logs say which.
"""

from __future__ import annotations

import msgspec

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.plan.behaviour import behaviour
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.terms.weights import padded_vocab

GIB = 1 << 30


class Estimate(msgspec.Struct, frozen=True):
    """A figure in GiB, and how far below and above it the truth may lie."""

    gib: float
    below: float
    above: float


def non_torch(a: Architecture, s: Settings, gpu: Card | None) -> Estimate:
    """Growth of non-torch memory between the first snapshot and the end of the profile run.

    Fitted: one card 0.01-0.16 GiB (V0, eight logs), 0.07-0.14 (0.10-0.17), 0.24-0.27 (0.18-0.26: more kernels are
    loaded before the pool is sized; llm-d planner runs of 0.19; 0.04 on a V100 without graphs); several cards over
    NVLink 2.06-2.13 (the same runs: all-reduce workspaces), over PCIe 0.2-0.3 (2080 Ti, 4090, L40S; 0.5 from 0.18),
    and 0.05-0.09 from 0.11 on, when NCCL is there before the first look (L40S, a 24 GB card).
    """
    if gpu is not None and gpu.unified:
        # What is free is what the host calls available (utils/mem_utils.py MemorySnapshot, psutil), so the process'
        # own host memory counts too. Fitted: four logs of GB10, 1.0 to 4.6 GiB.
        return Estimate(2.5 + (persistent(a, s) if s.does.measures_consumed else 0.0), 2.2, 2.4)
    several = s.parallel.tp > 1
    linked = gpu is not None and gpu.link == "nvlink"
    if s.engine == "V0" and several and s.does.counts_used_memory:
        # The whole growth of used memory counted then, blocks that torch kept included (worker/worker.py of 0.5.4).
        # Fitted to two logs: 9.7 GiB (0.5.3, 8 cards) and 13 GiB (0.2.5, 4 cards) beyond weights and pool.
        return Estimate(9.0, 6.0, 6.0)
    if s.engine == "V0":
        # Three of eleven logs of one card, all of 0.6, show 0.26 to 0.35.
        early = s.version < Version((0, 7))
        return Estimate(0.28, 0.15, 0.3) if several else Estimate(0.09, 0.09, 0.26 if early else 0.12)
    if s.version < Version((0, 18)):
        if several and gpu is None:
            return Estimate(0.4, 0.35, 1.5)  # neither the link nor its buffers are known
        if several and linked:
            return Estimate(1.4, 1.0, 0.8)
        if several:
            return Estimate(0.12, 0.1, 0.3) if s.does.nccl_before_snapshot else Estimate(0.28, 0.15, 0.3)
        return Estimate(0.11, 0.1, 0.1)
    if several and gpu is None:
        base = Estimate(0.8, 0.7, 1.5)
    elif several:
        base = Estimate(2.08, 0.06, 0.12) if linked else Estimate(0.5, 0.45, 0.4)
    elif s.parallel.pp > 1:
        base = Estimate(0.1, 0.08, 0.25)
    else:
        capability = gpu.capability or 0.0 if gpu is not None else 0.0
        # Two of five hosts with a card of compute capability 12 logged 1.3 to 1.5 GiB more, and nothing that says why.
        above = 1.6 if capability >= 12.0 else 0.24 if gpu is not None else 0.5
        # Nineteen H100 runs of one host lie within 0.03; logs of other hosts down to 0.12 below.
        base = Estimate(0.25, 0.2 if s.eager or capability < 9.0 else 0.12, above)
    if s.does.measures_consumed:
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
    if not behaviour(version).captures_by_sixteen:
        return 3 + largest // 8
    return 3 + min(largest, 255) // 8 + (max(0, (largest - 256) // 16 + 1) if largest >= 256 else 0)


def graphs(a: Architecture, s: Settings, gpu: Card | None = None) -> Estimate:
    """CUDA graph memory: outputs of the largest captured size, and driver memory per captured graph piece.

    Fitted to the H100 runs of 0.19 with 51 + 51 captures (19 logs, 0.5-1.85 GiB, residual 0.08): 0.2 + 0.063 per
    1000 of hidden size at 512 tokens, 0.122 MiB per layer and graph, and 0.35 of experts, which the two logs of 0.20
    and later with experts do not show.
    """
    if s.eager:
        return Estimate(0.0, 0.02, 0.02)
    layers = len(a.layers) // s.parallel.pp
    if s.engine == "V0":
        # decode graphs of the whole model, 35 sizes up to 256
        return Estimate(0.08 + 35 * layers * 0.00004 + 0.02 * a.hidden / 1000, 0.1, 0.1)
    largest = s.capture_sizes or min(512, s.batched)
    count = capture_sizes(largest, s.version)
    flashinfer = uses_flashinfer(s, gpu)
    full = s.does.full_decode_graphs and not (flashinfer and s.speculative)
    if full:
        # Decode graphs end at the largest decode batch (cudagraph_dispatcher.py; logs: "FULL=35 (largest=256)").
        count += capture_sizes(min(largest, s.seqs * (1 + s.draft_tokens)), s.version)
    shared = (0.2 + 0.063 * a.hidden / 1000) * largest / 512
    moe = 0.35 * largest / 512 if a.moe is not None and s.version < Version((0, 20)) else 0.0
    workspace = FLASHINFER_WORKSPACE if flashinfer and full else 0.0
    size = shared + moe + count * layers * 0.122 / 1024 + workspace
    return Estimate(size, 0.1 + 0.5 * (size - workspace), 0.1 + 0.25 * size)


# VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE, taken when the first full graph plans its attention (v1/attention/backends/
# flashinfer.py _get_workspace_buffer).
FLASHINFER_WORKSPACE = 394 / 1024


def uses_flashinfer(s: Settings, gpu: Card | None) -> bool:
    """Is FlashInfer the attention backend: asked for, preferred (compute capability 10), or the first one that takes an
    fp8 cache (FlashAttention does so on Hopper alone; platforms/cuda.py _get_backend_priorities)."""
    if s.engine != "V1":
        return False
    if s.backend is not None:
        return "FLASHINFER" in s.backend.upper()
    capability = gpu.capability if gpu is not None and gpu.capability is not None else 0.0
    if 10.0 <= capability < 11.0:
        return True
    return s.kv_dtype.startswith("fp8") and capability >= 8.0 and not 9.0 <= capability < 10.0

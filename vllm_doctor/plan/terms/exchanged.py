"""What ranks keep outside torch to hand each other tokens: DeepEP (its csrc/config.hpp LowLatencyLayout, csrc/elastic
ElasticBuffer.calculate_buffer_size), NIXL, whose layout is that of low latency (its examples/device/ep config.hpp
EPLayout), and FlashInfer's two ways (its comm/trtllm_alltoall.cuh, trtllm_moe_alltoall.py, the same in 0.5.3 to 0.7.2);
all2all.py says with which sizes each is made."""

from __future__ import annotations

from math import ceil

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.plan.launch.exchange import ELASTIC, ONE_SIDED, TWO_SIDED
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture, Moe
from vllm_doctor.plan.model.quantization import scheme
from vllm_doctor.plan.terms.matrices import first_expert

_MIB, _GIB = 1 << 20, 1 << 30
# Hidden sizes that kernels of low latency have code for; others are padded (prepare_finalize/deepep_ll.py, nixl_ep.py).
_WIDTHS = (2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192)
_SCALED = 128  # channels that share a scale
# Of FlashInfer's queues: eight entries of 256 KiB each, the state of each queue, and 1 MiB where routes are prepared.
_QUEUE, _QUEUE_STATE, _PREPARED = 8 * 256 * 1024, 256, _MIB
_RANKS_A_BLOCK = 8
_MULTIPROCESSORS = 132  # of a card that nobody named


def exchanged(a: Architecture, s: Settings, gpu: Card | None) -> float:
    """GiB of one rank."""
    asked = s.exchange
    if asked is None or a.moe is None:
        return 0.0
    ranks = s.parallel.expert_split
    if asked.kind == TWO_SIDED:
        return _queues(ranks, gpu.multiprocessors if gpu is not None else _MULTIPROCESSORS) / _GIB
    if asked.kind == ONE_SIDED:
        return _pushed(a, a.moe, s, ranks * asked.tokens) / _GIB
    if asked.kind == ELASTIC:
        return _elastic(a, a.moe, s, asked.tokens, ranks) / _GIB
    size = asked.mib * _MIB * (2 if asked.across else 1)
    if asked.tokens:
        # Two places to send from and two to receive in, each with room for every expert's tokens of one rank in 16 bits
        # with their scales.
        wide = a.moe.inputs(a.hidden)
        wide = next((w for w in _WIDTHS if w >= wide), wide)
        combined, sent = 2 * wide + 4 * (wide // _SCALED), 2 * wide + 16
        rows = (a.moe.experts + s.parallel.spare) * asked.tokens
        size += 2 * rows * combined + 2 * rows * max(combined, sent)
    return size / _GIB


def _queues(ranks: int, multiprocessors: int) -> float:
    """A queue from each rank in each channel, of which half the multiprocessors have as many as go."""
    blocks = 2 * ceil(ranks / _RANKS_A_BLOCK)
    channels = max(1, multiprocessors // 2 // blocks)
    parts = ranks * channels * (_QUEUE + _QUEUE_STATE), ranks * (_PREPARED + _QUEUE_STATE)
    return float(sum(ceil(part / (2 * _MIB)) * 2 * _MIB for part in parts))


def _experts(a: Architecture, s: Settings) -> str:
    return scheme(a.quantization, s.quantization, s.element).choose(first_expert(a), True).name


def _pushed(a: Architecture, moe: Moe, s: Settings, rows: int) -> float:
    """Room for what each rank sends, as its experts take it and with its routes, and for what comes back in 16 bits."""
    wide, name = moe.inputs(a.hidden), _experts(a, s)
    packed = {"nvfp4": wide // 2 + wide // 16, "mxfp8": wide + wide // 32}.get(name, 2 * wide)
    return float(rows * (packed + 8 * moe.top_k + 2 * wide))


def _elastic(a: Architecture, moe: Moe, s: Settings, tokens: int, ranks: int) -> float:
    """The larger of what a step sends and what comes back, a row of each token from each rank or expert."""
    wide, fp8 = moe.inputs(a.hidden), _experts(a, s) == "fp8"
    sent = wide + 4 * ceil(wide / 32) if fp8 else 2 * wide
    rows = max(ranks * tokens * (sent + 8 * moe.top_k), moe.top_k * tokens * (2 * wide + 4 * moe.top_k))
    return float(ceil(rows / (2 * _MIB)) * 2 * _MIB)

"""What DeepEP keeps outside torch (its csrc/config.hpp LowLatencyLayout; all2all.py DeepEPHTAll2AllManager and
DeepEPLLAll2AllManager)."""

from __future__ import annotations

from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture

_MIB, _GIB = 1 << 20, 1 << 30
# Hidden sizes that the low-latency kernels have code for; others are padded (prepare_finalize/deepep_ll.py).
_WIDTHS = (2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192)
_SCALED = 128  # channels that share a scale


def exchanged(a: Architecture, s: Settings) -> float:
    """GiB of one rank: two places to send from and two to receive in, each with room for every expert's tokens of one
    rank in 16 bits with their scales."""
    asked = s.exchange
    if asked is None or a.moe is None:
        return 0.0
    size = asked.mib * _MIB * (2 if asked.across else 1)
    if asked.tokens:
        wide = a.moe.inputs(a.hidden)
        wide = next((w for w in _WIDTHS if w >= wide), wide)
        combined, sent = 2 * wide + 4 * (wide // _SCALED), 2 * wide + 16
        rows = (a.moe.experts + s.parallel.spare) * asked.tokens
        size += 2 * rows * combined + 2 * rows * max(combined, sent)
    return size / _GIB

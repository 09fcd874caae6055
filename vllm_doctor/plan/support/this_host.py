"""What a host decides beside its card, and no launch shows: which assembler Triton finds for a card newer than its own,
and how much of a memory that the host shares is free."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.plan.launch.settings import Dependence, Settings

# What CUDA 12.8 assembles for at most; 12.9 is the first with 12.1 (ptxas: "Value 'sm_121a' is not defined").
_ASSEMBLED = 12.0
# GiB that a host of GB10 may hold when vLLM asks what is free (public reports of headless ones: 101 to 117 of 121.69).
_HELD_MOST = 16.0


def depends(s: Settings, gpu: Card | None) -> Iterator[Dependence]:
    """On Triton's assembler, on the host's other memory."""
    if gpu is None or gpu.template == "tegra":  # a Jetson has other builds
        return
    new = gpu.backend == "CUDA" and gpu.capability is not None and gpu.capability > _ASSEMBLED
    if new and s.does.one_ptxas and not s.ptxas_named:
        yield Dependence(
            "Triton's assembler",
            f"the ptxas that the Triton of {s.version} carries is CUDA 12.8's, which has no compute capability "
            f"{gpu.capability}. TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas of CUDA 12.9 or later, or vLLM 0.17.0, "
            "settles it",
        )
    asks = s.does.checks_free_at_start and s.engine == "V1" and not s.kv_bytes
    total, wanted = gpu.total_gib, s.utilization * gpu.total_gib
    if gpu.unified and asks and wanted > total - _HELD_MOST > 0:
        most = int(100 * (total - _HELD_MOST) / total) / 100
        yield Dependence(
            "the memory that the host itself holds",
            f"--gpu-memory-utilization {s.utilization:g} asks for {wanted:.1f} GiB free of "
            f"{total:.1f}; {most:g} leaves the host {_HELD_MOST:.0f} GiB. free -g settles it",
        )

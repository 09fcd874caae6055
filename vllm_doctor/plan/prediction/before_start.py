"""What holds GPU memory before vLLM takes its snapshot, and the check that vLLM makes then."""

from __future__ import annotations

from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.settings import Settings


def held_before_start(s: Settings, gpu: Card | None) -> float:
    """GiB in use before vLLM's snapshot: CUDA context, and since 0.11 NCCL too. Worker start logs: 0.17 to 0.61 on one
    card (six hosts), 0.63, 0.63 and 0.96 with ranks over PCIe, 1.5 to 2.0 over NVLink."""
    if gpu is not None and gpu.unified:
        return 2.0
    linked = gpu is None or gpu.bridged
    if s.parallel.tp * s.parallel.pp > 1 and s.does.nccl_before_snapshot:
        return 1.6 if linked else 0.65
    return 0.5


def too_little_free(s: Settings, gpu: Card | None, total_gib: float | None) -> Refusal | None:
    """The check at the very start, since 0.9.2: free memory must cover utilization x total (v1/worker/utils.py
    request_memory)."""
    if total_gib is None or s.engine == "V0" or not s.does.checks_free_at_start or s.kv_bytes:
        return None
    free = total_gib - held_before_start(s, gpu)
    if s.utilization * total_gib <= free:
        return None
    return Refusal(
        "--gpu-memory-utilization",
        f"{s.utilization:g}, that is {s.utilization * total_gib:.2f} GiB",
        f"at most {free:.2f} GiB, the free memory that vLLM sees (contexts and NCCL take the rest)",
    )


# How far what is in use before vLLM looks may be off, in GiB: one context, NCCL over PCIe, NCCL over NVLink.
_HELD_ONE, _HELD_PCIE, _HELD_NVLINK, _HELD_UNIFIED = 0.2, 0.35, 0.5, 1.0


def held_off(s: Settings, gpu: Card | None) -> float:
    """GiB that `held_before_start` may be off, either way."""
    if gpu is not None and gpu.unified:
        return _HELD_UNIFIED
    if s.parallel.tp * s.parallel.pp > 1 and s.does.nccl_before_snapshot:
        return _HELD_NVLINK if gpu is None or gpu.bridged else _HELD_PCIE
    return _HELD_ONE

"""FlashInfer's sampler on a card that FlashInfer does not know (flashinfer/jit/core.py check_cuda_arch: "FlashInfer
requires GPUs with sm75 or higher", read in 0.3.1, 0.6.1 and 0.6.3). The sampler is warmed up before the server is
ready.
"""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.knowledge.generations import TURING
from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.settings import Dependence, Settings

_VARIABLE = "VLLM_USE_FLASHINFER_SAMPLER"


def _older(s: Settings, gpu: Card | None) -> bool:
    """Does a first engine's successor sample on a card below 7.5?"""
    capability = gpu.capability if gpu is not None and gpu.backend == "CUDA" else None
    return s.engine == "V1" and not s.pooling and capability is not None and capability < TURING


def refusals(s: Settings, gpu: Card | None) -> Iterator[Refusal]:
    """Asked for: from 0.11.1 on the release asks the card itself (v1/sample/ops/topk_topp_sampler.py)."""
    if gpu is not None and _older(s, gpu) and s.flashinfer_asked and not s.does.flashinfer_where_installed:
        yield Refusal(_VARIABLE, "1", f"0: FlashInfer has no code for compute capability {gpu.capability}")


def depends(s: Settings, gpu: Card | None) -> Iterator[Dependence]:
    """Not declined: to 0.11.0 the sampler is FlashInfer's wherever it is installed, as in vLLM's images."""
    if gpu is not None and _older(s, gpu) and s.does.flashinfer_where_installed and s.flashinfer_asked is not False:
        yield Dependence(
            "whether FlashInfer is installed",
            f"with it {s.version} samples with kernels that it does not build for compute capability "
            f"{gpu.capability}, and the warm-up ends the start; {_VARIABLE}=0 settles it",
        )

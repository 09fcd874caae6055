"""Does Triton's attention find the shared memory that it asks for? Turing gives a kernel 64 KiB, Volta 96, later cards
more (CUDA C++ Programming Guide, technical specifications by compute capability).

What it asks for was told by Triton itself: the kernel of 0.19.1 compiled for 7.5 (Triton 3.4.0, tiles of 32 keys, as
prompts have). Two reports name the same bytes: 81920 (vLLM issue 36802) and 98304 (issue 57712). No start asks the
kernel for a prompt, so the server may be up before the first one ends it.
"""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.knowledge.generations import TURING
from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture

# Bytes of shared memory that a Turing card gives to one kernel.
_GIVES = 65536
# Bytes that are asked for, by the width of a head (the next power of two) and the bytes of a value; none of the others
# asks for more than Turing has.
_ASKED = {(256, 4): 81920, (512, 2): 98304, (512, 4): 98304}
# Widths that FlashInfer takes, and then goes first; it has no 32-bit floats.
_FLASHINFER_BYTES = 2


def doubts(a: Architecture, s: Settings, gpu: Card | None) -> Iterator[str]:
    """One sentence, where the first prompt ends the server."""
    if gpu is None or gpu.capability != TURING or s.engine != "V1" or not s.does.triton_tiles_of_32:
        return
    if s.backend is not None and not s.backend.upper().startswith("TRITON"):
        return
    widths = {layer.head_dim for layer in a.layers if layer.kind in {"full", "sliding"}}
    for width in sorted(widths, reverse=True):
        asked = _ASKED.get((1 << (width - 1).bit_length(), s.element), 0)
        if asked > _GIVES and not _by_flashinfer(s, width):
            yield (
                f"{gpu.name}: Triton's attention asks for {asked} bytes of shared memory for heads of {width} in "
                f"{s.dtype}, and compute capability {TURING} gives a kernel {_GIVES}: the first prompt ends the "
                f"server, if not its start"
            )
            return


def _by_flashinfer(s: Settings, width: int) -> bool:
    """Does FlashInfer, which goes first on Turing to 0.23, take this head?"""
    first = s.backend is None and s.does.fp8_cache_by_flashinfer and not s.does.flashinfer_from_ampere
    return first and s.element == _FLASHINFER_BYTES and (width <= 256 or s.does.flashinfer_wide_heads)

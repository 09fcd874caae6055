"""What loading strands: memory that torch holds, that no tensor can use, and that vLLM's budget does not charge.

Weights are charged by what is allocated, so pieces that loading left inside used segments count as free in the budget
of releases that add terms up. On the card they are missing after the pool and the graphs have taken their share.
"""

from __future__ import annotations

from math import ceil

from vllm_doctor.knowledge.generations import BLACKWELL, HOPPER
from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.model.quantization import MXFP4, Scheme
from vllm_doctor.plan.terms.matrices import feed_forward
from vllm_doctor.plan.terms.weights import WeightTarget, padded

# Share of the layers' remainders that were still stranded when the sampler ran out of memory. Fitted to one log:
# gpt-oss-20b on one H100 with 0.19.0 held 1.78 GiB unallocated, the remainders of its 24 layers are 3.16 GiB.
STRANDED = 1.78 / 3.16


def stranded(a: Architecture, s: Settings, gpu: Card | None, stage: int, fmt: Scheme) -> float:
    """Bytes stranded on one rank of a pipeline stage.

    MXFP4 experts for Triton on Hopper are converted after loading, first gate and up, then down: the smaller result
    lands in a segment that the larger left behind, and the remainder can neither be used nor returned (vLLM pull
    request 41268, which ended it).
    """
    hopper = gpu is not None and gpu.capability is not None and HOPPER <= gpu.capability < BLACKWELL
    if a.moe is None or not hopper or not s.does.strands_mxfp4:
        return 0.0
    parts = s.parallel.stages(len(a.layers))
    start = sum(parts[:stage])
    target = WeightTarget(s.element, capability=gpu.capability if gpu is not None else None)
    left = 0.0
    for index in range(start, start + parts[stage]):
        sizes = {"up": 0.0, "down": 0.0}
        for plain in feed_forward(a, index, f"{a.text_prefix}.layers.{index}", s.parallel):
            if plain.expert and fmt.choose(plain.name, plain.expert) is MXFP4:
                m = padded(plain, MXFP4, target)
                sizes["down" if m.name.endswith("down_proj") else "up"] += (
                    ceil(m.out) * ceil(m.inner) * m.count * MXFP4.bits / 8
                )
        left += max(0.0, sizes["up"] - sizes["down"])
    return STRANDED * left

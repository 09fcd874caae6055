"""Has the torch that runs the release code for this card?

The first kernel ends the start on a card that torch has no code for, and which of the published builds is installed no
launch shows: on the Python index torch 2.7 is for CUDA 12.6, which compiles nothing for 10.0 and newer, while vLLM's
images of the same releases have the one for CUDA 12.8, which was published without 7.0.
"""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.knowledge import builds
from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.plan.launch.settings import Dependence, Settings

_BUILD = "the build of torch"
_TELLS = "python -c 'import torch; print(torch.cuda.get_arch_list())' settles it"


def depends(s: Settings, gpu: Card | None) -> Iterator[Dependence]:
    """On the build of torch, where some published one, or all, have no code for the card. A Jetson has other builds;
    what vLLM's wheel has no code for is refused."""
    if gpu is None or gpu.capability is None or gpu.backend != "CUDA" or gpu.template == "tegra":
        return
    capability = gpu.capability
    found = builds.torch_without(capability, s.version)
    if found is None or builds.has_code(capability, s.version) is False:
        return
    if found.other is None:
        yield Dependence(
            _BUILD,
            f"no published build of {found.torch} has code for compute capability {capability}, "
            f"which CUDA compiles for from 12.8 on; a build from source may. {_TELLS}",
        )
        return
    yield Dependence(
        _BUILD,
        f"only the build of {found.torch} for CUDA {found.other} has code for compute capability {capability}; "
        f"the Python index has the build for CUDA {found.cuda}, vLLM's image the other. {_TELLS}",
    )

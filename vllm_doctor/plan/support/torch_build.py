"""Have the vLLM and the torch that run the release code for this card?

The first kernel ends the start on a card that torch has no code for, and which of the published builds is installed no
launch shows: on the Python index torch 2.7 is for CUDA 12.6, which compiles nothing for 10.0 and newer, while vLLM's
images of the same releases have the one for CUDA 12.8, which was published without 7.0. A card that is newer than all
code of vLLM's wheel is served by builds from source.
"""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.knowledge import builds
from vllm_doctor.knowledge.gpus import Card
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.plan.launch.settings import Dependence, Settings

_OF_VLLM = "the build of vLLM"
_BUILD = "the build of torch"
_TELLS = "python -c 'import torch; print(torch.cuda.get_arch_list())' settles it"


def depends(s: Settings, gpu: Card | None) -> Iterator[Dependence]:
    """On the build of vLLM, where the card is newer than its wheel's code; on that of torch, where some published one,
    or all, have no code for the card. A Jetson has other builds; a card that is too old is refused (card.py)."""
    if gpu is None or gpu.capability is None or gpu.backend != "CUDA" or gpu.template == "tegra":
        return
    capability = gpu.capability
    if builds.has_code(capability, s.version) is False:
        most = builds.newest(s.version)
        if most is not None and capability > float(most):
            yield Dependence(_OF_VLLM, _too_new(capability, most, s.version))
        return
    found = builds.torch_without(capability, s.version)
    if found is None:
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


def _too_new(capability: float, most: str, version: Version) -> str:
    other = builds.nearest_with(capability, version)
    instead = f"; {other} is the first whose wheel has" if other is not None else ""
    return (
        f"the wheel of {version} has code for compute capability {most} at most, and none for {capability}{instead}. "
        "A build from source may have, with a torch that has"
    )

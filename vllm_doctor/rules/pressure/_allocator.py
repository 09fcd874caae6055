"""When memory that torch holds unused is the reason that an allocation failed."""

from vllm_doctor.knowledge.torch_oom import TorchOom

# Some memory is always reserved but unused: rounding, split segments, private pools of graphs. Only above this share
# of what torch holds do the pieces, rather than a budget without room, explain the failure.
_SHARE = 0.1


def fragmented(torch: TorchOom | None) -> bool:
    """Would the unused memory have served the request, and is it more than the usual slack?"""
    if torch is None or torch.unused is None or torch.allocated is None or not torch.fragmented:
        return False
    usable = torch.unused - (torch.private_pools or 0)
    return usable >= torch.asked and torch.unused >= _SHARE * (torch.allocated + torch.unused)

"""Whether so much of the card was free that the KV cache cannot have stood: then it was the start."""

from vllm_doctor.log.torch_oom import TorchOom
from vllm_doctor.rules.case import Case

# Of the card, beyond what the fraction leaves out of the budget: a step gives back the peak that was measured for it,
# and one that asks for more than that is of a kind that was not measured.
_SPARE = 0.07
# Of the card, one tensor alone: no weight is as large, nor the cache of a layer.
_PIECE = 0.2


def before_cache(case: Case, torch: TorchOom | None) -> bool:
    """With the KV cache the card is full up to the fraction, less the peak of a pass; and a pass that found this much
    free was measured with less."""
    if torch is None or torch.total is None or torch.free is None or torch.private_pools:
        return False
    if not (case.budgeted or case.launched):
        return False  # a fraction that nobody saw may be lower than the default
    outside = (1 - case.utilization[0]) * torch.total
    return torch.asked > torch.free > outside + _SPARE * torch.total


def one_tensor(torch: TorchOom | None) -> bool:
    """Is the piece so large that only a pass over many tokens asks for it?"""
    return torch is not None and torch.total is not None and torch.asked > _PIECE * torch.total

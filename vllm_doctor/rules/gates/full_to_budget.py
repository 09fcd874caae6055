"""Whether the card is full up to the fraction, and not of weights: then the KV cache was there."""

from vllm_doctor.log.torch_oom import TorchOom
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.profile_run import weights_by_name

# Of the card: how far from the fraction torch's memory ends, by contexts, graphs and the buffers of a step.
_NEAR = 0.06
# Of what torch held, the part that weights may be where they and the pass that is measured cannot have filled it.
_LIGHT = 0.5
# Or the part of the card that is left beside them where the request was this small: a pass that takes as much asks for
# more at once.
_REST, _SMALL = 0.25, 0.03


def full_to_budget(case: Case, torch: TorchOom | None) -> bool:
    """Only the KV cache ends where the fraction does. A pass that is measured may fill the same, by chance."""
    if torch is None or torch.allocated is None or not torch.total or not case.budgeted:
        return False
    held = (torch.allocated + (torch.unused or 0)) / torch.total
    if abs(held - case.utilization[0]) > _NEAR:
        return False
    each = case.weights_gib or weights_by_name(case)
    if each is None:
        return False
    rest = torch.allocated / GIB - each
    small = torch.asked < _SMALL * torch.total
    return each < _LIGHT * torch.allocated / GIB or (small and rest > _REST * torch.total / GIB)

"""A part of a tensor that its file does not have, taken while weights are loaded: the checkpoint is at fault."""

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says

# torch's word for it (narrow), by its id in the catalogue.
NARROWED = "size-of-dimension"
# The calls that are nearest to the failure.
_NEAR = 3


def tensor_too_small(fault: Fault) -> bool:
    """Does the code that loads weights take more of the file's tensor than is there?"""
    calls = fault.functions[-_NEAR:]
    return NARROWED in fault.ids and any(says(name, "call-that-loads-weights") for name in calls)

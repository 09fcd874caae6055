"""Does a run compute on AMD's GPUs, or may it?"""

from vllm_doctor.knowledge import gpus
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import says
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.device import platform

# What only AMD's runtime says.
_OWN = frozenset({"gpu-page-fault", "hsa-exception"})


def on_rocm(case: Case) -> bool:
    """By the card's name or vLLM's own word; else by what the first failure and the lines of choices say."""
    run = case.run
    if case.gpu_name:
        return gpus.other_maker(case.gpu_name) == "AMD"
    if run is None:
        return False
    if (told := platform(case)) is not None:
        return told == "rocm"
    root = run.root
    if root is not None and root.ids & _OWN:
        return True
    if root is None:
        return False
    named = any(says(run.lines[i].text, "names-hip") for i in range(root.index, root.last + 1)[:200])
    return named or any(says(file, "call-of-amd") for file in root.files)


def platforms(case: Case, fault: Fault) -> frozenset[str]:
    """The platforms that it may be, where nothing names one: those whose devices have the on-chip memory that the
    failure tells; empty where it tells none, or one that is not known."""
    if case.gpu_name or platform(case) is not None or on_rocm(case):
        return frozenset()
    return frozenset(row.platform for row in _limited(fault))


def least_capability(case: Case, fault: Fault) -> float | None:
    """The least compute capability of the NVIDIA cards that it may be: the named one's, else that of those with the
    on-chip memory that the failure tells; None where neither is known."""
    card = gpus.find(case.gpu_name) if case.gpu_name else None
    if card is not None:
        return card.capability
    return min((c for row in _limited(fault) for c in row.capabilities), default=None)


def _limited(fault: Fault) -> tuple[gpus.OnChip, ...]:
    told = fault.fields("triton-shared").get("limit")
    return gpus.with_on_chip(int(told)) if told is not None else ()

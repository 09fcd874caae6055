"""Weights that the ranks cannot share evenly: the next smaller split at which every part comes out whole."""

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.say import set_flag


def smaller_split(case: Case, fault: Fault, told: str) -> Change | None:
    """Weights that the ranks cannot share evenly: the next smaller split at which the parts come out whole.

    The message gives a rank's part and the block it must hold whole blocks of (quantization), or the heads and the
    ranks; the parts of all ranks together are the layer.
    """
    size = case.count("tensor-parallel-size") or 1
    file = fault.crash.root.frames[-1].file if fault.crash is not None and fault.crash.root.frames else ""
    if (
        size < 2
        or not says(told, "split-too-fine")
        or says(told, "sizes-of-the-model")
        or (file and not says(file, "call-that-splits"))
    ):
        return None
    found = read("not-divisible", told)
    to: int | None = size // 2
    why = "the part of each rank must consist of whole blocks"
    if found is not None:
        whole, part = int(found["whole"]), int(found["part"])
        heads = part == size
        why = f"that many ranks divide {whole} evenly" if heads else f"each rank then gets whole blocks of {part}"
        to = next((n for n in range(size - 1, 0, -1) if _fits(whole, part, size, n, heads=heads)), None)
        if to is None:
            return None
    return set_flag(case, "tensor-parallel-size", to, Direction.LOWER, why)


def _fits(whole: int, part: int, size: int, to: int, *, heads: bool) -> bool:
    if heads:
        return whole % to == 0
    return size % to == 0 and part > 0 and (whole * size // to) % part == 0

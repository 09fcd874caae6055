"""Weights that the ranks cannot share evenly: the next smaller split at which every part comes out whole."""

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.log.fault import Fault
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.say import set_flag

_DIVISIBLE = Pattern(
    r"(?<!\d)(?P<whole>\d+)\W{0,3}(?:\)|`)?\s{0,20}(?:is not|must be|to be|should be|not|is in|is un)\s?"
    r"(?:divisible|divisable)(?: by)?"
    r"[^\d\n]{0,90}?(?P<part>\d{1,24})"
)
# Sentences about a part of the weights that a rank gets; a model whose own sizes do not fit is none.
_TOO_SPLIT = Pattern(
    r"aligned with the quantized weight shape|^\d+ is not divisible by \d+$"
    r"|(?:partition|tp_size|world_size|gate's|down's|block_[nk]|min_thread|group[_ ]size|intermediate|in features"
    r"|in_features|out_features|vocab_size|pack_factor|input dimension|kv_heads|weight dim)"
    r"[^\n]{0,120}(?:divisible|multiple of)|divisible by (?:`?tp_size|tensor|world_size)"
)
_OF_THE_MODEL = Pattern(r"divisible by `?(?:num_heads|num_attention_heads|num_kv_heads|the number)")
# Where the weights are cut for the ranks.
_SPLITS = Pattern(r"/vllm/(?:model_executor/(?:layers|models|kernels)|distributed/utils|_custom_ops|utils)")


def smaller_split(case: Case, fault: Fault, told: str) -> Change | None:
    """Weights that the ranks cannot share evenly: the next smaller split at which the parts come out whole.

    The message gives a rank's part and the block it must hold whole blocks of (quantization), or the heads and the
    ranks; the parts of all ranks together are the layer.
    """
    size = case.count("tensor-parallel-size") or 1
    file = fault.crash.root.frames[-1].file if fault.crash is not None and fault.crash.root.frames else ""
    if size < 2 or not _TOO_SPLIT.search(told) or _OF_THE_MODEL.search(told) or not (_SPLITS.search(file) or not file):
        return None
    found = _DIVISIBLE.search(told)
    to: int | None = size // 2
    why = "each rank's part of the weights must hold whole blocks"
    if found is not None:
        whole, part = int(found["whole"]), int(found["part"])
        heads = part == size
        why = (
            f"{whole} is shared evenly by that many ranks"
            if heads
            else f"each rank's part is whole blocks of {part} then"
        )
        to = next((n for n in range(size - 1, 0, -1) if _fits(whole, part, size, n, heads=heads)), None)
        if to is None:
            return None
    return set_flag(case, "tensor-parallel-size", to, Direction.LOWER, why)


def _fits(whole: int, part: int, size: int, to: int, *, heads: bool) -> bool:
    if heads:
        return whole % to == 0
    return size % to == 0 and part > 0 and (whole * size // to) % part == 0

"""A KV cache of smaller elements."""

from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import Direction
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.kv_cache import TooSmall, on_cpu
from vllm_doctor.rules.say import set_flag


def half_size_kv(case: Case, small: TooSmall) -> Change | None:
    """fp8 KV cache, where twice the tokens that fit are enough and the cache is not already that small.

    Sizes are printed in rounded GiB, and newer releases keep a block back: 1.00 of 1.00 GiB may be a block short, which
    the tokens show. The CPU build takes no such cache: releases set it back to 16 bits (platforms/cpu.py).
    """
    need, have = small.need, small.have
    if (
        on_cpu(case)
        or need is None
        or have is None
        or 2 * small.fits < small.length
        or case.effective("kv-cache-dtype") not in {None, "auto", "bfloat16", "float16"}
    ):
        return None
    return set_flag(
        case,
        "kv-cache-dtype",
        "fp8",
        Direction.SET,
        (f"one byte per element: 2 × {small.fits} = {2 * small.fits} tokens fit; check the quality of answers"),
        predicted={"needed_kv_gib": round(need / 2, 2)},
    )

"""Whole numbers as people write them for vLLM: 8k, 1.5M (vllm/engine/arg_utils.py: human_readable_int)."""

import re

# Small letters are powers of ten, capital ones of two.
SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def scaled(text: str) -> int | None:
    """A whole number with a suffix, 8k or 1.5M; None for anything else."""
    found = re.fullmatch(r"(\d{1,18}(?:\.\d{1,18})?)([kKmMgGtT])", text.strip(), re.ASCII)
    return int(float(found[1]) * SUFFIXES[found[2]]) if found is not None else None

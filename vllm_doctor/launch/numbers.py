"""The values of options as numbers."""

import re

from vllm_doctor.knowledge.human_int import SUFFIXES


def number(text: str) -> float | None:
    """A number with one of vLLM's suffixes (`8k` and `1e4` as vLLM reads them); None for anything else."""
    found = re.fullmatch(r"(-?\d+(?:\.\d+)?(?:e-?\d+)?)([kKmMgGtT]?)", text.strip().replace("_", ""))
    return float(found[1]) * SUFFIXES.get(found[2], 1) if found is not None else None


def typed(text: str) -> int | float | str:
    """The text as the number that it is; any other text as it is."""
    if re.fullmatch(r"-?[0-9]{1,15}", text):
        return int(text)
    if re.fullmatch(r"-?([0-9]{1,15}\.?[0-9]{0,15}|\.[0-9]{1,15})(e[+-]?[0-9]{1,2})?", text):
        return float(text)
    return text

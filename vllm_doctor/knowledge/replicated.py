"""Where ranks split tokens instead of widths, and which architectures then hold their shared experts whole on each
(history/replicated.json, from config/parallel.py use_sequence_parallel_moe and the models' classes)."""

from __future__ import annotations

from collections.abc import Collection

from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.version import Version


def splits_tokens(backend: str, sizes: Collection[str], at: Version) -> bool | None:
    """Do ranks split tokens with this all-to-all backend, where these of expert, tensor and data parallelism are on?
    None between two releases that disagree."""
    table = history("replicated", "tokens")
    backends, needs = table.around("backends", at), table.around("needs", at)
    if backends is None or needs is None:
        return False  # before the first release that does so
    told = {
        backend in of.split() and set(needed.split()) <= set(sizes) for of, needed in zip(backends, needs, strict=True)
    }
    return told.pop() if len(told) == 1 else None


def whole_experts(architecture: str, at: Version) -> bool | None:
    """Are the shared experts of this architecture whole on each rank that splits tokens? None where its class cannot be
    followed, decides by something else, or is of two releases that disagree."""
    if history("replicated", "tokens").around("backends", at) is None:
        return False  # before the first release that splits tokens
    table = history("replicated", "shared_experts")
    known = table.exists(architecture, at)
    if known is None:
        return None
    told = set(table.around(architecture, at) or ()) if known else set()
    return told == {"whole"} if told <= {"whole"} else None

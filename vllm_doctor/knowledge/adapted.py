"""Which of its embedding and its head a release adapts of an architecture (history/adapted.json, from the models'
embedding_modules)."""

from __future__ import annotations

from vllm_doctor.knowledge.history import history
from vllm_doctor.knowledge.version import Version

HEAD = "lm_head"
_LOST = "lost"


def adapted_words(architecture: str, at: Version) -> frozenset[str] | None:
    """The names, such as embed_tokens and lm_head; None where the class cannot be followed, and between two releases
    that disagree."""
    table = history("adapted", "adapted")
    known = table.exists(architecture, at)
    if known is None:
        return None
    told = set(table.around(architecture, at) or ()) if known else {""}
    return frozenset(told.pop().split()) if len(told) == 1 and _LOST not in told else None

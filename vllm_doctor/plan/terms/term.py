"""One line of a sum."""

from __future__ import annotations

import msgspec


class Term(msgspec.Struct, frozen=True):
    """One figure of the sum: what, how many bytes, the formula with its numbers, and the vLLM source of it."""

    name: str
    bytes: float
    formula: str
    source: str

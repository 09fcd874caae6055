"""The names that are most like one that was written; of a text that is longer than any name there are none."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST = 100  # comparing takes the product of the two lengths


def near(written: str, names: Iterable[str], count: int = 2, like: float = 0.6) -> list[str]:
    """Up to `count` names, the most alike first; `like` from 0 to 1 is how alike the least is."""
    return difflib.get_close_matches(written, list(names), count, like) if len(written) <= _LONGEST else []

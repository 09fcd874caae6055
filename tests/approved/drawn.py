"""Draws by a hash of names: what is added beside moves those draws alone that have it now."""

import hashlib
from collections.abc import Sequence


def drawn(seed: str, all_of: Sequence[str], count: int) -> list[str]:
    """Those whose names come first after the seed, as a hash orders them."""
    return sorted(all_of, key=lambda one: hashlib.sha256(f"{seed} {one}".encode()).digest())[:count]

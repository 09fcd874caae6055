"""Terms of a start that are known before it is planned."""

from __future__ import annotations

import msgspec
from msgspec.structs import asdict


class KnownTerms(msgspec.Struct, frozen=True):
    """Terms that are known instead of predicted, in GiB per GPU (a measured start, an index of the checkpoint, a
    question)."""

    weights_gib: float | None = None
    available_kv_gib: float | None = None
    non_torch_gib: float | None = None
    activation_gib: float | None = None
    graphs_gib: float | None = None
    host_gib: float | None = None  # memory of the host itself

    def over(self, other: KnownTerms) -> KnownTerms:
        """These terms, and the other's where these are not known."""
        pairs = ((name, getattr(self, name), theirs) for name, theirs in asdict(other).items())
        return KnownTerms(**{name: theirs if mine is None else mine for name, mine, theirs in pairs})

"""Do the heads of the vision tower divide by the ranks, where the release asserts it (tower_heads.json)?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from vllm_doctor.knowledge.version import as_version
from vllm_doctor.knowledge.versions import Version
from vllm_doctor.launch.parse import Refusal
from vllm_doctor.plan.launch.settings import Settings
from vllm_doctor.plan.launch.towers import may_be_whole
from vllm_doctor.plan.model.architecture import Architecture
from vllm_doctor.plan.terms.encoder import without_tower


class _Table(msgspec.Struct, frozen=True):
    """How a tower's model_type begins → the first release that asserts, and the first that no longer does."""

    source: str
    kinds: dict[str, tuple[str, str | None]]


@cache
def _table() -> _Table:
    return msgspec.json.decode(Path(__file__).with_name("tower_heads.json").read_bytes(), type=_Table)


def _asserted(kind: str, version: Version) -> bool:
    spans = (span for begin, span in _table().kinds.items() if kind.startswith(begin))
    return any(version >= as_version(first) and (end is None or version < as_version(end)) for first, end in spans)


def refusals(a: Architecture, s: Settings) -> Iterator[Refusal]:
    """One refusal, for heads that do not divide by the ranks among which the tower is split."""
    v, ranks = a.vision, s.parallel.tower_split
    if v is None or not v.heads_told or v.heads % ranks == 0 or without_tower(a, s):
        return
    if not _asserted(v.kind, s.version):
        return
    needed = f"a divisor of {v.heads}, the heads of the vision tower"
    if may_be_whole(a, s.version):
        needed += "; or --mm-encoder-tp-mode data, which keeps it whole on each rank"
    yield Refusal("--tensor-parallel-size", str(s.parallel.tp), needed)

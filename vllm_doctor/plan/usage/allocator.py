"""What can be known of torch's allocator from outside: an out-of-memory error's own words, and the cards' totals."""

import msgspec

from vllm_doctor.log.torch_oom import TorchOom, torch_oom
from vllm_doctor.records.reading import Known, Unknown
from vllm_doctor.records.snapshot import Snapshot


class TorchError(msgspec.Struct, frozen=True):
    """One out-of-memory error of torch, in bytes; None where its wording does not say it."""

    line: int
    asked: int
    free: int | None
    allocated: int | None
    unallocated: int | None
    fragmented: bool | None


class AllocatorUse(msgspec.Struct, frozen=True):
    """One GPU's memory in bytes; `others` is held by processes that are not of this unit."""

    index: int
    name: str
    total: int
    free: int
    ours: int | None
    others: int | None


class Allocator(msgspec.Struct, frozen=True):
    """What is known, and why the rest is not."""

    error: TorchError | None
    cards: tuple[AllocatorUse, ...]
    why_not: str


def allocator(snapshot: Snapshot) -> Allocator:
    """What the log and NVML tell of the memory around the KV cache."""
    return Allocator(_last_error(snapshot), _cards(snapshot), _why(snapshot))


def _last_error(snapshot: Snapshot) -> TorchError | None:
    if not isinstance(snapshot.log, Known):
        return None
    for line in reversed(snapshot.log.value.last.lines):
        if (said := torch_oom(line.text)) is not None:
            return _error(line.number, said)
    return None


def _error(line: int, said: TorchOom) -> TorchError:
    return TorchError(line, said.asked, said.free, said.allocated, said.unused, said.fragmented)


def _cards(snapshot: Snapshot) -> tuple[AllocatorUse, ...]:
    if not isinstance(snapshot.gpus, Known):
        return ()
    unit = snapshot.subject.unit
    found: list[AllocatorUse] = []
    for gpu in snapshot.gpus.value:
        if gpu.total_bytes is None or gpu.free_bytes is None:
            continue
        ours = [p.used_bytes for p in gpu.processes if unit is not None and p.unit == unit]
        others = [p.used_bytes for p in gpu.processes if unit is None or p.unit != unit]
        found.append(AllocatorUse(gpu.index, gpu.name, gpu.total_bytes, gpu.free_bytes, _sum(ours), _sum(others)))
    return tuple(found)


def _sum(used: list[int | None]) -> int | None:
    """None if one of them is not told: an unknown is not 0."""
    known = [one for one in used if one is not None]
    return sum(known) if len(known) == len(used) else None


def _why(snapshot: Snapshot) -> str:
    """vLLM exports no allocator statistics: that much is always unknown."""
    told = "vLLM's /metrics has no figures of torch's allocator; only an out-of-memory error in the log shows them"
    if isinstance(snapshot.gpus, Unknown):
        return f"{told}; the cards: {snapshot.gpus.reason}"
    return told

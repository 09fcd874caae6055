"""torch's own out-of-memory message, in the wordings of torch 1.12 to 2.14 on CUDA, HIP and XPU; sizes in bytes."""

import msgspec

from vllm_doctor.knowledge.pattern import Pattern

_UNITS = {"bytes": 1, "byte": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = r"(\d{1,15}(?:\.\d{1,9})?) (bytes?|[KMGT]iB|B)\b"

_ASKED = Pattern(r"(CUDA|HIP|XPU|NPU) out of memory\. Tried to allocate " + _SIZE)
_GPU = Pattern(r"GPU (\d{1,6})")
_TOTAL = Pattern(r"total capac(?:i)?ty of " + _SIZE)
_TOTAL_OLD = Pattern(_SIZE + r" total capacity")
_FREE = Pattern(r"of which " + _SIZE + r" is free")
_FREE_OLD = Pattern(r"; " + _SIZE + r" free")
_OTHER = Pattern(r"Process (\d{1,10}) has " + _SIZE + r" memory in use")
_MINE = Pattern(r"this process has " + _SIZE + r" memory in use")
_ALLOCATED = Pattern(r"allocated memory " + _SIZE + r" is allocated by PyTorch")
_ALLOCATED_OLD = Pattern(_SIZE + r" already allocated")
_POOLS = Pattern(r"with " + _SIZE + r" allocated in private pools")
_UNUSED = Pattern(_SIZE + r" is reserved by PyTorch but unallocated")
_RESERVED_OLD = Pattern(_SIZE + r" (?:reserved in total by PyTorch|cached)")
_ALLOWED = Pattern(r"; " + _SIZE + r" allowed")
# A driver context takes 0.3 to 0.6 GiB; cuBLAS and NCCL add to it.
_CONTEXT = 1 << 30
# Part of what torch holds that is always unused: rounding, split segments, private pools of graphs.
_SLACK = 0.1


class TorchOom(msgspec.Struct, frozen=True):
    """What torch said when an allocation failed; None where this wording does not say it."""

    asked: int
    backend: str
    gpu: int | None = None
    total: int | None = None
    free: int | None = None
    mine: int | None = None
    others: tuple[tuple[int, int], ...] = ()
    allocated: int | None = None
    private_pools: int | None = None
    unused: int | None = None
    allowed: int | None = None
    reserved: int | None = None

    @property
    def held_by_others(self) -> int | None:
        """Bytes of the card that this process does not hold; None where the wording leaves it open."""
        if self.others and self.mine is not None:
            return sum(size for _, size in self.others)
        if self.total is not None and self.free is not None and self.mine is not None:
            return max(0, self.total - self.free - self.mine)
        if len(self.others) > 1:
            # In a container torch does not know which of them is its own; the largest may be.
            return sum(size for _, size in self.others) - max(size for _, size in self.others)
        if self.total is not None and self.free is not None and self.reserved is not None:
            # torch 2.0 and older name no process: what it did not reserve itself, less a context of its own.
            return max(0, self.total - self.free - self.reserved - _CONTEXT)
        return None

    @property
    def fragmented(self) -> bool | None:
        """Would the memory that torch holds unused have served the request, had it been in one piece?

        Private pools of CUDA graphs serve no other request, so they do not count; and only above `_SLACK` do the
        pieces explain the failure. None where this wording does not say what torch holds.
        """
        if self.unused is None or self.allocated is None:
            return None
        usable = self.unused - (self.private_pools or 0)
        return usable >= self.asked > 0 and self.unused >= _SLACK * (self.allocated + self.unused)


def size(number: str, unit: str) -> int:
    """Bytes of `1.02 GiB`."""
    return round(float(number) * _UNITS[unit])


def _first(text: str, *patterns: Pattern) -> int | None:
    for pattern in patterns:
        found = pattern.search(text)
        if found is not None:
            return size(found[1], found[2])
    return None


def torch_oom(text: str) -> TorchOom | None:
    """The figures of torch's message, or None if `text` does not hold one."""
    asked = _ASKED.search(text)
    if asked is None:
        return None
    rest = text[asked.start() :]
    gpu = _GPU.search(rest)
    allocated = _first(rest, _ALLOCATED, _ALLOCATED_OLD)
    unused = _first(rest, _UNUSED)
    reserved = _first(rest, _RESERVED_OLD)
    if unused is None and allocated is not None and reserved is not None:
        unused = max(0, reserved - allocated)
    return TorchOom(
        asked=size(asked[2], asked[3]),
        backend=asked[1],
        gpu=int(gpu[1]) if gpu else None,
        total=_first(rest, _TOTAL, _TOTAL_OLD),
        free=_first(rest, _FREE, _FREE_OLD),
        mine=_first(rest, _MINE),
        others=tuple((int(p), size(n, u)) for p, n, u in (found.groups() for found in _OTHER.finditer(rest))),
        allocated=allocated,
        private_pools=_first(rest, _POOLS),
        unused=unused,
        allowed=_first(rest, _ALLOWED),
        reserved=reserved,
    )

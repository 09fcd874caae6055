"""torch's own out-of-memory message, in the wordings of torch 1.12 to 2.14 on CUDA, HIP and XPU; sizes in bytes."""

import msgspec

from vllm_doctor.log.match import each, first, pattern, read

# In any letters, and without the `i`: people type such a message again.
_POWERS = {"k": 10, "m": 20, "g": 30, "t": 40}
# Whose it is where the message was quoted without its beginning.
_USUAL = "CUDA"
# XLA names no device; vLLM's platform with it is this one.
_TPU = "TPU"
# A driver context takes 0.3 to 0.6 GiB; cuBLAS and NCCL add to it.
_CONTEXT = 1 << 30
# With what NCCL, graphs and libraries map beside it.
_BESIDE = 3 << 30
# What each of the other ranks of one engine may take of a card that is not its own: a context and peer buffers.
_PEER, _ALIKE = 2 << 30, 0.03
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
    program: bool = False  # what a compiled program lacks beside all that it is handed over, no piece of its own

    @property
    def held_by_others(self) -> int | None:
        """Bytes of the card that this process does not hold; None where the wording leaves it open."""
        if self.others and self.mine is not None:
            return 0 if self._peers else sum(size for _, size in self.others)
        if self.total is not None and self.free is not None and self.mine is not None:
            return max(0, self.total - self.free - self.mine)
        if len(self.others) > 1:
            return sum(size for _, size in self.others) - self._own_of_these
        if (apart := self._apart) is not None:
            return apart
        if self.total is not None and self.free is not None and self.reserved is not None:
            # torch 2.0 and older name no process: what it did not reserve itself, less a context of its own.
            return max(0, self.total - self.free - self.reserved - _CONTEXT)
        return None

    @property
    def _apart(self) -> int | None:
        """What another process holds at the least where torch names one process and does not say what is its own: the
        named one is its own, or the rest of the card is; and neither is a context alone."""
        if len(self.others) != 1 or self.total is None or self.free is None:
            return None
        named = self.others[0][1]
        rest, held = self.total - self.free - named, (self.allocated or 0) + (self.unused or 0)
        if min(named, rest) <= _BESIDE:
            return None
        if held:
            return rest if held <= named <= held + _BESIDE else named if held > named else None
        return min(named, rest)

    @property
    def tells_whose(self) -> bool:
        """Does it say what this process holds? A message that was cut before that leaves open whether another one holds
        the rest of the card."""
        return self.allocated is not None or self.mine is not None

    @property
    def _own_of_these(self) -> int:
        """In a container torch does not know which of the processes is its own: it is the one that holds what torch
        itself holds, and a context beside it. Where none or several do, the largest may be."""
        held = (self.allocated or 0) + (self.unused or 0)
        sizes = [size for _, size in self.others]
        alike = [size for size in sizes if held <= size <= held + _BESIDE] if held else []
        return alike[0] if len(alike) == 1 else max(sizes)

    @property
    def _peers(self) -> bool:
        """Are the others ranks of the same engine? Several, all of one size, and none larger than a context."""
        sizes = [size for _, size in self.others]
        return len(sizes) > 1 and max(sizes) <= _PEER and max(sizes) - min(sizes) <= _ALIKE * max(sizes)

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
    return round(float(number) * (1 << _POWERS.get(unit[0].lower(), 0)))


def _bytes(said: dict[str, str]) -> int:
    return size(said["size"], said["unit"])


def _first(text: str, *parts: str) -> int | None:
    said = first([text], *parts)
    return _bytes(said) if said is not None else None


def _of_xla(text: str) -> TorchOom | None:
    """The figures of XLA's status: what a program needs beyond the chip, or a piece and what was free."""
    program = read("xla-used", text)
    if program is not None:
        used, limit = (size(program[name], "GiB") for name in ("used", "limit"))
        return TorchOom(asked=max(used - limit, 0), backend=_TPU, total=limit, free=0, program=True)
    piece = read("xla-piece", text)
    if piece is None:
        return None
    asked, free = (size(piece[name], f"{piece[unit]}iB") for name, unit in (("asked", "in"), ("free", "of")))
    return TorchOom(asked=asked, backend=_TPU, free=free)


def torch_oom(text: str) -> TorchOom | None:
    """The figures of torch's message, or None if `text` does not hold one."""
    begin = pattern("torch-oom-asked").search(text)
    if begin is None:
        return _of_xla(text)
    rest = text[begin.start() :]
    gpu = read("torch-oom-gpu", rest)
    allocated = _first(rest, "torch-oom-allocated", "torch-oom-allocated-old")
    unused = _first(rest, "torch-oom-unused")
    reserved = _first(rest, "torch-oom-reserved-old")
    if unused is None and allocated is not None and reserved is not None:
        unused = max(0, reserved - allocated)
    mine = _first(rest, "torch-oom-own")
    if mine is not None and mine < (allocated or 1):
        mine = None  # in a container the driver does not tell torch which process it is: it prints 0 bytes
    return TorchOom(
        asked=size(begin["size"], begin["unit"]),
        backend=(begin["backend"] or _USUAL).upper(),
        gpu=int(gpu["gpu"]) if gpu else None,
        total=_first(rest, "torch-oom-total", "torch-oom-total-old"),
        free=_first(rest, "torch-oom-free", "torch-oom-free-old"),
        mine=mine,
        others=tuple((int(said["pid"]), _bytes(said)) for said in each("torch-oom-other", rest)),
        allocated=allocated,
        private_pools=_first(rest, "torch-oom-pools"),
        unused=unused,
        allowed=_first(rest, "torch-oom-allowed"),
        reserved=reserved,
    )

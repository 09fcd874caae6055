"""Processes that a unit left behind on its GPUs: told by GPU, pid, start time and systemd's own mark, never by a name.

systemd gives all that a service starts the service's INVOCATION_ID, and a process keeps it wherever it goes. Who has
none of this unit's is another's, however it is called.
"""

import os
import select
import signal
import time
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from vllm_doctor.gather import procfs
from vllm_doctor.records.host import Gpu


class Holder(msgspec.Struct, frozen=True):
    """A process that holds memory of a GPU. `why_not` says why it is not this unit's to end; empty where it is.

    `started` is its start in the kernel's ticks, which tells it from a later process with its number.
    """

    pid: int
    started: int
    gpu: str
    used: int | None
    user: str
    unit: str
    why_not: str = ""

    @property
    def told(self) -> str:
        """The process in one line."""
        held = "an unknown size" if self.used is None else f"{self.used / (1 << 30):.2f} GiB"
        return f"pid {self.pid} of user {self.user}, {self.unit or 'of no unit'}, holds {held} of {self.gpu}"


def holders(gpus: Iterable[Gpu], unit: str, invocations: frozenset[str]) -> tuple[Holder, ...]:
    """Who holds memory of these GPUs. `invocations` are the unit's, of this boot."""
    found: list[Holder] = []
    for gpu in gpus:
        for process in gpu.processes:
            began = procfs.started(process.pid)
            name = gpu_name(gpu)
            if began is None:
                found.append(
                    Holder(process.pid, 0, name, process.used_bytes, "unknown", "", "gone, or in another namespace")
                )
                continue
            whose = procfs.unit_of(process.pid) or ""
            found.append(
                Holder(
                    process.pid,
                    began,
                    name,
                    process.used_bytes,
                    procfs.user_of(process.pid) or "unknown",
                    whose,
                    _why_not(process.pid, whose, unit, invocations),
                )
            )
    return tuple(found)


def gpu_name(gpu: Gpu) -> str:
    """Its UUID, which stays when GPUs are counted anew; its number where the driver tells none."""
    return gpu.uuid or f"GPU {gpu.index}"


def _why_not(pid: int, whose: str, unit: str, invocations: frozenset[str]) -> str:
    if procfs.container_of(pid) is not None or _namespace(pid) != _namespace("self"):
        return "it runs in a container"
    if whose == unit:
        return ""
    if whose:
        return f"it is {whose}'s"
    mark = (procfs.environ(pid) or {}).get("INVOCATION_ID", "")
    if not mark:
        return "no evidence shows that this unit started it"
    return "" if mark in invocations else "another service started it"


def _namespace(pid: int | str) -> str:
    try:
        return os.readlink(procfs.PROC / str(pid) / "ns" / "pid")  # noqa: PTH115 - /proc's links are no paths
    except OSError:
        return ""


def end(mine: Iterable[Holder], patience_s: float) -> tuple[Holder, ...]:
    """SIGTERM, and after `patience_s` seconds SIGKILL; those that live on. A number that meanwhile is another process
    is left alone: the signal goes to the very process whose start was seen."""
    left = _signal(mine, signal.SIGTERM, patience_s)
    return _signal(left, signal.SIGKILL, patience_s) if left else ()


def _signal(those: Iterable[Holder], number: signal.Signals, patience_s: float) -> tuple[Holder, ...]:
    handles: dict[int, Holder] = {}
    for one in those:
        with suppress(OSError):
            handle = os.pidfd_open(one.pid)
            if procfs.started(one.pid) == one.started:
                signal.pidfd_send_signal(handle, number)
                handles[handle] = one
            else:
                os.close(handle)
    until = time.monotonic() + patience_s
    living = dict(handles)
    while living and (rest := until - time.monotonic()) > 0:
        for handle in select.select(list(living), [], [], rest)[0]:
            del living[handle]
    for handle in handles:
        os.close(handle)
    return tuple(living.values())

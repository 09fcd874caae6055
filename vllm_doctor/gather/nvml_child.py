"""Asks the NVIDIA driver, in a process of its own: a driver that hangs or crashes takes only this one with it.

Prints one JSON object a line as soon as it is known, so that what came before a hang is not lost. The values are as
NVML gives them; `gather.nvml` makes records of them. Each call's failure is NVML's number, beside the values.
"""

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pynvml

RECOVERY_ACTION = 230
# NVML_FI_DEV_NVLINK_*_ERROR_COUNT_TOTAL, all links of a GPU together; NVLink 5 has others, of each link.
NVLINK_ERRORS = {"crc-flit": 38, "crc-data": 45, "replay": 52, "recovery": 59, "ecc-data": 160}


def say(kind: str, **facts: object) -> None:
    """One line for the parent, written at once."""
    sys.stdout.write(json.dumps({"kind": kind, **facts}) + "\n")
    sys.stdout.flush()


class Asker:
    """Collects values and, for calls that failed, NVML's error numbers."""

    def __init__(self) -> None:
        self.values: dict[str, object] = {}
        self.errors: dict[str, int] = {}

    def ask(self, name: str, call: Callable[[], Any]) -> Any:
        """The call's value, kept under `name`; None when NVML refused."""
        try:
            value = call()
        except pynvml.NVMLError as refused:
            self.errors[name] = refused.value
            return None
        self.values[name] = value
        return value


def library() -> str | None:
    """The file that libnvidia-ml.so.1 resolved to; its name ends in the version of the user-space driver."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    paths = {line.split(maxsplit=5)[5] for line in maps.splitlines() if "libnvidia-ml" in line and line.count(" ") > 4}
    return os.path.realpath(min(paths)) if paths else None


def ask_gpu(index: int) -> None:
    """One GPU, cheapest and most telling calls first."""
    gpu = Asker()
    handle = gpu.ask("handle", lambda: pynvml.nvmlDeviceGetHandleByIndex(index))
    if handle is None:
        say("gpu", index=index, values={}, errors=gpu.errors)
        return
    gpu.values.clear()
    _identity(gpu, handle)
    _memory(gpu, handle)
    _processes(gpu, handle)
    _health(gpu, handle)
    say("gpu", index=index, values=gpu.values, errors=gpu.errors)
    mig = gpu.values.get("mig_mode")
    if isinstance(mig, (list, tuple)) and mig[0] == 1:
        _slices(index, handle)


def _identity(gpu: Asker, handle: Any) -> None:
    gpu.ask("uuid", lambda: pynvml.nvmlDeviceGetUUID(handle))
    gpu.ask("name", lambda: pynvml.nvmlDeviceGetName(handle))
    gpu.ask("pci", lambda: _text(pynvml.nvmlDeviceGetPciInfo(handle).busId))
    gpu.ask("capability", lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle))
    gpu.ask("mig_mode", lambda: pynvml.nvmlDeviceGetMigMode(handle))


def _memory(gpu: Asker, handle: Any) -> None:
    """v2 tells what the driver keeps for itself; before driver 510 there is only v1. `used` is never taken: its meaning
    differs between the two and between the header's own comments."""
    memory = gpu.ask("memory", lambda: _figures(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)))
    if memory is None and gpu.errors.get("memory") in {pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, 25}:
        del gpu.errors["memory"]
        gpu.ask("memory", lambda: _figures(pynvml.nvmlDeviceGetMemoryInfo(handle)))


def _figures(memory: Any) -> dict[str, int | None]:
    return {"total": memory.total, "free": memory.free, "reserved": getattr(memory, "reserved", None)}


def _processes(gpu: Asker, handle: Any) -> None:
    found: dict[int, int | None] = {}
    for kind, call in (
        ("compute", pynvml.nvmlDeviceGetComputeRunningProcesses),
        ("graphics", pynvml.nvmlDeviceGetGraphicsRunningProcesses),
        ("mps", pynvml.nvmlDeviceGetMPSComputeRunningProcesses),
    ):
        listed = gpu.ask(f"processes_{kind}", partial(_pids, call, handle))
        gpu.values.pop(f"processes_{kind}", None)
        found.update(listed or ())
    gpu.values["processes"] = [[pid, used] for pid, used in sorted(found.items())]


def _pids(call: Callable[[Any], Any], handle: Any) -> list[tuple[int, int | None]]:
    return [(process.pid, process.usedGpuMemory) for process in call(handle)]


def _health(gpu: Asker, handle: Any) -> None:
    gpu.ask("recovery", lambda: _field(handle, RECOVERY_ACTION))
    gpu.ask("remap", lambda: pynvml.nvmlDeviceGetRemappedRows(handle))
    gpu.ask(
        "ecc",
        lambda: pynvml.nvmlDeviceGetTotalEccErrors(
            handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        ),
    )
    gpu.ask("clocks", lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    if gpu.errors.get("clocks") == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
        del gpu.errors["clocks"]
        gpu.ask("clocks", lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    gpu.ask("compute_mode", lambda: pynvml.nvmlDeviceGetComputeMode(handle))
    gpu.ask("persistence", lambda: pynvml.nvmlDeviceGetPersistenceMode(handle))
    gpu.ask("pcie_width", lambda: pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle))
    gpu.ask("pcie_width_max", lambda: pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle))
    gpu.ask("temperature", lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))
    links: dict[int, bool] = {}
    for link in range(18):
        state = gpu.ask(f"nvlink{link}", partial(pynvml.nvmlDeviceGetNvLinkState, handle, link))
        gpu.values.pop(f"nvlink{link}", None)
        if state is None:
            gpu.errors.pop(f"nvlink{link}")
            break
        links[link] = state != 0
    gpu.values["nvlinks"] = sorted(links.items())
    if any(links.values()):
        gpu.values["nvlink_errors"] = _nvlink_errors(handle)


def _nvlink_errors(handle: Any) -> dict[str, int]:
    """What this driver counts of this card; another lacks some or all."""
    told = {}
    for kind, field in NVLINK_ERRORS.items():
        try:
            told[kind] = _field(handle, field)
        except pynvml.NVMLError:
            continue
    return told


def _field(handle: Any, field: int) -> int:
    answer = pynvml.nvmlDeviceGetFieldValues(handle, [field])[0]
    if answer.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(answer.nvmlReturn)
    return int(answer.value.uiVal)


def _slices(parent: int, handle: Any) -> None:
    """MIG slices: the parent's index answers for the parent, so each slice is asked by its own handle."""
    for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        part = Asker()
        inner = part.ask("handle", partial(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number))
        if inner is None:
            continue
        part.values.clear()
        part.ask("uuid", partial(pynvml.nvmlDeviceGetUUID, inner))
        part.ask("name", partial(pynvml.nvmlDeviceGetName, inner))
        _memory(part, inner)
        _processes(part, inner)
        say("slice", index=parent, values=part.values, errors=part.errors)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def main() -> None:
    """Initialise, tell the versions, then each GPU."""
    system = Asker()
    if system.ask("load", pynvml._LoadNvmlLibrary) is None and system.errors:  # noqa: SLF001 - to tell loading from init
        say("end", errors=system.errors)
        return
    say("library", path=library())
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as refused:
        say("end", errors={"init": refused.value})
        return
    system = Asker()
    system.ask("driver", pynvml.nvmlSystemGetDriverVersion)
    system.ask("cuda", pynvml.nvmlSystemGetCudaDriverVersion_v2)
    count = system.ask("count", pynvml.nvmlDeviceGetCount) or 0
    say("system", values=system.values, errors=system.errors)
    for index in range(count):
        ask_gpu(index)
    say("end", errors={})


if __name__ == "__main__":
    main()

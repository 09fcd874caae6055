"""What the child said of the driver and its cards, as records: NVML's numbers become words here and nowhere else."""

from collections.abc import Mapping

import msgspec

from vllm_doctor.gather import procfs
from vllm_doctor.records.host import Gpu, GpuProcess

NOT_SUPPORTED, NO_PERMISSION, NOT_LOADED, NO_LIBRARY, GPU_IS_LOST, MISMATCH = 3, 4, 9, 12, 15, 18
SAYS = {
    4: ("no permission", "run as root, or give this user access to /dev/nvidia*"),
    9: ("the driver is not loaded", "sudo modprobe nvidia; then: dmesg | grep -i nvidia"),
    12: ("libnvidia-ml.so.1 is not installed", "install the driver's libraries (role nvidia_driver)"),
    13: ("this driver is too old for that call", "upgrade the driver"),
    15: ("the GPU is lost (fallen off the bus)", "look for Xid 79 in the kernel log; reboot the host"),
    16: ("the GPU needs a reset", "drain the host, then reset the GPU or reboot"),
    17: (
        "the operating system or a cgroup blocks the driver",
        "restart the container or service that lost the devices",
    ),
    18: (
        "driver/library version mismatch: the libraries were upgraded under a loaded kernel module",
        "reboot, or stop all GPU programs and reload the nvidia modules",
    ),
    999: ("unknown error of the driver", "look at the kernel log: journalctl -k -b | grep -i nvrm"),
}
_RECOVERY = {
    0: "none", 1: "reset", 2: "reboot", 3: "drain-p2p", 4: "drain-and-reset", 5: "recover-imex-domain", 6: "bus-reset",
    7: "system-reboot",
}  # fmt: skip
_COMPUTE_MODE = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
# Idle (0x1) and what the operator asked for are not throttling, but they are told.
_REASONS = {
    0x1: "idle", 0x2: "applications-clocks", 0x4: "sw-power-cap", 0x8: "hw-slowdown", 0x10: "sync-boost",
    0x20: "sw-thermal", 0x40: "hw-thermal", 0x80: "hw-power-brake", 0x100: "display", 0x200: "board-limit",
    0x400: "reliability",
}  # fmt: skip


class Said(msgspec.Struct):
    """What the child printed, by kind."""

    library: str | None = None
    driver: str | None = None
    cuda: int | None = None
    gpus: tuple[Gpu, ...] = ()
    linked: dict[int, frozenset[int]] = {}
    errors: dict[str, int] = {}
    ended: bool = False
    asked_system: bool = False


class _Row(msgspec.Struct):
    """One line of the child."""

    kind: str
    path: str | None = None
    index: int = 0
    values: dict[str, object] = {}
    errors: dict[str, int] = {}


class _System(msgspec.Struct):
    driver: str | None = None
    cuda: int | None = None


def parse_said(out: bytes) -> Said:
    """What the child said before it ended, hung or died; a line that was torn off tells nothing."""
    said = Said()
    for line in out.splitlines():
        try:
            _take(said, msgspec.json.decode(line, type=_Row))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    said.gpus = _down(said)
    return said


def _take(said: Said, row: _Row) -> None:
    match row.kind:
        case "library":
            said.library = row.path
        case "system":
            system = msgspec.convert(row.values, _System)
            said.asked_system, said.driver, said.cuda = True, system.driver, system.cuda
        case "gpu":
            said.gpus += (_gpu(row.index, row.values, row.errors, None),)
            said.linked[row.index] = _up(row.values)
        case "slice":
            said.gpus += (_gpu(row.index, row.values, row.errors, row.index),)
        case "end":
            said.ended, said.errors = True, row.errors
        case _:
            return


class _Values(msgspec.Struct):
    """What the child says of one GPU; None and missing are the same."""

    uuid: str | None = None
    name: str | None = None
    pci: str | None = None
    capability: tuple[int, int] | None = None
    mig_mode: tuple[int, int] | None = None
    memory: dict[str, int | None] = {}
    processes: tuple[tuple[int, int | None], ...] = ()
    recovery: int | None = None
    remap: tuple[int, int, int, int] | None = None
    ecc: int | None = None
    clocks: int | None = None
    compute_mode: int | None = None
    persistence: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    temperature: int | None = None
    nvlinks: tuple[tuple[int, bool], ...] = ()
    nvlink_errors: dict[str, int] = {}


def _up(raw: Mapping[str, object]) -> frozenset[int]:
    """The NVLinks of a card that are up."""
    return frozenset(link for link, up in msgspec.convert(raw, _Values).nvlinks if up)


def _down(said: Said) -> tuple[Gpu, ...]:
    """The cards, each with those of its NVLinks that failed.

    NVML says "disabled" of a link that nothing is connected to (no bridge, no NVSwitch) as of one that failed, and of
    every link in MIG mode. A link failed where another of its card is up, or the same one of a card of its kind.
    """
    kinds: dict[str, set[int]] = {}
    for gpu in said.gpus:
        kinds.setdefault(gpu.name, set()).update(said.linked.get(gpu.index, ()))
    return tuple(
        msgspec.structs.replace(gpu, nvlink_down=())
        if gpu.mig_mode
        else msgspec.structs.replace(
            gpu, nvlink_down=tuple(n for n in gpu.nvlink_down if said.linked.get(gpu.index) or n in kinds[gpu.name])
        )
        for gpu in said.gpus
    )


def _gpu(index: int, raw: Mapping[str, object], errors: Mapping[str, int], parent: int | None) -> Gpu:
    values = msgspec.convert(raw, _Values)
    bad = next((code for code in errors.values() if code not in {NOT_SUPPORTED, NO_PERMISSION, 13}), None)
    return Gpu(
        index=index,
        name=values.name or "?",
        uuid=values.uuid,
        total_bytes=values.memory.get("total"),
        free_bytes=values.memory.get("free"),
        reserved_bytes=values.memory.get("reserved"),
        compute_capability=f"{values.capability[0]}.{values.capability[1]}" if values.capability else None,
        processes=tuple(_process(pid, used) for pid, used in values.processes),
        ecc_uncorrected=values.ecc,
        remap_pending=bool(values.remap[2]) if values.remap else None,
        remap_failed=bool(values.remap[3]) if values.remap else None,
        recovery_action=_RECOVERY.get(values.recovery, f"unknown ({values.recovery})")
        if values.recovery is not None
        else None,
        throttle_reasons=tuple(word for bit, word in _REASONS.items() if (values.clocks or 0) & bit),
        mig_mode=bool(values.mig_mode[0]) if values.mig_mode else None,
        compute_mode=_COMPUTE_MODE.get(values.compute_mode) if values.compute_mode is not None else None,
        persistence=bool(values.persistence) if values.persistence is not None else None,
        pcie_width=values.pcie_width,
        pcie_width_max=values.pcie_width_max,
        nvlink_down=tuple(link for link, up in values.nvlinks if not up),
        nvlink_errors=values.nvlink_errors,
        temperature_c=values.temperature,
        pci=values.pci,
        unified_memory=errors.get("memory") == NOT_SUPPORTED and "handle" not in errors,
        mig_parent=parent,
        error=SAYS.get(bad, (f"NVML error {bad}", ""))[0] if bad is not None else None,
    )


def _process(pid: int, used: int | None) -> GpuProcess:
    """NVML tells host process numbers: who it is can be told only in the host's own pid namespace."""
    told = procfs.stat(pid)
    if told is None:
        return GpuProcess(pid, used)
    return GpuProcess(pid, used, name=told[0], unit=procfs.unit_of(pid), user=procfs.user_of(pid))

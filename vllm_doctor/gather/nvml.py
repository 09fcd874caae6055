"""The GPUs and the driver as NVML tells them, asked in a child process that is left behind when the driver hangs."""

import re
from pathlib import Path

from vllm_doctor.gather import procfs, trust
from vllm_doctor.gather.bounded import text_of_start, whole_file
from vllm_doctor.gather.nvml_said import MISMATCH, NO_LIBRARY, SAYS, Said, parse_said
from vllm_doctor.gather.processes import NotRun, python
from vllm_doctor.records.host import Driver, Gpu
from vllm_doctor.records.reading import Absent, Known, Reading, Unknown

DEADLINE_S = 5.0
_PCI = Path("/sys/bus/pci/devices")
_MODULE = Path("/proc/driver/nvidia/version")
_NVIDIA = "0x10de"
# dpkg's list of all packages; some MiB on a full desktop.
_PACKAGES = 64 << 20
_NAME = "libnvidia-ml.so.1"
_LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib", "/usr/lib/x86_64-linux-gnu/nvidia/current",
)  # fmt: skip


def read(deadline_s: float = DEADLINE_S) -> tuple[Reading[tuple[Gpu, ...]], Reading[Driver]]:
    """GPUs and driver. A host without an NVIDIA device has neither; a silent driver makes them unknown."""
    expected = devices()
    module = module_version()
    if not _library_installed() and (refused := _refused()) is not None:
        return refused, refused
    if not expected and module is None and not _library_installed():
        why = "no NVIDIA GPU in this host (no PCI device, no driver)"
        return Absent(why), Absent(why)
    child = python("vllm_doctor.gather.nvml_child", deadline_s=deadline_s)
    said = parse_said(child.out)
    driver = Driver(
        module=module or said.driver,
        library=_suffix(said.library),
        cuda=_cuda(said.cuda),
        fabric_manager=fabric_manager_version(),
    )
    known_driver: Reading[Driver] = Known(driver, "NVML and /proc/driver/nvidia/version")
    if isinstance(child, NotRun):
        unknown = _silent(child, said)
        return unknown, known_driver if module is not None else unknown
    if not said.ended:
        crashed = Unknown(
            f"NVML: the library crashed while it was asked ({_signal(child.code)}, after {len(said.gpus)} GPU(s))",
            "look at the kernel log: journalctl -k -b | grep -i nvrm; the driver may need a reboot",
        )
        return crashed, known_driver if module is not None else crashed
    if said.errors:
        code = next(iter(said.errors.values()))
        if code == NO_LIBRARY and not expected and module is None:
            return Absent("no NVIDIA driver on this host"), Absent("no NVIDIA driver on this host")
        what, remedy = SAYS.get(code, (f"NVML error {code}", "nvidia-smi -q"))
        unknown = Unknown(f"NVML: {what}", remedy)
        return unknown, known_driver if module is not None or code == MISMATCH else unknown
    return Known(said.gpus, "NVML"), known_driver


def _silent(child: NotRun, said: Said) -> Unknown:
    """The driver did not answer: what its last state was, and that a restart of the service will not help."""
    state = procfs.stat(child.pid) if child.pid is not None else None
    where = f"after {len(said.gpus)} GPU(s)" if said.asked_system else "while initialising"
    letter = f", process {child.pid} left behind in state {state[1]}" if state else ""
    return Unknown(
        f"NVML: the driver is not answering ({where}{letter}); every GPU fact is unknown",
        "check the kernel log (journalctl -k -b | grep -i nvrm); a hung driver needs a reboot, not a restart",
    )


def _signal(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def devices() -> list[str]:
    """PCI addresses of NVIDIA display or 3D controllers, which need no driver to be seen."""
    found: list[str] = []
    try:
        listed = sorted(_PCI.iterdir())
    except OSError:
        return []
    for device in listed:
        vendor, what = (text_of_start(device / name) or "" for name in ("vendor", "class"))
        if vendor.strip() == _NVIDIA and what.startswith("0x03"):
            found.append(device.name)
    return found


def module_version() -> str | None:
    """The loaded kernel module's version."""
    found = re.search(
        r"(?:Kernel Module|NVIDIA UNIX .{0,1000}?)\s(\d{1,24}\.\d{1,24}(?:\.\d{1,24})?)\s", text_of_start(_MODULE) or ""
    )
    return found[1] if found else None


def fabric_manager_version() -> str | None:
    """The installed fabric manager's version, from dpkg's or rpm's own data; None where there is none."""
    for status in (Path("/var/lib/dpkg/status"),):
        read = whole_file(status, _PACKAGES)
        text = read.value.decode(errors="replace") if isinstance(read, Known) else ""
        found = re.search(
            r"^Package: nvidia-fabricmanager(?:-\d+)?$.*?^Version: ([\d.]+)", text, re.MULTILINE | re.DOTALL
        )
        if found:
            return found[1]
    return None


def _library_installed() -> bool:
    """Is there a libnvidia-ml.so.1 where the loader looks? Only the file is looked at; loading is the child's risk."""
    return any((Path(folder) / _NAME).exists() for folder in (*trust.library_folders(), *_LIBRARIES))


def _refused() -> Unknown | None:
    """A library that LD_LIBRARY_PATH names and that others could have put there is not loaded."""
    for folder, why in trust.refused_folders().items():
        if (Path(folder) / _NAME).exists():
            return Unknown(
                f"NVML: {folder}/{_NAME} was not loaded: {why}",
                f"take {folder} out of LD_LIBRARY_PATH, or give it and its folders to root, writable by nobody else",
            )
    return None


def _suffix(path: str | None) -> str | None:
    found = re.search(r"libnvidia-ml\.so\.(\d+\.\d+(?:\.\d+)?)$", path or "")
    return found[1] if found else None


def _cuda(number: int | None) -> str | None:
    return f"{number // 1000}.{number % 1000 // 10}" if number else None

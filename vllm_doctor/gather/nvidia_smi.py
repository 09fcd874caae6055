"""Saved output of nvidia-smi as GPUs: the table that it prints by itself, `-q`, and `--format=csv`."""

import csv
import re

from vllm_doctor.gather.bounded import end_of, title
from vllm_doctor.records import excerpt
from vllm_doctor.records.host import Driver, Gpu, GpuProcess
from vllm_doctor.records.reading import Known, Reading, Unknown

MIB = 1 << 20
_TABLE_NAME = re.compile(
    r"^\|\s{1,80}(\d{1,6})\s{1,80}(\S.{0,200}?)\s{1,80}(?:On|Off|N/A)\s{1,80}\|\s{0,80}"
    r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)",
    re.MULTILINE,
)
_TABLE_MEMORY = re.compile(r"\|\s+(\d{1,12})MiB\s*/\s*(\d{1,12})MiB\s*\|")
# A card whose memory is the host's.
_TABLE_NO_MEMORY = re.compile(r"\|\s{1,80}Not Supported\s{1,80}\|")
_TABLE_PROCESS = re.compile(
    r"^\|\s{1,80}(\d{1,6})\s{1,80}\S{1,40}\s{1,80}\S{1,40}\s{1,80}(\d{1,10})\s{1,80}(?:C\+G|C|G|M\+C)\s{1,80}"
    r"(\S.{0,200}?)\s{1,80}(?:(\d{1,12})MiB|N/A)\s{1,80}\|",
    re.MULTILINE,
)
_DRIVER = re.compile(r"Driver Version\s*:\s*([\d.]+)")
_CUDA = re.compile(r"CUDA (?:UMD )?Version\s*:\s*([\d.]+)")
_HINT = "give the output of nvidia-smi, nvidia-smi -q, or nvidia-smi --query-gpu=… --format=csv"


def read_file(path: str) -> Reading[tuple[Gpu, ...]]:
    """The GPUs in a saved output of nvidia-smi, of any of its three forms; `-` is standard input."""
    return read_both(path)[0]


def read_both(path: str) -> tuple[Reading[tuple[Gpu, ...]], Reading[Driver]]:
    """The GPUs, and the driver that the same output names; it is read once."""
    data = end_of(path, "--nvidia-smi")
    if isinstance(data, Unknown):
        return data, data
    if b"\0" in data[:4096]:
        unreadable = Unknown(f"{title(path)}: not a text file", _HINT)
        return unreadable, unreadable
    text = data.decode("utf-8", "replace")
    return gpus(text, title(path)), driver_of(text, title(path))


def driver_of(text: str, source: str) -> Reading[Driver]:
    """The driver that an output of nvidia-smi names."""
    module, cuda = _DRIVER.search(text), _CUDA.search(text)
    if module is None:
        return Unknown(f"{source}: it names no driver version", _HINT)
    return Known(Driver(module=module[1], cuda=cuda[1] if cuda else None), source)


def gpus(text: str, source: str) -> Reading[tuple[Gpu, ...]]:
    """The GPUs in an output of nvidia-smi; Unknown with its own words where it failed."""
    if "couldn't communicate with the NVIDIA driver" in text or "Failed to initialize NVML" in text:
        first = next((line.strip() for line in text.splitlines() if "NVIDIA-SMI" in line or "NVML" in line), text)
        return Unknown(
            f"nvidia-smi: {excerpt.said(first)}",
            "see the driver's state: cat /proc/driver/nvidia/version; dmesg | grep -i nvrm",
        )
    if "No devices were found" in text:
        return Unknown("nvidia-smi: No devices were found", "lspci -d 10de:; journalctl -k -b | grep -i nvrm")
    found = _query(text) or _table(text) or _csv(text)
    return Known(found, source) if found else Unknown(f"{source}: no GPU in it: it is not output of nvidia-smi", _HINT)


def _table(text: str) -> tuple[Gpu, ...]:
    names = list(_TABLE_NAME.finditer(text))
    found: list[Gpu] = []
    holders: dict[int, list[GpuProcess]] = {}
    for row in _TABLE_PROCESS.finditer(text):
        used = int(row[4]) * MIB if row[4] else None
        holders.setdefault(int(row[1]), []).append(GpuProcess(int(row[2]), used, row[3]))
    for at, name in enumerate(names):
        end = names[at + 1].start() if at + 1 < len(names) else len(text)
        memory = _TABLE_MEMORY.search(text, name.end(), end)
        total = int(memory[2]) * MIB if memory else None
        used = int(memory[1]) * MIB if memory else None
        index = int(name[1])
        found.append(
            Gpu(
                index=index,
                name=name[2],
                total_bytes=total,
                free_bytes=total - used if total is not None and used is not None else None,
                processes=tuple(holders.get(index, ())),
                pci=name[3],
                unified_memory=_TABLE_NO_MEMORY.search(text, name.end(), end) is not None,
            )
        )
    return tuple(found)


def _query(text: str) -> tuple[Gpu, ...]:
    """`nvidia-smi -q`: one block a GPU, `Name : value` lines under headings."""
    blocks = re.split(r"^GPU ([0-9A-Fa-f]{8}:\S+)\s*$", text, flags=re.MULTILINE)
    found: list[Gpu] = []
    for index, (pci, block) in enumerate(zip(blocks[1::2], blocks[2::2], strict=True)):
        memory = _section(block, "FB Memory Usage")
        remap = _section(block, "Remapped Rows")
        found.append(
            Gpu(
                index=index,
                name=_field(block, "Product Name") or "?",
                uuid=_field(block, "GPU UUID"),
                total_bytes=_mib(_field(memory, "Total")),
                free_bytes=_mib(_field(memory, "Free")),
                reserved_bytes=_mib(_field(memory, "Reserved")),
                remap_pending=_yes(_field(remap, "Pending")),
                remap_failed=_yes(_field(remap, "Remapping Failure Occurred")),
                recovery_action=(_field(block, "GPU Recovery Action") or "").lower() or None,
                pci=pci,
            )
        )
    return tuple(found)


def _csv(text: str) -> tuple[Gpu, ...]:
    try:
        rows = list(csv.reader(text.splitlines(), skipinitialspace=True))
    except csv.Error:
        return ()
    if len(rows) < 2 or not any(cell.startswith(("name", "memory.total", "index", "uuid")) for cell in rows[0]):
        return ()
    columns = [cell.partition(" [")[0] for cell in rows[0]]
    found: list[Gpu] = []
    for index, row in enumerate(rows[1:]):
        if len(row) != len(columns):
            continue
        cells = dict(zip(columns, row, strict=True))
        found.append(
            Gpu(
                index=int(cells["index"]) if re.fullmatch(r"\d{1,6}", cells.get("index", "")) else index,
                name=cells.get("name") or cells.get("gpu_name") or "?",
                uuid=cells.get("uuid") or cells.get("gpu_uuid"),
                total_bytes=_mib(cells.get("memory.total")),
                free_bytes=_mib(cells.get("memory.free")),
            )
        )
    return tuple(found)


def _section(block: str, heading: str) -> str:
    found = re.search(rf"^( *){heading}\n((?:\1 +.*\n)+)", block, re.MULTILINE)
    return found[2] if found else ""


def _field(block: str, name: str) -> str | None:
    found = re.search(rf"^ *{re.escape(name)} *: (.+?)\s*$", block, re.MULTILINE)
    return found[1] if found and found[1] not in {"N/A", "[N/A]"} else None


def _mib(text: str | None) -> int | None:
    found = re.match(r"(\d{1,12})(?: MiB)?$", text or "")
    return int(found[1]) * MIB if found else None


def _yes(text: str | None) -> bool | None:
    return None if text is None else text == "Yes"

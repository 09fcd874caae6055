"""Weight files that are not whole, told by their own headers; no tensor is read."""

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path

from vllm_doctor.records.host import WeightFile, WeightFiles

_MOST_HEADER = 64 << 20
_POINTER = b"version https://git-lfs"
_BUDGET_S = 1.5


def checked(folder: str) -> WeightFiles | None:
    """The safetensors files of a local model's folder; None where it is none, or holds none.

    A header is the length of a JSON text, the text, and the data that its offsets end with: so much the file must have
    (safetensors' format). A pointer of Git LFS names the size of the file that it stands for.
    """
    until = time.monotonic() + _BUDGET_S
    cut: list[WeightFile] = []
    count = 0
    try:
        files = sorted(Path(folder).glob("*.safetensors"))
    except OSError:
        return None
    for file in files:
        if time.monotonic() > until:
            break
        try:
            status = file.stat()
            needed = _needed(file)
        except (OSError, ValueError):
            continue
        count += 1
        if needed is None or needed != status.st_size:
            at = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="seconds")
            cut.append(WeightFile(os.fspath(file), status.st_size, needed, at))
    return WeightFiles(count, tuple(cut)) if count else None


def _needed(file: Path) -> int | None:
    """The bytes that the file should have; None where its beginning is no header."""
    with file.open("rb") as data:
        first = data.read(len(_POINTER))
        if first == _POINTER:
            sizes = [line for line in data.read(400).decode(errors="replace").splitlines() if line.startswith("size ")]
            return int(sizes[0].split()[1]) if sizes else None
        length = int.from_bytes(first[:8], "little")
        if len(first) < 8 or not 2 <= length <= _MOST_HEADER:
            return None
        data.seek(8)
        try:
            header = json.loads(data.read(length))
        except (ValueError, RecursionError):
            return None
    if not isinstance(header, dict):
        return None
    tensors = (one for name, one in header.items() if name != "__metadata__" and isinstance(one, dict))
    ends = [one["data_offsets"][1] for one in tensors if _offsets(one)]
    return 8 + length + max(ends, default=0)


def _offsets(tensor: dict[str, object]) -> bool:
    found = tensor.get("data_offsets")
    return isinstance(found, list) and len(found) == 2 and isinstance(found[1], int)

"""For which cards the wheel holds compiled code: read from the fat binaries in vLLM's own library.

A library of CUDA code holds containers (a header with a magic number) with one entry for each generation: machine code
(cubin), which runs on cards of the same major number and at least that minor one, or PTX, which the driver compiles for
that generation and all later ones.
"""

from __future__ import annotations

import re
import struct
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

LIBRARY = re.compile(r"vllm/_C(_stable_libtorch)?(\.abi3|\.cpython-[\w-]+)?\.so")
_MAGIC = struct.pack("<I", 0xBA55ED50)
_HEADER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes of the entries
_ENTRY = struct.Struct("<HHIQ")  # kind, attributes, bytes of this header, bytes of the code
_KINDS = {1: "ptx", 2: "cubin"}
_CAPABILITY_AT = 28
_LARGEST = 2 << 30
# A generation with fewer entries than this part of the most frequent one has code for a few special kernels, or for the
# stub that the linker adds, and is none that the release was built for.
_FEW = 0.1


def of_wheel(place: Path) -> dict[str, str]:
    """Compute capability → "cubin", "ptx" or both; empty where there is no library in it (a folder of sources)."""
    counted = Counter(entry for content in _libraries(place) for entry in entries(content))
    most = max(counted.values(), default=0)
    found: dict[str, set[str]] = {}
    for (kind, number), count in counted.items():
        if count >= _FEW * most:
            found.setdefault(f"{number // 10}.{number % 10}", set()).add(kind)
    return {name: " ".join(sorted(found[name])) for name in sorted(found, key=float)}


def _libraries(place: Path) -> Iterator[bytes]:
    if place.is_dir():
        yield from (f.read_bytes() for f in place.glob("vllm/_C*.so") if LIBRARY.fullmatch(f"vllm/{f.name}"))
        return
    with zipfile.ZipFile(place) as archive:
        for member in archive.infolist():
            if LIBRARY.fullmatch(member.filename) and member.file_size <= _LARGEST:
                yield archive.read(member)


def entries(content: bytes) -> Iterator[tuple[str, int]]:
    """(cubin or ptx, compute capability × 10) of every entry; what is no whole container is passed over."""
    at = content.find(_MAGIC)
    while at >= 0:
        after = at + len(_MAGIC)
        if at + _HEADER.size <= len(content):
            _, _, head, size = _HEADER.unpack_from(content, at)
            if head == _HEADER.size and at + head + size <= len(content):
                yield from _inside(content, at + head, at + head + size)
                after = at + head + size
        at = content.find(_MAGIC, after)


def _inside(content: bytes, at: int, end: int) -> Iterator[tuple[str, int]]:
    while at + _CAPABILITY_AT + 4 <= end:
        kind, _, head, size = _ENTRY.unpack_from(content, at)
        if kind not in _KINDS or head < _CAPABILITY_AT + 4:
            return
        (number,) = struct.unpack_from("<I", content, at + _CAPABILITY_AT)
        if 10 <= number < 1000:
            yield _KINDS[kind], number
        at += head + size

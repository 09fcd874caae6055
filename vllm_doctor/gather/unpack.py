"""Decompresses gzip, bzip2 and xz in pieces of bounded size, whatever their headers ask for.

`gzip.open` reads the name in a header byte by byte for as long as it lasts, and `lzma.open` takes the memory that the
file names; here zlib reads the header, and xz has what `xz -9` needs.
"""

import time
from collections.abc import Iterator
from typing import Any

from vllm_doctor.gather.bounded import ByteSource
from vllm_doctor.log.read.pieces import WORK_S, DamagedData, TooMuch

PIECE = 1 << 20
_PACKED = 16 << 10
_XZ_MEMORY = 100 << 20
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}


def compression(head: bytes) -> str | None:
    """gzip, bzip2 or xz by the first bytes; None for anything else."""
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def unpacked(source: ByteSource, kind: str, head: bytes = b"") -> Iterator[bytes]:
    """What `source` (after `head`, which was read of it) holds, in pieces. Raises DamagedData, TooMuch and OSError."""
    until = time.process_time() + WORK_S
    engine, broken = _engine(kind)
    data = head or source.read1(_PACKED)
    while True:
        try:
            piece: bytes = engine.decompress(data, PIECE)
        except broken as problem:
            raise DamagedData(str(problem)) from None
        if piece:
            yield piece
        if engine.eof:
            # Members may follow each other (`cat a.gz b.gz`), with zeros between them; anything else is left alone.
            data = (engine.unused_data or source.read1(_PACKED)).lstrip(b"\0")
            if compression(data) != kind:
                return
            engine, broken = _engine(kind)
        elif kind == "gzip" and engine.unconsumed_tail:
            data = engine.unconsumed_tail
        elif kind != "gzip" and not engine.needs_input:
            data = b""
        else:
            data = source.read1(_PACKED)
            if not data and not piece:
                raise DamagedData("it ends in the middle")
        if time.process_time() > until:
            raise TooMuch


def _engine(kind: str) -> tuple[Any, tuple[type[Exception], ...]]:
    """A decompressor, loaded only where it is needed, and the errors by which it says that its input is damaged."""
    if kind == "gzip":
        import zlib

        return zlib.decompressobj(31), (zlib.error,)
    if kind == "bzip2":
        import bz2

        return bz2.BZ2Decompressor(), (OSError, ValueError)
    import lzma

    return lzma.LZMADecompressor(memlimit=_XZ_MEMORY), (lzma.LZMAError,)

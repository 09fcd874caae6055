"""Opens whatever is called a log: plain, compressed, UTF-16, standard input; always in bounded memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol

import msgspec

SMALL = 4 << 20
HEAD = 256 << 10
TAIL = 768 << 10
CHUNK = 1 << 20

_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}
_UNREADABLE = {b"\x28\xb5\x2f\xfd": "zstandard", b"PK\x03\x04": "zip", b"\x7fELF": "an ELF binary"}


class Piece(msgspec.Struct, frozen=True):
    """Bytes that follow each other, from `offset` on; `offset` counts in what is read (after decompression).

    `whole_lines` says that the first byte begins a line.
    """

    offset: int
    data: bytes
    whole_lines: bool = False


class NotText(msgspec.Struct, frozen=True):
    """It was opened, but it is no log; `what` says what it is."""

    what: str
    remedy: str = ""


class Read(msgspec.Struct, frozen=True):
    """What was read of a source: its pieces in order, how much was left out between them, and remarks."""

    pieces: tuple[Piece, ...]
    skipped: int = 0
    notes: tuple[str, ...] = ()


def compression(head: bytes) -> str | None:
    """gzip, bzip2 or xz by the first bytes; None for anything else."""
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def utf16(head: bytes) -> str | None:
    """The UTF-16 codec of a text: by its byte order mark, or by the zero bytes of plain ASCII text."""
    if head[:2] == b"\xff\xfe":
        return "utf-16-le"
    if head[:2] == b"\xfe\xff":
        return "utf-16-be"
    sample = head[:4096]
    if len(sample) >= 16:
        half = len(sample) // 2
        if sample[1::2].count(0) > half * 0.9 and sample[::2].count(0) < half * 0.1:
            return "utf-16-le"
        if sample[::2].count(0) > half * 0.9 and sample[1::2].count(0) < half * 0.1:
            return "utf-16-be"
    return None


def not_text(head: bytes) -> NotText | None:
    """Why these first bytes are no text, or None if they are."""
    for magic, name in _UNREADABLE.items():
        if head.startswith(magic):
            return NotText(name, "unpack it first and give the text" if name in {"zstandard", "zip"} else "")
    sample = head[:65536]
    if sample and sample.count(0) > len(sample) // 50:
        return NotText("binary data", "give a text log")
    odd = sum(sample.count(bytes([b])) for b in (1, 2, 3, 4, 5, 6, 14, 15, 16, 17, 18, 19, 20))
    if sample and odd > len(sample) // 20:
        return NotText("binary data", "give a text log")
    return None


class Source(Protocol):
    """Anything that gives bytes: a file, standard input, a decompressor."""

    def read1(self, size: int, /) -> bytes:
        """At most `size` bytes, as soon as there are some; none at the end."""


def stream(source: Source, broken: tuple[type[Exception], ...] = ()) -> Read | NotText:
    """Reads a source to its end and keeps its head and its tail (standard input, compressed files, UTF-16).

    `broken` are the errors by which a decompressor says that its input is damaged or cut short.
    """
    notes: list[str] = []
    head = bytearray()
    tail = bytearray()
    total = 0
    codec: str | None = None
    for block in _blocks(source, notes, broken):
        chunk = block
        if total == 0 and not head:
            codec = utf16(chunk)
            if codec is None and (reason := not_text(chunk)) is not None:
                return reason
            if codec is not None:
                notes.append("the text is UTF-16")
        if codec is not None:
            chunk = chunk.decode(codec, "replace").encode("utf-8", "replace")
        total += len(chunk)
        if len(head) < SMALL:
            head += chunk[: SMALL - len(head)]
        tail += chunk
        if len(tail) > 2 * TAIL:
            del tail[:-TAIL]
    if total <= SMALL:
        return Read((Piece(0, bytes(head)),) if head else (), 0, tuple(notes))
    start = max(total - TAIL, HEAD)
    pieces = (Piece(0, bytes(head[:HEAD])), Piece(start, bytes(tail[-(total - start) :])))
    return Read(pieces, start - HEAD, tuple(notes))


def _blocks(source: Source, notes: list[str], broken: tuple[type[Exception], ...]) -> Iterator[bytes]:
    expected: tuple[type[Exception], ...] = (EOFError, OSError, *broken)
    while True:
        try:
            block = source.read1(CHUNK)
        except expected as problem:
            notes.append(f"reading stopped early: {problem}")
            return
        if not block:
            return
        yield block


def decompressed(path: Path | IO[bytes], kind: str) -> Read | NotText:
    """The contents of a compressed file or stream. The libraries are loaded only when there is one."""
    if kind == "gzip":
        import gzip
        import zlib

        with gzip.open(path, "rb") as inner:
            return stream(inner, (zlib.error,))
    if kind == "bzip2":
        import bz2

        with bz2.open(path, "rb") as inner:
            return stream(inner)
    import lzma

    with lzma.open(path, "rb") as inner:
        return stream(inner, (lzma.LZMAError,))

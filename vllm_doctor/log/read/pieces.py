"""The pieces of a text that are kept: all of a short one, the head and the tail of a long one; UTF-16 and no text."""

import codecs
import re
import time
from collections.abc import Iterator

import msgspec

SMALL = 4 << 20
# Processor time of this process. A log or a bundle of ordinary size takes a hundredth of it.
WORK_S = 8.0
HEAD = 256 << 10
TAIL = 768 << 10

_UNREADABLE = {b"\x28\xb5\x2f\xfd": "zstandard", b"PK\x03\x04": "zip", b"\x7fELF": "an ELF binary"}

# Docker's API, asked for a container's output without a terminal, sets eight bytes before each piece of it: the stream,
# three zeros, the length. https://docs.docker.com/reference/api/engine/ (attach: stream format)
_FRAME = re.compile(rb"[\x01\x02]\0\0\0[\s\S]{4}")


class DamagedData(Exception):  # noqa: N818 - it says what the input is
    """The packed data is damaged or cut short."""


class TooMuch(Exception):  # noqa: N818 - it says what the input is
    """It unpacks to more than can be read in `WORK_S`."""


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


def wide(head: bytes) -> str | None:
    """The codec of text whose characters take two or four bytes each, by its byte order mark or by where its zeros
    stand; None for any other."""
    for mark, codec in _MARKS:
        if head.startswith(mark):
            return codec
    sample = head[:4096]
    if len(sample) < 16:
        return None
    for codec, width, at in _WIDE:
        size = len(sample) // width
        others = [sample[n::width].count(0) for n in range(width) if n != at]
        if sample[at::width].count(0) < size * 0.1 and min(others) > size * 0.9:
            return codec
    return None


# The longer mark first: that of UTF-32 begins as that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# How many bytes a character takes, and which of them a text of Latin letters fills.
_WIDE = (("utf-32-le", 4, 0), ("utf-32-be", 4, 3), ("utf-16-le", 2, 0), ("utf-16-be", 2, 1))


def as_written(data: bytes) -> bytes:
    """The bytes without what their carrier added: Docker's frames, the hole of a log emptied while it was open.

    A program goes on writing where it was (logrotate's copytruncate), and what is before that reads as zeros.
    """
    if b"\0\0\0" not in data:
        return data
    return _FRAME.sub(b"", data.lstrip(b"\0"))


def not_text(head: bytes) -> NotText | None:
    """Why these first bytes are no text, or None if they are."""
    for magic, name in _UNREADABLE.items():
        if head.startswith(magic):
            return NotText(name, "unpack it first and give the text" if name in {"zstandard", "zip"} else "")
    sample = as_written(head)[:65536] or head[:65536]
    if sample and sample.count(0) > len(sample) // 50:
        return NotText("binary data", "give a text log")
    odd = sum(sample.count(bytes([b])) for b in (1, 2, 3, 4, 5, 6, 14, 15, 16, 17, 18, 19, 20))
    if sample and odd > len(sample) // 20:
        return NotText("binary data", "give a text log")
    return None


def stream(pieces: Iterator[bytes]) -> Read | NotText:
    """Reads pieces to their end and keeps the head and the tail (standard input, compressed files, UTF-16 and UTF-32).

    Raises TooMuch where they take more work than any log does, and OSError where not even the first one comes.
    """
    notes: list[str] = []
    head = bytearray()
    tail = bytearray()
    total = 0
    decoder: codecs.IncrementalDecoder | None = None
    until = time.process_time() + WORK_S
    for block in _blocks(pieces, notes):
        chunk = block
        if total == 0:
            codec = wide(chunk)
            if codec is None and (reason := not_text(chunk)) is not None:
                return reason
            if codec is not None:
                notes.append(f"the text is {codec[:6].upper()}")
                decoder = codecs.getincrementaldecoder(codec)("replace")
        if decoder is not None:
            chunk = decoder.decode(chunk).encode("utf-8", "replace")
        total += len(chunk)
        if len(head) < SMALL:
            head += chunk[: SMALL - len(head)]
        tail += chunk
        if len(tail) > 2 * TAIL:
            del tail[:-TAIL]
        if time.process_time() > until:
            raise TooMuch
    if total <= SMALL:
        return Read((Piece(0, bytes(head)),) if head else (), 0, tuple(notes))
    start = max(total - TAIL, HEAD)
    last = Piece(start, bytes(tail[-(total - start) :]))
    return Read((Piece(0, bytes(head[:HEAD])), last), start - HEAD, tuple(notes))


def _blocks(pieces: Iterator[bytes], notes: list[str]) -> Iterator[bytes]:
    some = False
    while True:
        try:
            block = next(pieces, b"")
        except (OSError, DamagedData) as problem:
            if not some and isinstance(problem, OSError):
                raise
            notes.append(f"reading stopped early: {problem}")
            return
        if not block:
            return
        some = True
        yield block

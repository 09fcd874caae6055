"""Reads the few members of a tar that are wanted, of a stream, holding nothing else of it.

`tarfile` reads a header of any size whole before it says that it is there. A bundle has a handful of ordinary files
with short names; headers that only carry names and times (pax, GNU) are passed over, anything else is refused.
"""

import tarfile
from collections.abc import Iterator, Mapping

from vllm_doctor.records import excerpt

_BLOCK = 512
_MOST_MEMBERS = 256
# The whole stream; what is not wanted (texts for people) is passed over within it.
MAX_UNPACKED = 256 << 20
_MOST_NAMES = 64 << 10
_ORDINARY = (tarfile.REGTYPE, tarfile.AREGTYPE)
_NAMES = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


class NoArchive(Exception):  # noqa: N818 - it says what the input is
    """It is not what it is given as; the text says why."""


class _Stream:
    """Pieces as a stream of which exactly so many bytes are taken."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._kept, self._left = pieces, b"", MAX_UNPACKED

    def take(self, count: int, *, keep: bool = True) -> bytes:
        """The next `count` bytes, less at the end of the stream; none where they are not to be kept."""
        parts: list[bytes] = []
        while count and (block := self._kept or next(self._pieces, b"")):
            part, self._kept = block[:count], block[count:]
            count -= len(part)
            self._left -= len(part)
            if self._left < 0:
                raise NoArchive(f"it unpacks to more than {MAX_UNPACKED >> 20} MiB, which no bundle or log needs")
            if keep:
                parts.append(part)
        return b"".join(parts)


def read_members(pieces: Iterator[bytes], wanted: Mapping[str, int]) -> dict[str, bytes]:
    """The wanted members (name → most bytes) of an unpacked tar. Raises NoArchive, and what `pieces` raises."""
    stream, found = _Stream(pieces), dict[str, bytes]()
    for _ in range(_MOST_MEMBERS):
        block = stream.take(_BLOCK)
        if len(block) < _BLOCK or not block.strip(b"\0"):
            return found
        try:
            head = tarfile.TarInfo.frombuf(block, "utf-8", "replace")
        except tarfile.HeaderError as broken:
            raise NoArchive(f"it is not a tar archive: {broken}") from None
        _check(head, wanted)
        data = stream.take(head.size, keep=head.name in wanted)
        if head.name in wanted and head.type in _ORDINARY:
            if len(data) < head.size:
                raise NoArchive(f"{head.name} in it is cut short")
            found[head.name] = data
        stream.take(-head.size % _BLOCK, keep=False)
    raise NoArchive(f"it has more than {_MOST_MEMBERS} members")


def _check(head: tarfile.TarInfo, wanted: Mapping[str, int]) -> None:
    ordinary = head.type in _ORDINARY
    most = wanted.get(head.name, MAX_UNPACKED) if ordinary else _MOST_NAMES
    if not (ordinary or head.type in _NAMES):
        raise NoArchive(f"{excerpt.name(head.name)} in it is not an ordinary file")
    if not 0 <= head.size <= most:
        raise NoArchive(
            f"{excerpt.name(head.name)} in it has {head.size} bytes, which cannot be right: at most {most} are read"
        )

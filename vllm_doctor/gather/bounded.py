"""The one door to what others wrote: a file, a pipe, standard input, never more of it and never longer than was asked.

Nothing here raises for what it is given: what cannot be read is Unknown with what, where and what to do.
"""

import errno
import json
import os
import re
import select
import shlex
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from vllm_doctor.gather.trust import closed_to, led_astray
from vllm_doctor.records import excerpt
from vllm_doctor.records.reading import Absent, Known, Reading, Unknown

STDIN = "-"
CHUNK = 1 << 20
# Of a file that a person gives beside the log the end is read: what was written last is what is asked about.
END = 32 << 20
# A named pipe is opened by its writer within moments, or by nobody.
WRITER_S = 10.0
# A writer that is there may be slow; one that is silent for so long has hung.
SILENT_S = 600.0
# A person who waits is told what for.
TOLD_S = 5.0

DEPTH = 64
# A float holds it, so that whoever reads it can compare it with what a real figure may be.
DIGITS = 100
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class ByteSource(Protocol):
    """Anything that gives bytes: a file, standard input, a decompressor."""

    def read1(self, size: int, /) -> bytes:
        """At most `size` bytes, as soon as there are some; none at the end."""


# What was read of standard input to see what it is, and is still to be read by whoever reads it.
_AHEAD = bytearray()


def put_back(data: bytes) -> None:
    """Whoever reads standard input next begins with this."""
    _AHEAD[:0] = data


def title(name: str) -> str:
    """What the source is called in an answer."""
    return "standard input" if name == STDIN else name


def whole_file(
    path: str | os.PathLike[str], most: int, *, denied: str = "run as root", reader: str | None = None
) -> Reading[bytes]:
    """All of an ordinary file of at most `most` bytes, files of /proc and /sys included; Absent where there is none.

    `denied` is what to do where this user may not read it. `reader` is who named the file, or could make it a link:
    root tells nobody what `reader` may not read. A pipe or a device is not opened.
    """
    name = os.fspath(path)
    try:
        kind = _kind(os.stat(name).st_mode)  # noqa: PTH116 - before the open: opening a device may act on it
        handle = None if kind else os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return Absent(f"{name}: no such file")
    except (OSError, ValueError) as problem:
        return _refused(name, problem, denied)
    if handle is None:
        return Unknown(f"{name}: is {kind}, not a file", f"ls -lL {shlex.quote(name)}")
    try:
        if reader is not None and os.geteuid() == 0 and closed_to(reader, handle):
            return Unknown(f"{name}: user {reader} may not read it", f"namei -l {shlex.quote(name)}")
        data = _at_most(handle, most)
    except OSError as problem:
        return _refused(name, problem, denied)
    finally:
        os.close(handle)
    if data is None:
        return Unknown(f"{name}: has more than {_size(most)}, which no such file has", f"ls -lL {shlex.quote(name)}")
    return Known(data, name)


def _at_most(handle: int, most: int) -> bytes | None:
    """What there is, or None where it is more. A file of /proc has no size to ask for."""
    data = bytearray()
    while block := os.read(handle, min(CHUNK, most + 1 - len(data))):
        data += block
        if len(data) > most:
            return None
    return bytes(data)


def start(path: str | os.PathLike[str], most: int) -> bytes | None:
    """The first `most` bytes of a file that the kernel makes (/proc, /sys), where a process decides how much it says;
    None where it cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    data = bytearray()
    try:
        while len(data) < most and (block := os.read(handle, min(CHUNK, most - len(data)))):
            data += block
    except OSError:
        return bytes(data) or None
    finally:
        os.close(handle)
    return bytes(data)


def text_of_start(path: str | os.PathLike[str], most: int = CHUNK) -> str | None:
    """The same as text."""
    data = start(path, most)
    return None if data is None else data.decode(errors="replace")


def _refused(name: str, problem: OSError | ValueError, denied: str = "") -> Unknown:
    if isinstance(problem, PermissionError):
        return Unknown(f"{title(name)}: permission denied", denied or f"ls -lL {shlex.quote(name)}")
    words = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    return Unknown(f"{title(name)}: {words.lower()}", "check the path")


def _kind(mode: int) -> str:
    """What is not an ordinary file, in words; nothing for one that is."""
    if stat.S_ISDIR(mode):
        return "a directory"
    if stat.S_ISFIFO(mode):
        return "a named pipe"
    if stat.S_ISSOCK(mode):
        return "a socket"
    return "" if stat.S_ISREG(mode) else "a device"


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


class Opened:
    """A source that a person named: an ordinary file, or a stream that is read as it comes."""

    def __init__(self, handle: int, name: str, *, size: int | None) -> None:
        """`size` in bytes of an ordinary file that has one, else None: then it can only be read from its beginning."""
        self.handle, self.name, self.size = handle, name, size
        self._waited = self._come = 0
        self._written = False

    def read1(self, size: int, /) -> bytes:
        """The next bytes, waiting for a slow writer. Raises OSError (ETIMEDOUT) for one that does not come."""
        if self.name == STDIN and _AHEAD:
            ahead = bytes(_AHEAD[:size])
            del _AHEAD[:size]
            return ahead
        if self.size is not None:
            return os.read(self.handle, size)
        began = time.monotonic()
        told = False
        while True:
            ready = select.select([self.handle], [], [], TOLD_S if not told else 1.0)[0]
            try:
                block = os.read(self.handle, size) if ready or self.name != STDIN else None
            except BlockingIOError:
                block = None  # its writer is there and silent
            if block or ready or (block == b"" and self._written):
                self._written = True
                self._come += len(block or b"")
                return block or b""
            waited = time.monotonic() - began
            if block == b"" and waited > WRITER_S:
                raise TimeoutError(errno.ETIMEDOUT, f"nobody wrote to this pipe within {WRITER_S:g} s")
            if waited > SILENT_S:
                raise TimeoutError(errno.ETIMEDOUT, f"its writer was silent for {SILENT_S:g} s")
            told = told or self._tell()

    def _tell(self) -> bool:
        if sys.stderr.isatty():
            print(
                f"vllm-doctor: reading {title(self.name)}, {self._come >> 10} KiB so far; it ends when its writer does"
                " (stop with Ctrl-C)",
                file=sys.stderr,
            )
        return True


@contextmanager
def opened(name: str, *, theirs: bool = False) -> Iterator[Opened | Unknown]:
    """What a person named: a file, a pipe (`<(command)`, a FIFO), `-` for standard input. A device is refused.

    `theirs` is for a file where others may have put a link: none of a user's is followed, and a pipe is refused.
    """
    try:
        found = _stdin() if name == STDIN else _named(name)
        if theirs and isinstance(found, Opened):
            found = _ordinary(found)
    except FileNotFoundError:
        yield Unknown(f"{name}: no such file", "check the path")
        return
    except (OSError, ValueError) as problem:
        yield _refused(name, problem)
        return
    try:
        yield found
    finally:
        if isinstance(found, Opened) and name != STDIN:
            os.close(found.handle)


def _named(name: str) -> Opened | Unknown:
    mode = os.stat(name).st_mode  # noqa: PTH116 - before the open: opening a device may act on it
    if stat.S_ISDIR(mode):
        return Unknown(f"{name}: is a directory", "name the file in it")
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        return Unknown(f"{name}: {_kind(mode)}, not a file", "name a file, or pipe what it says and give `-`")
    handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    return Opened(handle, name, size=_length(handle))


def _ordinary(found: Opened) -> Opened | Unknown:
    if found.size is not None and not led_astray(found.name, found.handle):
        return found
    os.close(found.handle)
    what = "a named pipe" if found.size is None else "a user's link led to another file"
    return Unknown(f"{found.name}: {what}, which is not read for a service", f"namei -l {shlex.quote(found.name)}")


def _stdin() -> Opened | Unknown:
    handle = sys.stdin.fileno()
    mode = os.fstat(handle).st_mode
    if stat.S_ISDIR(mode):
        return Unknown("standard input: is a directory", "give a file")
    if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not os.isatty(handle) and not _is_null(handle)):
        return Unknown("standard input: a device, not a file", "give a file, or pipe a text into it")
    return Opened(handle, STDIN, size=0 if stat.S_ISREG(mode) else None)


def _is_null(handle: int) -> bool:
    return os.fstat(handle).st_rdev == os.makedev(1, 3)


def _length(handle: int) -> int | None:
    """The size of an ordinary file; 0 also for one of /proc, which says so of itself and has something in it."""
    about = os.fstat(handle)
    return about.st_size if stat.S_ISREG(about.st_mode) else None


def end_of(name: str, option: str, most: int = END) -> bytes | Unknown:
    """The last `most` bytes of what a person named with `option`."""
    with opened(name) as source:
        if isinstance(source, Unknown):
            return Unknown(source.reason, f"check the path given with {option}")
        try:
            if source.size and name != STDIN:
                os.lseek(source.handle, max(0, source.size - most), os.SEEK_SET)
                return _up_to(source, most)
            kept = bytearray()
            while block := source.read1(CHUNK):
                kept += block
                if len(kept) > 2 * most:
                    del kept[:-most]
            return bytes(kept[-most:])
        except OSError as problem:
            return Unknown(_refused(name, problem).reason, f"check the path given with {option}")


def all_of(name: str, option: str, most: int) -> bytes | Unknown:
    """What a person named with `option`, whole; Unknown where it has more than `most` bytes."""
    with opened(name) as source:
        if isinstance(source, Unknown):
            return Unknown(source.reason, f"check the path given with {option}")
        try:
            data = _up_to(source, most + 1)
        except OSError as problem:
            return Unknown(_refused(name, problem).reason, f"check the path given with {option}")
    if len(data) > most:
        return Unknown(f"{title(name)}: has more than {_size(most)}", f"check the path given with {option}")
    return data


def _up_to(source: Opened, most: int) -> bytes:
    data = bytearray()
    while len(data) < most and (block := source.read1(min(CHUNK, most - len(data)))):
        data += block
    return bytes(data)


def json_value(
    data: bytes,
    name: str,
    remedy: str,
    object_pairs_hook: Callable[[list[tuple[str, object]]], object] | None = None,
) -> Known[object] | Unknown:
    """A JSON text as its value: at most 64 levels, whole numbers of at most 100 digits, no half of a character."""
    try:
        value = json.loads(data.decode(), parse_int=_whole_number, object_pairs_hook=object_pairs_hook)
    except UnicodeDecodeError:
        return Unknown(f"{name}: is not UTF-8 text", remedy)
    except RecursionError:
        return Unknown(f"{name}: nested deeper than {DEPTH} levels", remedy)
    except ValueError as broken:
        return Unknown(f"{name}: not JSON: {excerpt.said(str(broken))}", remedy)
    if data.count(b"[") + data.count(b"{") > DEPTH or _SURROGATE.search(data):
        wrong = _wrong(value)
        if wrong:
            return Unknown(f"{name}: {wrong}", remedy)
    return Known(value, name)


def _whole_number(text: str) -> int:
    if len(text) > DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _wrong(value: object) -> str:
    """What no reader could take: more levels than any such file has, or text that is none."""
    level: list[object] = [value]
    for _ in range(DEPTH + 1):
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below += item.keys()
                below += item.values()
            elif isinstance(item, list):
                below += item
            elif isinstance(item, str) and not item.isascii():
                try:
                    item.encode()
                except UnicodeEncodeError:
                    return "holds half of a character"
        if not below:
            return ""
        level = below
    return f"nested deeper than {DEPTH} levels"

"""Reads a plain log of any size from its end: the tail, and the head of the last run wherever it began.

A run is found without reading what lies between: its process number stands in every line, runs follow one another,
so the place where the number first appears is found by halving the file.
"""

import re
from typing import IO

from vllm_doctor.log.match import anchors
from vllm_doctor.log.read.pieces import HEAD, SMALL, TAIL, Piece, Read
from vllm_doctor.log.traceback import START

BACK = 1 << 20
_REPEATED = 20
_SAMPLE = 64 << 10
_PID = re.compile(rb"(?:APIServer|EngineCore(?:_DP0|_0)?) pid=(\d+)\)|[ \t]\S+\[(\d+)\]: ")


def read(file: IO[bytes], size: int) -> Read:
    """The pieces that matter of a file of `size` bytes; a small file is one piece."""
    if size <= SMALL:
        return Read((Piece(0, _at(file, 0, size)),) if size else ())
    start = size - TAIL
    tail = Piece(start, _at(file, start, TAIL))
    if _last_marker(tail.data) >= 0:
        return Read((tail,), start)
    begin, known = _head(file, tail)
    if begin is None:
        return Read((tail,), start, ("the start of this run was not found in what was read",))
    death = _first_death(file, begin, tail)
    head = Piece(begin, _at(file, begin, min(HEAD, start - begin)), whole_lines=True)
    notes = () if known else ("the start of this run is taken from the head of the file",)
    middle = (death,) if death is not None and death.offset > begin + len(head.data) else ()
    read_of_it = sum(len(p.data) for p in (head, *middle))
    return Read((head, *middle, tail), start - begin - read_of_it, notes)


def end(file: IO[bytes], size: int) -> bytes:
    """The last bytes of a file, enough to see whether it is a text."""
    return _at(file, max(0, size - _SAMPLE), _SAMPLE)


def _first_death(file: IO[bytes], begin: int, tail: Piece) -> Piece | None:
    """What surrounds the first notice of a death, where the tail is full of them: a server that runs on repeats it for
    every request, and what failed stands once, long before."""
    (dead,) = _written("engine-dead")
    causes = _written("oom-class", "cuda-error", "fatal-of-engine")
    if tail.data.count(dead) <= _REPEATED or START.encode() not in tail.data or any(c in tail.data for c in causes):
        return None
    low, high = begin, tail.offset
    while high - low > _SAMPLE:
        middle = (low + high) // 2
        low, high = (low, middle) if dead in _at(file, middle, _SAMPLE) else (middle, high)
    start = max(begin, low - HEAD // 2)
    return Piece(start, _at(file, start, min(HEAD, tail.offset - start)))


def _written(*ids: str) -> tuple[bytes, ...]:
    """What these messages are found by, as it stands in a file."""
    return tuple(anchor.encode() for anchor in anchors(*ids))


def _markers() -> tuple[bytes, ...]:
    """What a launch is found by in a file too large to read."""
    return _written("server-version", "args-non-default", "engine-config")


def _at(file: IO[bytes], offset: int, count: int) -> bytes:
    file.seek(offset)
    return file.read(count)


def _last_marker(data: bytes) -> int:
    """Where the last launch in `data` begins: the earliest marker of the last group of markers."""
    markers = _markers()
    last = max(data.rfind(m) for m in markers)
    if last < 0:
        return -1
    # The markers of one launch stand within some seconds, hence within some kilobytes of each other.
    near = max(0, last - (HEAD // 4))
    server = data.rfind(markers[0], near, last + 1)
    arguments = data.rfind(markers[1], near, last + 1)
    found = min(p for p in (server, arguments, last) if p >= 0)
    return data.rfind(b"\n", 0, found) + 1


def _head(file: IO[bytes], tail: Piece) -> tuple[int | None, bool]:
    back = max(0, tail.offset - BACK)
    near = _last_marker(_at(file, back, tail.offset - back))
    if near >= 0:
        return back + near, True
    owner = _owner(tail.data)
    if owner is None:
        return _first_marker(_at(file, 0, HEAD)), False
    low, high = 0, back
    while high - low > HEAD:
        middle = (low + high) // 2
        sample = _at(file, middle, _SAMPLE)
        low, high = (low, middle) if owner in sample else (middle, high)
    window_start = max(0, low - HEAD // 2)
    window = _at(file, window_start, 2 * HEAD)
    first = window.find(owner)
    if first < 0:
        return None, False
    line = window.rfind(b"\n", 0, first) + 1
    # The run names itself within its first lines; where other processes spoke before it did, just above them.
    after = _first_marker(window[line : line + HEAD // 4])
    if after is not None:
        return window_start + line + after, True
    before = _last_marker(window[max(0, line - HEAD // 8) : line])
    return (window_start + max(0, line - HEAD // 8) + before, True) if before >= 0 else (window_start + line, False)


def _first_marker(data: bytes) -> int | None:
    places = [p for p in (data.find(m) for m in _markers()) if p >= 0]
    return data.rfind(b"\n", 0, min(places)) + 1 if places else None


def _owner(data: bytes) -> bytes | None:
    """The text by which the last run's lines are known: ` pid=4242)` or `[4242]: `, whichever stands in most lines.

    A server's own process speaks all the time; an engine may be silent from its start to its end.
    """
    counts: dict[bytes, int] = {}
    for found in _PID.finditer(data, max(0, len(data) - 4 * _SAMPLE)):
        mark = b" pid=" + found[1] + b")" if found[1] else b"[" + found[2] + b"]: "
        counts[mark] = counts.get(mark, 0) + 1
    return max(counts, key=counts.__getitem__, default=None)

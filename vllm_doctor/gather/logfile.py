"""Opens the logs of a service, whatever they are called, and has them read."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain

import msgspec

from vllm_doctor.gather.bounded import CHUNK, STDIN, Opened, opened, title
from vllm_doctor.gather.unpack import compression, unpacked
from vllm_doctor.log.read import pieces, window
from vllm_doctor.log.read.assemble import cut, parse_lines, raw_lines
from vllm_doctor.log.read.by_clock import in_order_of_time
from vllm_doctor.log.read.newest_first import oldest_first
from vllm_doctor.log.read.pieces import WORK_S, NotText, Read, TooMuch
from vllm_doctor.records.log import Log, LogLine
from vllm_doctor.records.reading import Known, Reading, Unknown

_HEAD = 64 << 10
# As many first bytes as tell what kind of file it is.
_MAGIC = 16
_ROTATED = re.compile(r"\.(\d{1,4})(?:\.(?:gz|bz2|xz))?$")


def read_logs(names: Sequence[str], *, theirs: bool = False) -> Reading[Log]:
    """The logs of one service, in any mix: plain, gzip, bzip2, xz, UTF-16, rotated; `-` is standard input.

    `theirs`: the service, not a person, says where they are.
    """
    files: list[list[LogLine]] = []
    notes: list[str] = []
    skipped = 0
    problems: list[Unknown] = []
    for name in sorted(names, key=_rotation, reverse=True):
        got = _read_one(name, theirs=theirs)
        if isinstance(got, Unknown):
            problems.append(got)
            continue
        skipped += got.skipped
        notes.extend(f"{title(name)}: {note}" for note in got.notes)
        found = parse_lines(got)
        if not found:
            problems.append(Unknown(f"{title(name)}: the log is empty", "give the log of a start of vLLM"))
        files.append(found)
    lines: Sequence[LogLine] = [*chain.from_iterable(files)]
    if not lines:
        return problems[0]
    notes.extend(f"{p.reason}" for p in problems)
    turned = oldest_first(lines) if not skipped else None
    if turned is not None:
        lines = turned
        notes.append("the newest entry stands first: the doctor read the log from its end")
    elif not skipped and (sorted_ := in_order_of_time(files)) is not None:
        lines = sorted_
        notes.append("several processes, one after another: the doctor read the lines in the order of their times")
    log = cut(lines, ", ".join(title(n) for n in names), skipped, notes)
    return Known(msgspec.structs.replace(log, unread=tuple(problems)), "log")


def _rotation(name: str) -> int:
    """Older files first: vllm.log.2.gz, vllm.log.1, vllm.log."""
    found = _ROTATED.search(name)
    return int(found[1]) if found else 0


def text_lines(name: str) -> list[str] | Unknown:
    """The lines of one log as they stand in it; of a long one, those of the start and of the end of its last run."""
    got = _read_one(name)
    if isinstance(got, Unknown):
        return got
    return [
        line for piece in got.pieces for line in raw_lines(pieces.as_written(piece.data).decode("utf-8-sig", "replace"))
    ]


def _read_one(name: str, *, theirs: bool = False) -> Read | Unknown:
    with opened(name, theirs=theirs) as source:
        if isinstance(source, Unknown):
            return source
        try:
            got = _read(source)
        except OSError as problem:
            return Unknown(f"{title(name)}: {problem.strerror or problem}", "give the log as a file")
        except TooMuch:
            return Unknown(
                f"{title(name)}: holds more text than is read ({WORK_S:g} s of work did not come to its end)",
                "give its end: tail -c 100M FILE (zcat FILE | tail -c 100M) | vllm-doctor diagnose --log -",
            )
    if isinstance(got, NotText):
        return Unknown(f"{title(name)}: {got.what}, not a text log", got.remedy)
    return got


def _read(source: Opened) -> Read | NotText:
    head = source.read1(_HEAD)
    while 0 < len(head) < _MAGIC and (more := source.read1(_HEAD)):
        head += more
    kind = compression(head)
    if kind is not None:
        return pieces.stream(unpacked(source, kind, head))
    if source.size and source.name != STDIN and pieces.wide(head) is None:
        with open(source.handle, "rb", buffering=0, closefd=False) as file:
            if not head.strip(b"\0"):
                head = window.end(file, source.size)  # a hole, or zeros to the end
            reason = pieces.not_text(head)
            return reason if reason is not None else window.read(file, source.size)
    return pieces.stream(_pieces(source, head))


def _pieces(source: Opened, head: bytes) -> Iterator[bytes]:
    yield head
    while block := source.read1(CHUNK):
        yield block

"""Reads logs of a service into the one record that rules judge: the last life, and how many came before it."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec

from vllm_doctor.gather import logfile_open, logfile_window
from vllm_doctor.gather.bounded import CHUNK, STDIN, Opened, opened, title
from vllm_doctor.gather.logfile_lives import ARGUMENTS, only_begins, starts
from vllm_doctor.gather.logfile_open import NotText, Read
from vllm_doctor.gather.logfile_order import oldest_first
from vllm_doctor.gather.logfile_prefix import LINE_LIMIT, Stripper, shorten
from vllm_doctor.gather.logfile_servers import servers
from vllm_doctor.gather.logfile_wrap import typed, unwrapped
from vllm_doctor.gather.unpack import WORK_S, TooMuch, compression, unpacked
from vllm_doctor.records.log import Life, Log, LogLine
from vllm_doctor.records.reading import Known, Reading, Unknown

_SERVED = '" 200 OK'
_KEPT = 100
_HEAD = 64 << 10
# As many first bytes as tell what kind of file it is.
_MAGIC = 16
# More lines than this in the few MiB that are read are no log of a server: their middle is left out.
_LINES = 60_000
_KV = re.compile(r"Available KV cache memory: (-?\d+(?:\.\d+)?) GiB")
_ROTATED = re.compile(r"\.(\d{1,4})(?:\.(?:gz|bz2|xz))?$")


def read_logs(names: Sequence[str]) -> Reading[Log]:
    """The logs of one service, in any mix: plain, gzip, bzip2, xz, UTF-16, rotated; `-` is standard input."""
    lines: list[LogLine] = []
    notes: list[str] = []
    skipped = 0
    problems: list[Unknown] = []
    for name in sorted(names, key=_rotation, reverse=True):
        got = _read_one(name)
        if isinstance(got, Unknown):
            problems.append(got)
            continue
        skipped += got.skipped
        notes.extend(f"{title(name)}: {note}" for note in got.notes)
        found = parse(got)
        if not found:
            problems.append(Unknown(f"{title(name)}: the log is empty", "give the log of a start of vLLM"))
        lines.extend(found)
    if not lines:
        return problems[0]
    notes.extend(f"{p.reason}" for p in problems)
    turned = oldest_first(lines) if not skipped else None
    if turned is not None:
        lines = [*turned]
        notes.append("the newest entry stands first in it: it was read from its end")
    log = cut(lines, ", ".join(title(n) for n in names), skipped, notes)
    return Known(msgspec.structs.replace(log, unread=tuple(problems)), "log")


def log_of_lines(raw: Iterable[str], source: str) -> Log:
    """A log from lines that were read elsewhere (the journal): prefixes stripped, cut into lives."""
    stripper = Stripper()
    lines = [line for number, text in enumerate(raw, 1) for line in stripper.lines(text.rstrip("\n"), number)]
    return cut(lines, source)


def parse(read: Read) -> list[LogLine]:
    """The lines of all pieces. After a gap, numbers count from the gap on and the first, broken line is dropped."""
    stripper = Stripper()
    found: list[LogLine] = []
    number = 0
    for index, piece in enumerate(read.pieces):
        text = piece.data.decode("utf-8", "replace")
        if index == 0 and piece.offset == 0:
            text = text.removeprefix("\ufeff")
        if not read.skipped:
            text = typed(text)
        raw = _raw_lines(text)
        if piece.offset and not piece.whole_lines and len(raw) > 1:
            raw = raw[1:]
        if len(raw) > _LINES:
            gap = len(raw) - _LINES
            raw = [*raw[: _LINES // 4], f"[… {gap} lines left out …]", *raw[-(_LINES - _LINES // 4) :]]
        if not read.skipped:
            raw = unwrapped([line.rstrip("\r") for line in raw])
        served = sum(line.endswith(_SERVED) for line in raw) - _KEPT if read.skipped else 0
        for line in raw:
            number += 1
            if served > 0 and line.endswith(_SERVED):
                served -= 1  # of a very long log's answered requests the last ones say as much as all of them
                continue
            if line.strip():
                found.extend(stripper.lines(line.rstrip("\r"), number))
    return found


def _raw_lines(text: str) -> list[str]:
    """The lines of a text, none above `LINE_LIMIT`; too many carriage returns for a progress bar end lines, too."""
    if text.count("\r") - text.count("\r\n") > _LINES:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return [line if len(line) <= LINE_LIMIT or "\r" in line else shorten(line) for line in text.split("\n")]


def cut(lines: Sequence[LogLine], source: str, skipped: int = 0, notes: Sequence[str] = ()) -> Log:
    """The last life of these lines; the one before it where that failed and the last only begins.

    A head is incomplete where bytes were skipped and no launch was seen. Where several servers wrote into the text at
    the same time, it is the first one's, and the others' are beside it.
    """
    parts = servers(lines)
    if len(parts) == 1:
        return _cut(lines, source, skipped, notes)
    logs = [
        _cut(part, source, skipped, (*notes, f"{len(parts)} servers wrote into it at the same time; judged is {name}"))
        for name, part in parts.items()
    ]
    return msgspec.structs.replace(logs[0], others=tuple(logs[1:]))


def _cut(lines: Sequence[LogLine], source: str, skipped: int, notes: Sequence[str]) -> Log:
    begins = starts(lines, headless=skipped > 0)
    if begins and only_begins(lines[begins[-2] if len(begins) > 1 else 0 : begins[-1]], lines[begins[-1] :]):
        notes = (*notes, "judged is the start before the last: it failed, and the last one is still under way")
        lines, begins = lines[: begins[-1]], begins[:-1]
    last = begins[-1] if begins else 0
    life = Life(
        lines=tuple(lines[last:]),
        complete_head=skipped == 0 or bool(begins) or _launches(lines[:400]),
        skipped_bytes=skipped,
    )
    edges = [0, *begins, len(lines)] if begins and begins[0] else [*begins, len(lines)]
    return Log(source, life, len(begins), tuple(notes), earlier_kv([lines[a:b] for a, b in pairwise(edges)]))


def earlier_kv(lives: Sequence[Sequence[LogLine]]) -> tuple[float, ...]:
    """What each earlier life of the last one's launch had for its KV cache; a rank's smallest figure counts."""
    if len(lives) < 2:
        return ()
    launches = [next((line.text for line in life if any(a in line.text for a in ARGUMENTS)), None) for life in lives]
    found: list[float] = []
    for launch, life in zip(launches[:-1], lives[:-1], strict=True):
        sizes = [float(m[1]) for line in life if (m := _KV.search(line.text)) is not None]
        if sizes and launch is not None and launch == launches[-1]:
            found.append(min(sizes))
    return tuple(found)


def _launches(lines: Sequence[LogLine]) -> bool:
    return any("LLM engine (v" in line.text or "vLLM API server version" in line.text for line in lines)


def _rotation(name: str) -> int:
    """Older files first: vllm.log.2.gz, vllm.log.1, vllm.log."""
    found = _ROTATED.search(name)
    return int(found[1]) if found else 0


def text_lines(name: str) -> list[str] | Unknown:
    """The lines of one log as they stand in it; of a long one, those of the start and of the end of its last life."""
    got = _read_one(name)
    if isinstance(got, Unknown):
        return got
    return [line for piece in got.pieces for line in _raw_lines(piece.data.decode("utf-8-sig", "replace"))]


def _read_one(name: str) -> Read | Unknown:
    with opened(name) as source:
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
        return logfile_open.stream(unpacked(source, kind, head))
    if source.size and source.name != STDIN and logfile_open.utf16(head) is None:
        reason = logfile_open.not_text(head)
        with open(source.handle, "rb", buffering=0, closefd=False) as file:
            return reason if reason is not None else logfile_window.read(file, source.size)
    return logfile_open.stream(_pieces(source, head))


def _pieces(source: Opened, head: bytes) -> Iterator[bytes]:
    yield head
    while block := source.read1(CHUNK):
        yield block

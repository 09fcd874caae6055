"""Reads logs of a service into the one record that rules judge: the last life, and how many came before it."""

import io
import os
import re
import shlex
import stat
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from vllm_doctor.gather import logfile_open, logfile_window
from vllm_doctor.gather.logfile_lives import ARGUMENTS, only_begins, starts
from vllm_doctor.gather.logfile_open import NotText, Read
from vllm_doctor.gather.logfile_order import oldest_first
from vllm_doctor.gather.logfile_prefix import Stripper
from vllm_doctor.gather.logfile_wrap import typed, unwrapped
from vllm_doctor.records.log import Life, Log, LogLine
from vllm_doctor.records.reading import Known, Reading, Unknown

STDIN = "-"
_SERVED = '" 200 OK'
_KEPT = 100
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
        notes.extend(f"{_title(name)}: {note}" for note in got.notes)
        found = parse(got)
        if not found:
            problems.append(Unknown(f"{_title(name)}: the log is empty", "give the log of a start of vLLM"))
        lines.extend(found)
    if not lines:
        return problems[0]
    notes.extend(f"{p.reason}" for p in problems)
    turned = oldest_first(lines) if not skipped else None
    if turned is not None:
        lines = [*turned]
        notes.append("the newest entry stands first in it: it was read from its end")
    log = cut(lines, ", ".join(_title(n) for n in names), skipped, notes)
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
        raw = text.split("\n")
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


def cut(lines: Sequence[LogLine], source: str, skipped: int = 0, notes: Sequence[str] = ()) -> Log:
    """The last life of these lines; the one before it where that failed and the last only begins.

    A head is incomplete where bytes were skipped and no launch was seen.
    """
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


def _title(name: str) -> str:
    return "standard input" if name == STDIN else name


def _rotation(name: str) -> int:
    """Older files first: vllm.log.2.gz, vllm.log.1, vllm.log."""
    found = _ROTATED.search(name)
    return int(found[1]) if found else 0


def _read_one(name: str) -> Read | Unknown:
    try:
        got = _read_stdin() if name == STDIN else _read_file(Path(name))
    except FileNotFoundError:
        return Unknown(f"{name}: no such file", "check the path")
    except IsADirectoryError:
        return Unknown(f"{name}: is a directory", "name the log file in it")
    except PermissionError:
        return Unknown(f"{name}: permission denied", f"run as a user who may read it: ls -l {shlex.quote(name)}")
    except OSError as problem:
        return Unknown(f"{name}: {problem.strerror or problem}", "")
    if isinstance(got, NotText):
        return Unknown(f"{_title(name)}: {got.what}, not a text log", got.remedy)
    return got


def _read_stdin() -> Read | NotText:
    with open(sys.stdin.fileno(), "rb", closefd=False) as source:
        return _read_pipe(source)


def _read_pipe(source: io.BufferedReader) -> Read | NotText:
    """What comes through a pipe, packed or not."""
    kind = logfile_open.compression(source.peek(8))
    return logfile_open.stream(source) if kind is None else logfile_open.decompressed(source, kind)


def _read_file(path: Path) -> Read | NotText:
    with path.open("rb", buffering=0) as file:
        if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):  # --log <(journalctl -u vllm)
            return _read_pipe(io.BufferedReader(file))
        head = file.read(65536)
        kind = logfile_open.compression(head)
        if kind is None and logfile_open.utf16(head) is None and path.is_file():
            reason = logfile_open.not_text(head)
            return reason if reason is not None else logfile_window.read(file, path.stat().st_size)
        if kind is None:
            if path.is_file():
                with path.open("rb") as whole:
                    return logfile_open.stream(whole)
            return NotText("not a regular file", "pipe it: … | vllm-doctor diagnose --log -")
    return logfile_open.decompressed(path, kind)

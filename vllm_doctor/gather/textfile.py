"""A file that a person gives beside the log: a scrape, a kernel log, what nvidia-smi said; `-` is standard input."""

import os
import stat
import sys
from pathlib import Path
from typing import IO

from vllm_doctor.records.reading import Unknown

STDIN = "-"
# Of more than this the end is read: what was written last is what is asked about.
LIMIT = 32 << 20


def title(name: str) -> str:
    """What the source is called in an answer."""
    return "standard input" if name == STDIN else name


def read_end(name: str, option: str, limit: int = LIMIT) -> bytes | Unknown:
    """The last `limit` bytes of a file or of standard input; Unknown says why they could not be read."""
    try:
        with open(sys.stdin.fileno(), "rb", closefd=False) if name == STDIN else Path(name).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISREG(mode) and name != STDIN:
                file.seek(max(0, file.seek(0, os.SEEK_END) - limit))
                return file.read(limit)
            if stat.S_ISCHR(mode) and not file.isatty():
                return Unknown(f"{title(name)}: a device, not a file", f"check the path given with {option}")
            return _end_of_stream(file, limit)
    except OSError as problem:
        return Unknown(
            f"{title(name)}: {(problem.strerror or str(problem)).lower()}", f"check the path given with {option}"
        )


def _end_of_stream(file: IO[bytes], limit: int) -> bytes:
    kept = b""
    while block := file.read(1 << 20):
        kept = (kept + block)[-limit:]
    return kept

"""Standard streams as they may be: closed, full, without a reader, or of an encoding that lacks our signs."""

import codecs
import contextlib
import io
import os
import sys
from pathlib import Path

# What stands for our few signs where the terminal's encoding has none (LANG=C, ISO 8859-1).
_PLAIN = {"×": "x", "…": "...", "−": "-", "·": "-", "→": "->", "²": "^2"}


def _plain(problem: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    part = problem.object[problem.start : problem.end]
    return "".join(_PLAIN.get(c) or c.encode("ascii", "backslashreplace").decode() for c in part), problem.end


def mend() -> None:
    """Give closed streams nothing to read and nowhere to write, and let no sign break the others."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - for as long as we live
    codecs.register_error("vllm-doctor", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="vllm-doctor")


def drop() -> None:
    """Forget what standard output still holds, so that the interpreter's own end does not trip over it again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str) -> None:
    """Write to standard output. A reader that went away (`| head -1`) saw what it wanted; the exit code stays.

    Raises OSError where the medium is full.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        drop()

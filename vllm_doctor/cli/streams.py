"""Standard streams as they may be: closed, full, without a reader, or of an encoding that lacks our signs; and the one
way out of this process, on which nothing secret leaves."""

import codecs
import contextlib
import io
import os
import select
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO, cast

# What stands for our few signs where the terminal's encoding has none (LANG=C, ISO 8859-1).
_PLAIN = {
    "×": "x", "…": "...", "−": "-", "·": "-", "→": "->", "²": "^2", "█": "#", "▓": "=", "▒": "+", "▞": "%", "▚": "*",
    "░": ".",
}  # fmt: skip


def _plain(problem: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    part = problem.object[problem.start : problem.end]
    return "".join(_PLAIN.get(c) or c.encode("ascii", "backslashreplace").decode() for c in part), problem.end


def mend() -> None:
    """Give closed streams nothing to read and nowhere to write, and let no sign break the others. What is said on a
    closed standard output is an error, as on a full one: an answer that nobody can have is none."""
    for name, mode in (("stdin", "r"), ("stdout", "r"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - for as long as we live
            setattr(sys, name, nowhere)
            setattr(sys, f"__{name}__", nowhere)  # what is written below uses its descriptor
    codecs.register_error("vllm-doctor", _plain)
    for name, raw in (("stdout", _Unread), ("stderr", _Lossy)):
        stream = getattr(sys, name)
        stream.flush()
        setattr(sys, name, _writer(raw(stream.fileno(), "w", closefd=False), stream))


class _Unread(io.FileIO):
    """A reader that went away (`| head -1`) saw what it wanted; one that is slow is waited for."""

    def write(self, data: Any, /) -> int:
        try:
            while (count := super().write(data)) is None:  # another program made the terminal non-blocking
                select.select([], [self.fileno()], [])
        except BrokenPipeError:
            return len(data)
        return count


class _Lossy(_Unread):
    """What cannot be said (closed, full) does not change how we end."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _writer(raw: io.FileIO, like: io.TextIOWrapper) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=like.encoding,
        errors="vllm-doctor",
        line_buffering=raw.isatty() or like.line_buffering,
    )


def drop() -> None:
    """Forget what standard output still holds, so that the interpreter's own end does not trip over it again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Guarded:
    """A stream that lets no secret pass, and nothing that acts on a terminal, whoever writes to it: an answer, a
    warning, a library's word on a bad option.

    Whole lines go through. It is the last net: answers are redacted before they are laid out (redact.records), as a
    secret that was wrapped over two lines could not be seen here.
    """

    # Bytes would pass unseen: who asks for the stream's own buffer has to write text.
    buffer = None

    def __init__(self, stream: TextIO, *, plain: bool = False) -> None:
        """With `plain` not even our own colours pass, and nothing invisible: a library repeats a bad argument as it
        stands."""
        self.stream = stream
        self._plain = plain
        self._held = ""

    def write(self, text: str) -> int:
        """Keep what is no whole line yet, pass the rest on."""
        *lines, self._held = (self._held + text).split("\n")
        if lines:
            self._pass("\n".join((*lines, "")))
        return len(text)

    def flush(self) -> None:
        """Pass on what is kept."""
        held, self._held = self._held, ""
        if held:
            self._pass(held)
        self.stream.flush()

    def _pass(self, text: str) -> None:
        from vllm_doctor.redact.text import without_secrets
        from vllm_doctor.redact.visible import visible
        from vllm_doctor.render.text import harmless

        told = without_secrets(text)
        told = "\n".join(visible(line) for line in told.split("\n")) if self._plain else harmless(told)
        self.stream.write(told)

    def __getattr__(self, name: str) -> Any:
        """Its encoding, whether it is a terminal, its number: all but writing is the stream's own."""
        return getattr(self.stream, name)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Let nothing secret leave by standard output or standard error."""
    before = sys.stdout, sys.stderr
    guards = Guarded(before[0]), Guarded(before[1], plain=True)
    sys.stdout, sys.stderr = cast("tuple[TextIO, TextIO]", guards)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for guard in guards:
            with contextlib.suppress(OSError, ValueError):
                guard.flush()


def reader_left(within_s: float) -> bool:
    """Wait so long, or until the reader of standard output has gone (`| head`, a terminal that was closed); has it?"""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)  # whether it can be written is not asked
        gone = poll.poll(within_s * 1000)
    except (OSError, ValueError):  # closed from the start: nobody ever read
        return True
    return any(event & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _, event in gone)


def say(text: str) -> None:
    """Write to standard output. A reader that went away (`| head -1`) saw what it wanted; the exit code stays.

    Raises OSError where the medium is full.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        drop()

"""A report goes into its file whole or not at all, and nothing but a file is ever replaced."""

import errno
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from vllm_doctor.redact.text import without_secrets

_Target = str | os.PathLike[str]
_READER_S = 3.0


def put(target: _Target, text: str, mode: int | None = None) -> None:
    """Write `text` in UTF-8 beside `target` and rename it there, with this mode or the umask's. Raises OSError.

    A link stays, and what it names is replaced. A device or a pipe (`/dev/stdout`, `/dev/null`) is written into:
    renamed over by root, it would be gone for the whole host. No secret is written, whoever made the text.
    """
    text = without_secrets(text)
    if not replaceable(target):
        _into(target, text)
        return
    place = Path(os.path.realpath(target))
    half = place.with_name(f".{place.name}.{os.getpid()}")
    half.unlink(missing_ok=True)
    try:
        with half.open("x", encoding="utf-8") as file:
            file.write(text)
        if mode is not None:
            half.chmod(mode)
        half.replace(place)
    finally:
        half.unlink(missing_ok=True)


def _into(target: _Target, text: str) -> None:
    """Write into a device, or into a pipe that somebody reads; one who comes late is waited for, but not for ever."""
    end = time.monotonic() + _READER_S
    while True:
        try:
            file = os.open(target, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as problem:
            if problem.errno != errno.ENXIO:
                raise
            if time.monotonic() > end:
                raise OSError(errno.ENXIO, "nobody reads from it", str(target)) from None
            time.sleep(0.02)
        else:
            break
    os.set_blocking(file, True)
    with os.fdopen(file, "w", encoding="utf-8") as out:
        out.write(text)


def replaceable(target: _Target) -> bool:
    """False for what is there and is neither a file nor a folder."""
    with suppress(FileNotFoundError):
        found = Path(target).stat().st_mode
        return stat.S_ISREG(found) or stat.S_ISDIR(found)
    return True

"""A report goes into its file whole or not at all, and nothing but a file is ever replaced."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from vllm_doctor.redact.text import safe

_Target = str | os.PathLike[str]


def put(target: _Target, text: str, mode: int | None = None) -> None:
    """Write `text` in UTF-8 beside `target` and rename it there, with this mode or the umask's. Raises OSError.

    A link stays, and what it names is replaced. A device or a pipe (`/dev/stdout`, `/dev/null`) is written into:
    renamed over by root, it would be gone for the whole host. No secret is written, whoever made the text.
    """
    text = safe(text)
    if not replaceable(target):
        Path(target).write_text(text, encoding="utf-8")
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


def replaceable(target: _Target) -> bool:
    """False for what is there and is neither a file nor a folder."""
    with suppress(FileNotFoundError):
        found = Path(target).stat().st_mode
        return stat.S_ISREG(found) or stat.S_ISDIR(found)
    return True

"""Say to the guard, and to whoever looks, that the host's services are being changed just now."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vllm_doctor.gather import look


@contextmanager
def announced(who: str, file: Path = look.CHANGING) -> Iterator[None]:
    """Let the guard rest meanwhile. A word that stands there already, a playbook's, stays."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists():
        yield
        return
    file.write_text(f"{who}\n", encoding="utf-8")
    try:
        yield
    finally:
        file.unlink(missing_ok=True)

"""Say to the guard, and to whoever looks, that a service of the host is being changed just now."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vllm_doctor.gather import look, procfs


@contextmanager
def announced(who: str, unit: str, file: Path = look.CHANGING) -> Iterator[None]:
    """Let the guard leave `unit` alone meanwhile. A word that holds already, a playbook's, stays; one of who was killed
    does not."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if look.changing(time.time(), file):
        yield
        return
    file.write_text(f"{who}\n{os.getpid()} {procfs.started(os.getpid())}\n{unit}\n", encoding="utf-8")
    try:
        yield
    finally:
        file.unlink(missing_ok=True)

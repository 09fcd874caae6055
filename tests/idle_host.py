"""A /proc on which nothing runs: whatever runs beside the tests is none of the host's that they describe."""

from pathlib import Path


def no_processes(proc: Path) -> Path:
    """The folder made, with this host's memory and network and none of its processes."""
    proc.mkdir()
    for name in ("meminfo", "net", "sys"):
        (proc / name).symlink_to(f"/proc/{name}")
    return proc

"""The exit statuses with which systemd says that it could not start a unit's program, and the setting that each names.

systemd sets up a process step by step before it runs the program; where a step fails, the process ends with that step's
status (systemd.exec(5), "Process exit codes"). The program itself has then not run.
"""

from functools import cache
from pathlib import Path

import msgspec


class SystemdStatus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step: its name as systemd writes it, the setting of the unit that it applies, and why it most often fails."""

    name: str
    setting: str
    why: str


class _Statuses(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    read: str
    statuses: dict[str, SystemdStatus]


@cache
def systemd_statuses() -> dict[int, SystemdStatus]:
    """All steps by exit status."""
    path = Path(__file__).with_name("systemd_statuses.json")
    told = msgspec.json.decode(path.read_bytes(), type=_Statuses).statuses
    return {int(number): status for number, status in told.items()}


def of_step(name: str) -> SystemdStatus | None:
    """The step of this name (`EXEC`); None for one that is not known here."""
    return next((status for status in systemd_statuses().values() if status.name == name), None)

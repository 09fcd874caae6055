"""The one unit that a command is to change: it is there, and this user may change it."""

import os

from vllm_doctor.cli.errors import UsageProblem
from vllm_doctor.gather import systemd, unit_line
from vllm_doctor.gather.live import discover
from vllm_doctor.gather.systemd import Found
from vllm_doctor.records.reading import Known


def unit(command: str, name: str, *, changes: bool) -> Found:
    """The unit. Raises UsageProblem where there is none of this name, or without the right to change it."""
    if changes and os.geteuid() != 0:
        raise UsageProblem(
            f"{command}: found a user who may not change services; needed: root (sudo vllm-doctor {command} …)"
        )
    found = systemd.find(name, 5)
    if not isinstance(found, Known):
        known = discover()
        names = ", ".join(known.value) if isinstance(known, Known) else "none"
        raise UsageProblem(f"{command}: --unit {name}: {found.reason.rstrip('.')}. vLLM units here: {names}")
    if found.value[0].unit.load_state == "masked":
        raise UsageProblem(
            f"{command}: {name} is masked, so systemd does not start it; needed: systemctl unmask {name}"
        )
    one = unit_line.exact(found.value[0])
    if not one.argv or not one.argv[0].startswith("/"):
        raise UsageProblem(
            f"{command}: the command line of {name} cannot be read; needed: ExecStart= with an absolute path"
        )
    return one

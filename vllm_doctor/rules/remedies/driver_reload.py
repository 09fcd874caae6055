"""The loaded module of the NVIDIA driver and its libraries are of two releases: load the module of the libraries."""

from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.say import thing


def reload_driver() -> Change:
    """Reboot, or unload and load the module of a drained host."""
    return thing(
        ChangeKind.OS,
        "host",
        Direction.CHANGE,
        "the packages were upgraded while the old module was loaded: unload it, or reboot",
        command="systemctl reboot   # or, drained: modprobe -r nvidia_uvm nvidia_drm && modprobe nvidia",
    )

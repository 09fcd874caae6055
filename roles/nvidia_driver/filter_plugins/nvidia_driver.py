# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""What the hardware of a host needs of a driver, by the doctor's own compatibility table."""

import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
if (REPOSITORY / "vllm_doctor").is_dir() and str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))  # a checkout needs no installed package on the controller

from vllm_doctor.knowledge.compat import Fabric, table  # noqa: E402
from vllm_doctor.preflight.driver import flavour, needs_fabric_manager  # noqa: E402
from vllm_doctor.preflight.intent import host  # noqa: E402
from vllm_doctor.preflight.intent import intent as wants  # noqa: E402
from vllm_doctor.preflight.records import Case  # noqa: E402


def hardware(facts, flavour_wanted="auto"):
    """From the answer of preflight_facts: GPUs by name, the flavour to install, the daemons that the fabric needs."""
    wanted = wants({"nvidia_driver_flavour": flavour_wanted}, table())
    case = Case(wanted, host(facts), table(), table().checked)
    fabrics = {gpu.fabric for gpu in case.gpus}
    return {
        "gpus": [gpu.label for gpu in case.gpus],
        "unknown": [device for device in facts.get("gpus") or [] if table().gpu(device) is None],
        "flavour": flavour(wanted, case.gpus) if case.gpus else None,
        "fabric_manager": needs_fabric_manager(case),
        "subnet_manager": Fabric.NVLINK5 in fabrics,
        "imex": Fabric.NVL72 in fabrics,
    }


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Name to function."""
        return {"nvidia_driver_hardware": hardware}

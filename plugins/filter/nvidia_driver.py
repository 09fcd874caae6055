# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""What the hardware of a host needs of a driver, by the doctor's own compatibility table."""

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
if (REPOSITORY / "vllm_doctor").is_dir() and str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))  # a checkout needs no installed package on the controller

from vllm_doctor.knowledge.compat import Fabric, table  # noqa: E402
from vllm_doctor.preflight.driver import flavour, needs_fabric_manager  # noqa: E402
from vllm_doctor.preflight.intent import host  # noqa: E402
from vllm_doctor.preflight.intent import intent as wants  # noqa: E402
from vllm_doctor.preflight.judged import HostToJudge  # noqa: E402


def hardware(facts: Mapping[str, Any], flavour_wanted: str = "auto") -> dict[str, object]:
    """From the answer of preflight_facts: GPUs by name, the flavour to install, the daemons that the fabric needs."""
    wanted = wants({"nvidia_driver_flavour": flavour_wanted}, table())
    case = HostToJudge(wanted, host(facts), table(), table().checked)
    fabrics = {gpu.fabric for gpu in case.gpus}
    return {
        "gpus": [gpu.label for gpu in case.gpus],
        "unknown": [device for device in facts.get("gpus") or [] if table().gpu(device) is None],
        "flavour": flavour(wanted, case.gpus) if case.gpus else None,
        "fabric_manager": needs_fabric_manager(case),
        "subnet_manager": Fabric.NVLINK5 in fabrics,
        "imex": Fabric.NVL72 in fabrics,
    }


def same(repositories: Iterable[Mapping[str, str]], url: str) -> list[str]:
    """The files that define this repository, without those that our own roles write."""
    found = [row["file"] for row in repositories if row["uri"].rstrip("/") == url.strip().rstrip("/")]
    return sorted({file for file in found if Path(file).stem not in {"nvidia-driver", "nvidia-cuda"}})


def unproven(proof: Mapping[str, Any]) -> list[str]:
    """What speaks against the GPUs after a change of the driver; empty where all of them compute.

    A card in MIG mode shows CUDA no device before it has slices, and one of its slices after: it is not counted.
    """
    cards = [gpu for gpu in proof["nvml"].get("gpus") or [] if gpu.get("uuid")]
    sliced = any(gpu.get("mig") for gpu in cards)
    found = []
    if "error" in proof["nvml"]:
        found.append(f"NVML: {proof['nvml']['error']}")
    elif len(cards) != proof["bus"]:
        found.append(f"NVML shows {len(cards)} of the {proof['bus']} GPUs on the bus")
    for name in () if sliced else ("kernel", "torch"):
        answer = proof[name]
        if answer["outcome"] == "failed":
            found.append(f"{name}: {answer['why']}")
        elif answer["outcome"] == "ok" and cards and answer["gpus"] != len(cards):
            found.append(f"{name}: CUDA shows {answer['gpus']} GPUs, NVML {len(cards)}")
    return found


def proven(proof: Mapping[str, Any]) -> str:
    """The proof in one line; what did not run says why."""

    def told(name: str) -> str:
        answer = proof[name]
        if any(gpu.get("mig") for gpu in proof["nvml"].get("gpus") or []):
            return f"{name}: not counted, a GPU is in MIG mode"
        did = "computed on " + str(answer["gpus"]) if answer["outcome"] == "ok" else "not run: " + answer["why"]
        return f"{name}: {did}"

    return f"NVML: {len(proof['nvml']['gpus'])} of {proof['bus']} GPUs; {told('kernel')}; {told('torch')}"


def waiting(host: Mapping[str, Any]) -> str:
    """What a host waits for, as a cell of the table; from its variables."""
    if host.get("nvidia_driver_pending"):
        users = ", ".join([*host["nvidia_driver_services"], *host["nvidia_driver_strangers"]])
        return f"{users} computes; no package was changed" if users else "its turn broke off; its services are stopped"
    return "nothing computes; packages installed and held"


def waiters(hosts: Iterable[Mapping[str, Any]], consented: bool) -> list[str]:
    """Names of the hosts that cannot go on: no consent to a restart or a drain, or what computes there is not ours."""

    def stands(host: Mapping[str, Any]) -> bool:
        pending = host.get("nvidia_driver_pending")
        return bool(host.get("nvidia_driver_waits") or (pending and (not consented or host["nvidia_driver_strangers"])))

    return [host["inventory_hostname"] for host in hosts if stands(host)]


def turn(host: Mapping[str, Any]) -> dict[str, str]:
    """What became of a host in the batches, as cells of the table: the driver before and wanted, and the state."""
    before, wanted = host["nvidia_driver_from"], host["nvidia_driver_version"]
    if host.get("nvidia_driver_done"):
        return {"driver": wanted, "state": "changed; a GPU computes, its services answer"}
    way = f"{before} -> {wanted}"
    if not host.get("nvidia_driver_begun"):
        return {"driver": before, "state": "not reached; serves"}
    if "nvidia_driver_failure" not in host:
        return {"driver": way, "state": "DOES NOT ANSWER ANY MORE"}
    if not host.get("nvidia_driver_touched"):
        again = "serves again" if host.get("nvidia_driver_serves_again") else "DOES NOT SERVE"
        return {"driver": before, "state": f"FAILED before a package was changed; {again}"}
    at = "with its service" if host.get("nvidia_driver_back") else "after its services had drained; they are stopped"
    return {"driver": way, "state": f"FAILED {at}"}


class FilterModule:
    """The filters of this role."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Name to function."""
        return {
            "nvidia_driver_hardware": hardware,
            "nvidia_driver_unproven": unproven,
            "nvidia_driver_proof": proven,
            "nvidia_driver_waiting": waiting,
            "nvidia_driver_waiters": waiters,
            "nvidia_driver_turn": turn,
            "nvidia_driver_same": same,
        }

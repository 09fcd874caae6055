"""What a runtime says where it cannot give a container the GPUs of the host: title and change, by message."""

from collections.abc import Callable

import msgspec

from vllm_doctor.records.container import Container
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction, Phase
from vllm_doctor.rules.remedies.driver_reload import reload_driver
from vllm_doctor.rules.say import thing


class RuntimeMessage(msgspec.Struct, frozen=True):
    """One message of a runtime: the title for it, what it is in the flowchart, and what to do."""

    message: str
    title: str
    change: Change | Callable[[Container, dict[str, str]], Change]
    phase: Phase = Phase.NOT_MEMORY

    def changed(self, container: Container, said: dict[str, str]) -> Change:
        """What to do for this container, by the fields of its message."""
        return self.change if isinstance(self.change, Change) else self.change(container, said)


def repair(name: str, why: str, command: str = "", direction: Direction = Direction.REPAIR) -> Change:
    """A change of the host, of its runtime or of the cluster."""
    return thing(ChangeKind.OS, name, direction, why, command=command or None)


def _toolkit(container: Container, _: dict[str, str]) -> Change:
    name = "podman" if container.runtime == "podman" else "docker"
    after = (
        "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml && nvidia-ctk cdi list"
        if name == "podman"
        else "nvidia-ctk runtime configure --runtime=docker && systemctl restart docker"
    )
    return repair(
        "container-toolkit",
        f"{name} has no NVIDIA runtime or CDI specification, so it cannot give a container a GPU",
        after,
    )


def _own_files(_: Container, said: dict[str, str]) -> Change:
    name = said.get("file") or "libcuda.so.1"
    return repair(
        "image", f"the toolkit puts the host's {name} into the container, and the image has one already: it was saved "
        "from a running container, or had a driver installed. Remove the file from the image, or build it again",
        "docker run --rm --entrypoint sh IMAGE -c 'find / -name \"libcuda.so*\" -o -name \"libnvidia-*.so*\"'",
    )  # fmt: skip


def _older_image(_: Container, said: dict[str, str]) -> Change:
    wants = said.get("condition", "a newer driver")
    return repair(
        "driver", f"the image asks for {wants}; an image built for the CUDA that this driver has runs as well",
        "nvidia-smi | head -4   # the CUDA version that this driver can serve", Direction.UPGRADE,
    )  # fmt: skip


# What neither the container nor the words of the message change.
_DRIVER = repair(
    "driver-module", "the host's driver does not answer; until it does, no container gets a GPU",
    "nvidia-smi; dkms status; modprobe nvidia",
)  # fmt: skip
_WSL = repair(
    "driver", "the driver is that of Windows, which hands the GPU to WSL 2: no Linux driver belongs into the "
    "distribution. Install a newer NVIDIA driver on Windows, update WSL, see that the distribution is of version "
    "2, and restart WSL and Docker",
    "wsl --update; wsl -l -v; wsl --shutdown   # then in WSL: ls /usr/lib/wsl/lib; nvidia-smi",
)  # fmt: skip
_NOT_INSTALLED = repair(
    "driver", "the runtime finds no driver library where it runs: install the driver on this host. Docker Desktop "
    "and Docker from snap run elsewhere, where the host's driver is not: use the packages of Docker Engine",
    "ldconfig -p | grep libnvidia-ml; docker info --format '{{.OperatingSystem}} {{.DockerRootDir}}'",
    Direction.ADD,
)  # fmt: skip
_LOST = repair(
    "gpu", "the driver lost a GPU; drain the host and reboot it, and replace a GPU that is lost again",
    "journalctl -k | grep -E 'NVRM|Xid'; nvidia-smi -L   # then: systemctl reboot",
)  # fmt: skip
_SLOW = repair(
    "driver-persistence", "the driver initialises all GPUs again for each program, and that takes too long",
    "systemctl enable --now nvidia-persistenced; nvidia-smi -q | grep -i persistence",
)  # fmt: skip
_LDCONFIG = repair(
    "container-toolkit-settings", "its configuration names an ldconfig of another distribution: write ldconfig = "
    '"@/sbin/ldconfig" into /etc/nvidia-container-runtime/config.toml',
    "grep -n ldconfig /etc/nvidia-container-runtime/config.toml; ls -l /sbin/ldconfig*", Direction.CHANGE,
)  # fmt: skip


def _ldconfig_failed(_: Container, said: dict[str, str]) -> Change:
    return repair(
        "container-toolkit-settings", f"its ldconfig {said.get('how', 'failed')}: one of another distribution, or of "
        "the toolkit's own container, does not run in the image's root: ldconfig = \"@/sbin/ldconfig\" (Debian: "
        "@/sbin/ldconfig.real) in its config.toml; a signal 9 is the kernel's or a limit's",
        "grep -rn ldconfig /etc/nvidia-container-runtime/config.toml /usr/local/nvidia/toolkit/.config 2>/dev/null; "
        "journalctl -k --since -1h | grep -iE 'oom|killed process'", Direction.CHANGE,
    )  # fmt: skip


_CGROUP = repair(
    "container-toolkit-settings", "it may not set the device rules of the container: one before 1.8 knows "
    "no cgroup v2, and a rootless runtime never may. Upgrade it; rootless: no-cgroups = true in "
    "/etc/nvidia-container-runtime/config.toml, or give the GPUs by CDI",
    "nvidia-container-cli --version; stat -fc %T /sys/fs/cgroup", Direction.UPGRADE,
)  # fmt: skip
_DEVICES = repair(
    "toolkit-user", "it may not open the GPU's device files: the user of its configuration (user = in "
    "/etc/nvidia-container-runtime/config.toml) needs their group, or the driver's settings keep others out "
    "(NVreg_DeviceFileMode)",
    "ls -l /dev/nvidia*; grep -n user /etc/nvidia-container-runtime/config.toml; grep -i DeviceFile "
    "/proc/driver/nvidia/params",
)  # fmt: skip

# The first that was said counts: what tells most stands first.
OF_THE_GPUS = (
    RuntimeMessage("runtime-driver-old", "The image asks for a newer driver than the host has", _older_image,
            Phase.DRIVER_CUDA_MISMATCH),
    RuntimeMessage("image-holds-driver", "The image contains driver files, which must come from the host", _own_files,
            Phase.DRIVER_CUDA_MISMATCH),
    RuntimeMessage("runtime-without-wsl-gpu", "Windows gives no GPU to WSL, so no container gets one", _WSL,
            Phase.DRIVER_CUDA_MISMATCH),
    RuntimeMessage("runtime-driver-mismatch", "The host's driver and its libraries do not match", reload_driver(),
            Phase.DRIVER_CUDA_MISMATCH),
    RuntimeMessage("runtime-driver-not-installed", "The container runtime finds no NVIDIA driver", _NOT_INSTALLED,
            Phase.DRIVER_CUDA_MISMATCH),
    RuntimeMessage("runtime-gpu-lost", "The host's driver lost a GPU, so no container gets one", _LOST),
    RuntimeMessage("runtime-driver-slow", "The driver takes too long to start the GPUs", _SLOW),
    RuntimeMessage("runtime-ldconfig-missing", "The NVIDIA toolkit runs an ldconfig that is not there", _LDCONFIG),
    RuntimeMessage("runtime-ldconfig-failed", "The NVIDIA toolkit's ldconfig failed", _ldconfig_failed),
    RuntimeMessage("runtime-device-rules", "The NVIDIA toolkit cannot give the container its devices", _CGROUP),
    RuntimeMessage("runtime-device-refused", "The NVIDIA toolkit may not open the GPU's device files", _DEVICES),
    RuntimeMessage("runtime-without-driver", "The host's driver does not answer, so no container gets a GPU", _DRIVER,
            Phase.DRIVER_CUDA_MISMATCH),
    RuntimeMessage("runtime-without-gpus", "The container runtime cannot give GPUs to containers", _toolkit,
            Phase.DRIVER_CUDA_MISMATCH),
)  # fmt: skip

"""VD706: no usable GPU: the module is not loaded, the device is hidden, busy, or the fabric is not up."""

from dataclasses import dataclass

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import read, says
from vllm_doctor.records.finding import Change, Evidence, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Phase
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.cuda_libraries import CUDA_LIBRARIES
from vllm_doctor.rules.gates.device import modes_told, platform
from vllm_doctor.rules.gates.named_fault import named, severity, shown
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import environment, finding, thing

_IDS = (
    "cuda-802",
    "nvml-unknown",
    "driver-silent",
    "no-gpus",
    "no-cuda-said",
    "no-xpus",
    "no-gpus-counted",
    "no-driver",
    "image-without-gpu",
    "no-device-detected",
    "cuda-init-failed",
    "device-type",
    "device-empty",
    "devices-busy",
    "gpu-lost",
    "kfd-refused",
    "accel-refused",
)
# vLLM asks the library of each maker for its devices (NVML, amdsmi; platforms/__init__.py) and found none. NVML does
# not read CUDA_VISIBLE_DEVICES.
_PLATFORM = frozenset({"device-type", "device-empty"})
# What follows where torch was not built for any GPU.
_OF_TORCH = _PLATFORM | {"no-gpus", "no-cuda-said", "no-device-detected"}
# What does not say why: a number of GPUs is what was divided by, and a library asked torch alone.
_UNSAID = frozenset({"no-gpus-counted", "no-cuda-said"})
# Ray names the call of an actor above the calls within it.
_CALL = 40

# Where the devices that a process may see are what is wrong.
_HIDDEN = frozenset({"no-gpus", "no-cuda-said", "no-device-detected", "cuda-init-failed", "devices-busy"})
# What a failure itself names, and mends.
_BY_NAME = (
    (
        {"cuda-802"},
        thing(
            ChangeKind.OS,
            "nvidia-fabricmanager",
            Direction.REPAIR,
            "start the fabric manager in the driver's version: hosts with NVSwitch need the fabric manager",
            command="systemctl enable --now nvidia-fabricmanager && systemctl status nvidia-fabricmanager",
        ),
    ),
    (
        {"nvml-unknown"},
        thing(
            ChangeKind.OS,
            "container",
            Direction.REPAIR,
            "restart the container: a daemon-reload took away its access to the devices",
            command="docker restart CONTAINER",
        ),
    ),
    (
        {"image-without-gpu", "no-gpus-counted"},
        thing(
            ChangeKind.OS,
            "container-gpus",
            Direction.CHANGE,
            "the container must get the GPU and the host's driver: --gpus all with NVIDIA's toolkit, "
            "nvidia.com/gpu in a pod; the host needs a driver that the image supports",
            command="nvidia-smi; docker run --rm --gpus all ubuntu nvidia-smi -L",
        ),
    ),
    (
        {"driver-silent"},
        thing(
            ChangeKind.OS,
            "driver",
            Direction.REPAIR,
            "load the kernel module: DKMS, Secure Boot or nouveau may prevent it",
            command="modprobe nvidia; dkms status; mokutil --sb-state; lsmod | grep nouveau",
        ),
    ),
)
_COMPUTE_MODE = thing(
    ChangeKind.OS,
    "compute-mode",
    Direction.CHANGE,
    "the GPU takes one process at a time (Exclusive_Process) and another one has it, or it takes none "
    "(Prohibited): end that process, or set the mode back to Default",
    command="nvidia-smi; nvidia-smi --query-gpu=index,compute_mode --format=csv  # -i N -c DEFAULT sets it",
)
_REBOOT = thing(
    ChangeKind.OS,
    "host",
    Direction.CHANGE,
    "reboot: the GPU left the bus (see its Xid in the kernel log)",
    command="systemctl reboot",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Devices:
    """What a process needs of one maker's devices, how to look, and who says that a device is usable."""

    give: str
    see: str
    check: str


# By vLLM's name of the platform (rocm.docs.amd.com: GPU isolation techniques).
_OPENED = {
    "rocm": _Devices(
        give="ROCm opens /dev/kfd and the cards under /dev/dri: pass both to the container, and put the process's user "
        "into the groups that own them; HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES must name GPUs that exist",
        see="ls -l /dev/kfd /dev/dri; id; rocminfo | grep gfx; env | grep VISIBLE_DEVICES",
        check="rocminfo",
    ),
    "xpu": _Devices(
        give="the user, or the container, must open /dev/dri/renderD*: --device /dev/dri with -v /dev/dri/by-path, "
        "and the numbers of their groups; and torch must load SYCL's libraries: the environment's lib folder, or "
        "oneAPI's setvars.sh, in LD_LIBRARY_PATH",
        see="ls -ln /dev/dri; id; python -c 'import torch; print(torch.xpu.device_count())'; sycl-ls",
        check="xpu-smi discovery",
    ),
    "tpu": _Devices(
        give="the process must open the TPU's device files: --privileged, or google.com/tpu in a pod's limits; on a "
        "TPU VM the group or the user that owns them; and libtpu must be importable, by which vLLM tells a TPU "
        "(platforms/__init__.py), with the torch_xla or tpu-inference that this release asks for",
        see="ls -ln /dev/accel* /dev/vfio 2>/dev/null; id; python -c 'import libtpu, torch_xla'",
        check="tpu-info",
    ),
}


def judge(case: Case) -> Outcome:
    """Was no GPU usable?"""
    fault = named(case, *_IDS)
    if isinstance(fault, NotHere | Unseen):
        return _no_platform(case) or fault
    without = case.run.last("torch-of-cpu") if case.run is not None and fault.ids & _OF_TORCH else None
    of = _platform(case, fault)
    known = "rocm" if of is None and _of_amd(case) is not None else of
    check = _OPENED[known].check if known in _OPENED else "nvidia-smi"
    return finding(
        RULE,
        title="torch is the build for CPUs, which finds no GPU" if without is not None else "",
        phase=Phase.GPU_FAULT if "gpu-lost" in fault.ids else Phase.DRIVER_CUDA_MISMATCH,
        severity=severity(case, fault),
        confidence=Confidence.LIKELY if fault.ids & _UNSAID else Confidence.CONFIRMED,
        evidence=(
            *shown(case, fault, *_IDS),
            *_fabric(case),
            *((case.line(without.index),) if without is not None else ()),
        ),
        changes=_changes(case, fault, of, of_cpu=without is not None),
        refute="`python -c 'import torch; print(torch.version.cuda)'` prints a version of CUDA"
        if without is not None
        else f"`{check}` run by the unit's user shows the GPU as usable",
    )


def _changes(case: Case, fault: Fault, of: str | None, *, of_cpu: bool) -> tuple[Change | None, ...]:
    """The build, the devices, then what the failure itself names."""
    build = _with_cuda() if of_cpu else _other_build(case) if fault.ids & _PLATFORM else None
    opened = _opened(case, of)
    ray = _of_ray(case, fault) if opened is None else None
    not_given = fault.ids & (_PLATFORM | {"no-driver", "no-cuda-said"}) and build is None and opened is None
    in_use = "devices-busy" in fault.ids and opened is None and not modes_told(case)
    return (
        build,
        opened,
        (_of_amd(case) or _given()) if not_given else None,
        ray,
        *(change for ids, change in _BY_NAME if fault.ids & ids),
        _COMPUTE_MODE if in_use else None,
        _visible(case) if fault.ids & _HIDDEN and opened is None and ray is None else None,
        _REBOOT if "gpu-lost" in fault.ids else None,
    )


def _platform(case: Case, fault: Fault) -> str | None:
    """Whose devices are asked for, as vLLM, torch or the maker's own library says; None where nothing names them."""
    if "kfd-refused" in fault.ids or any(fault.fields(told).get("hip") for told in ("no-gpus", "no-device-detected")):
        return "rocm"
    if "accel-refused" in fault.ids:
        return "tpu"
    if "no-xpus" in fault.ids or (case.run is not None and case.run.first("xpu-count-zero") is not None):
        return "xpu"
    return platform(case)


def _opened(case: Case, of: str | None) -> Change | None:
    """The device files of a maker that is not NVIDIA, or the variable by which ROCm hides cards."""
    if of not in _OPENED:
        return None
    why, see = _OPENED[of].give, _OPENED[of].see
    if of == "rocm" and (hidden := case.env("HIP_VISIBLE_DEVICES")) is not None:
        why = "set HIP_VISIBLE_DEVICES to GPUs that exist, or unset it"
        return environment("HIP_VISIBLE_DEVICES", Direction.CHANGE, why, before=hidden, command=see)
    return thing(ChangeKind.OS, "gpu-access", Direction.REPAIR, why, command=see)


def _of_ray(case: Case, fault: Fault) -> Change | None:
    """Ray hides every GPU from an actor that asks for none."""
    lines = case.run.lines[max(0, fault.index - _CALL) : fault.last + 1] if case.run is not None else ()
    if "no-gpus" not in fault.ids or not any(says(line.text, "ray-actor-call") for line in lines):
        return None
    why = (
        "Ray hides all GPUs from an actor that asks for none: num_gpus in ray_actor_options, or the placement group's "
        "bundles, of the deployment that makes the engine"
    )
    return thing(ChangeKind.OS, "replica-resources", Direction.CHANGE, why, command="ray status -v; ray list actors")


def _other_build(case: Case) -> Change | None:
    """A wheel for CUDA that finds neither NVIDIA's libraries nor its driver: it may be another maker's host."""
    run = case.run
    told = run.last("ops-import") if run is not None else None
    library = (read("cudart-missing", told.fields["why"]) or {}).get("library", "") if told is not None else ""
    of_driver = library.startswith(("libcuda.so", "libnvidia-"))
    if run is None or run.last("no-platform") is None or of_driver or not library.startswith(CUDA_LIBRARIES):
        return None
    why = (
        f"this wheel is built for CUDA, whose {library} is not here, and vLLM sees no NVIDIA GPU: for an AMD or Intel "
        "GPU, or none, install that build (ROCm, XPU, CPU); for an NVIDIA GPU install its driver, then this wheel again"
    )
    see = "nvidia-smi -L; rocminfo | grep -m1 gfx; ls /dev/kfd /dev/dri; pip list | grep -iE 'vllm|torch'"
    return thing(ChangeKind.PACKAGE, "wheel", Direction.CHANGE, why, command=see)


def _with_cuda() -> Change:
    why = (
        "the log shows torch of CPUs: something replaced the build that vLLM came with, or the image is made for CPUs; "
        "install vLLM and torch again for this card, in a new environment, or take the image of this card"
    )
    see = "python -c 'import torch; print(torch.__version__, torch.version.cuda)'; pip list | grep -iE 'torch|vllm'"
    return thing(ChangeKind.PACKAGE, "torch", Direction.CHANGE, why, command=see)


def _no_platform(case: Case) -> Finding | None:
    """vLLM found the devices of no maker, and the log ends without a step of the start, or at its own confusion."""
    run = case.run
    told = run.last("no-platform") if run is not None else None
    if run is None or told is None or run.served() or run.miles or run.root is not None:
        return None
    return finding(
        RULE,
        confidence=Confidence.LIKELY,
        evidence=(case.line(told.index),),
        changes=(_given(),),
        refute="the start goes on after this line, or it is vLLM's build for CPUs or another maker without its package",
    )


def _of_amd(case: Case) -> Change | None:
    """Somebody names an AMD card beside it: the wheel of the package index knows NVIDIA's alone."""
    if case.run is None or not any(says(line.text, "names-amd-card") for line in case.run.lines):
        return None
    why = (
        "the log names an AMD card, and pip's plain wheel of vLLM is built for NVIDIA: install vLLM and torch for "
        "ROCm, or take AMD's image; the process must open /dev/kfd and /dev/dri"
    )
    see = "rocminfo | grep -m1 gfx; ls -l /dev/kfd /dev/dri; python -c 'import torch; print(torch.version.hip)'"
    return thing(ChangeKind.PACKAGE, "wheel", Direction.CHANGE, why, command=see)


def _given() -> Change:
    """The devices that a process was not given, and how vLLM says why it took no platform."""
    why = (
        "no GPU was given to this process: on a host load the driver; docker --gpus all; podman --device "
        "nvidia.com/gpu=all; a pod's limit nvidia.com/gpu, and runtimeClassName nvidia where that is not the default. "
        "Another maker's GPU needs another build of vLLM"
    )
    see = "nvidia-smi; VLLM_LOGGING_LEVEL=DEBUG vllm serve …   # says for each platform why it was not taken"
    return thing(ChangeKind.OS, "process-gpus", Direction.ADD, why, command=see)


def _visible(case: Case) -> Change:
    """The cards that the process may see, by CUDA's own variable."""
    return environment(
        "CUDA_VISIBLE_DEVICES",
        Direction.CHANGE,
        "set CUDA_VISIBLE_DEVICES to GPUs that exist and that the unit may open",
        to=_devices(case),
        before=case.env("CUDA_VISIBLE_DEVICES"),
        command="nvidia-smi -L",
    )


def _devices(case: Case) -> str | None:
    """One card for each rank, where the cards that the driver sees are known and enough."""
    ranks = case.count("tensor-parallel-size") or 1
    here = len(case.gpus) if case.live and case.gpus else 0
    return ",".join(map(str, range(ranks))) if here >= ranks else None


def _fabric(case: Case) -> tuple[Evidence, ...]:
    """The fabric manager beside the driver: it must be of the very same release."""
    driver = case.driver
    if driver is None or driver.fabric_manager is None or driver.module is None:
        return ()
    word = "the same as" if driver.fabric_manager.partition("-")[0] == driver.module else "not the same as"
    text = f"fabric manager {driver.fabric_manager} is {word} the driver's {driver.module}"
    return (Evidence("packages", "nvidia-fabricmanager", text),)


RULE = rule("VD706", reads=frozenset({Signal.LOG, Signal.DRIVER, Signal.LAUNCH}), judge=judge)

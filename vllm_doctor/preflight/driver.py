"""The checks of the GPU, the driver and its modules: they need no driver, only the bus, the kernel and the packages."""

from vllm_doctor.knowledge.compat import Fabric, PciGpu, nearest_torch, numbers
from vllm_doctor.preflight.judged import Checked, Headers, HostToJudge, Intent, Result

_OK, _FAIL, _WARN = Result.OK, Result.FAIL, Result.WARN
_UNKNOWN, _SKIP = Result.UNKNOWN, Result.NOT_APPLICABLE


def gpu_present(case: HostToJudge) -> Checked:
    """1: a GPU is on the bus and its generation is known."""
    name = "GPU on the bus"
    if case.intent.cpu:
        return Checked(name, _SKIP)
    if case.host.gpus is None:
        return Checked(name, _UNKNOWN, "the PCI bus could not be read", "a GPU", "run as root on the host itself")
    strangers = [device for device in case.host.gpus if case.table.gpu(device) is None]
    if strangers:
        return Checked(
            name,
            _FAIL,
            f"unknown NVIDIA device 10de:{strangers[0]}",
            "a GPU of the compatibility table",
            "add its chip to vllm_doctor/knowledge/compat.json, or leave the host out",
        )
    if not case.host.gpus:
        if not case.intent.driver and not case.intent.vllm:
            return Checked(name, _SKIP)
        return Checked(
            name,
            _FAIL,
            "no NVIDIA GPU",
            "at least one",
            "check seating, power and pass-through; or set vllm_variant: cpu and nvidia_driver_enabled: false",
        )
    if case.intent.gpu_count is not None and len(case.host.gpus) != case.intent.gpu_count:
        return Checked(
            name,
            _FAIL,
            f"{len(case.host.gpus)} GPUs",
            f"{case.intent.gpu_count}",
            "one is missing from the bus (a power cycle brings back a fallen card), or correct preflight_gpu_count",
        )
    declared = [gpu for wanted in case.intent.gpus if (gpu := case.table.gpu_named(wanted)) is not None]
    if declared and any(not any(_same_card(gpu, one) for one in declared) for gpu in case.gpus):
        labels = ", ".join(dict.fromkeys(gpu.label for gpu in case.gpus))
        return Checked(
            name,
            _FAIL,
            ", ".join(_counted(case.gpus)),
            f"preflight_gpus: [{', '.join(case.intent.gpus)}]",
            f"set preflight_gpus: [{labels}] for this host, or move it to the group of its cards",
        )
    return Checked(name, _OK, ", ".join(_counted(case.gpus)))


def _same_card(gpu: PciGpu, declared: PciGpu) -> bool:
    """Whether this is the declared card; one without a name is told by its chip alone."""
    return gpu.name == declared.name if gpu.name else gpu.chip == declared.chip


def branch_supports_gpus(case: HostToJudge) -> Checked:
    """2: the driver branch supports every GPU."""
    name = "driver branch x GPU"
    driver = case.driver
    gpus = case.gpus
    if case.intent.cpu or not gpus:
        return Checked(name, _SKIP)
    if driver is None:
        return Checked(
            name,
            _UNKNOWN,
            "no driver is loaded, and the inventory installs no driver",
            "a driver",
            "set nvidia_driver_enabled: true",
        )
    number = numbers(driver)[0]
    for gpu in gpus:
        if gpu.last_branch is not None and number > gpu.last_branch:
            return Checked(
                name,
                _FAIL,
                f"{driver} with {gpu.label} ({gpu.architecture})",
                f"branch {gpu.last_branch} or older",
                f"set nvidia_driver_version to a {gpu.last_branch} release",
            )
        if number < gpu.first_branch:
            return Checked(
                name,
                _FAIL,
                f"{driver} with {gpu.label} ({gpu.architecture})",
                f"branch {gpu.first_branch} or newer",
                f"set nvidia_driver_version: {case.table.default_driver}",
            )
    return Checked(name, _OK, f"{driver} supports {', '.join(_counted(gpus))}")


def branch_alive(case: HostToJudge) -> Checked:
    """3: NVIDIA still repairs the branch."""
    name = "driver branch alive"
    driver = case.driver
    if case.intent.cpu or driver is None or case.intent.end_of_life == "ignore":
        return Checked(name, _SKIP)
    branch = case.table.branch(driver)
    alive = [b for b in case.table.branches() if b.is_over(case.today) is False]
    offer = ", ".join(f"{b.number} ({b.kind}, until {b.end_of_life})" for b in alive)
    if branch is None:
        close = nearest_torch(
            str(numbers(driver)[:1] and numbers(driver)[0]), tuple(str(b.number) for b in case.table.branches())
        )
        hint = f"did you mean branch {close}? " if close else ""
        return Checked(name, _FAIL, f"{driver}: no such branch is known", offer, f"{hint}correct nvidia_driver_version")
    over = branch.is_over(case.today)
    if over is None:
        return Checked(
            name, _UNKNOWN, f"branch {branch.number}: no date is known", offer, "prefer a branch with a date"
        )
    if not over:
        return Checked(name, _OK, f"branch {branch.number} until {branch.end_of_life}")
    ended = f"ended {branch.end_of_life}" if branch.end_of_life else "has ended"
    return Checked(
        name,
        _FAIL if case.intent.end_of_life == "fail" else _WARN,
        f"branch {branch.number} {ended}",
        offer,
        f"set nvidia_driver_version: {case.table.default_driver}",
    )


def flavour_legal(case: HostToJudge) -> Checked:
    """4: one flavour of the kernel modules is legal for every GPU of the host."""
    name = "kernel module flavour"
    gpus = case.gpus
    if case.intent.cpu or not gpus or not case.intent.driver:
        return Checked(name, _SKIP)
    legal = set(gpus[0].flavours).intersection(*(gpu.flavours for gpu in gpus))
    if not legal:
        return Checked(
            name,
            _FAIL,
            " and ".join(_counted(gpus)),
            "GPUs that share one flavour; the open and the proprietary modules cannot be installed together",
            "move the older or the newer cards to another host",
        )
    if case.intent.flavour != "auto" and case.intent.flavour not in legal:
        culprit = next(gpu for gpu in gpus if case.intent.flavour not in gpu.flavours)
        return Checked(
            name,
            _FAIL,
            f"{case.intent.flavour} modules with {culprit.label}",
            " or ".join(sorted(legal)),
            "set nvidia_driver_flavour: auto",
        )
    return Checked(name, _OK, flavour(case.intent, gpus))


def secure_boot_possible(case: HostToJudge) -> Checked:
    """5: with Secure Boot on, the modules can be loaded."""
    name = "Secure Boot"
    if case.intent.cpu or not case.intent.driver or not case.host.gpus:
        return Checked(name, _SKIP)
    if case.host.secure_boot is None:
        return Checked(
            name,
            _UNKNOWN,
            "its state could not be read",
            "off, or a way to sign",
            "look at mokutil --sb-state yourself",
        )
    if not case.host.secure_boot:
        return Checked(name, _OK, "off")
    if case.intent.modules == "prebuilt":
        return Checked(name, _OK, "on; the distribution signs its prebuilt modules")
    if case.host.mok_enrolled:
        return Checked(name, _OK, "on; a machine owner key is enrolled")
    return Checked(
        name,
        _FAIL,
        "on, and no machine owner key is enrolled",
        "modules that the firmware trusts",
        "enrol the DKMS key at the console (mokutil --import), or set nvidia_driver_modules: prebuilt, or turn it off",
    )


def kernel_headers(case: HostToJudge) -> Checked:
    """6: headers for the running and for the default-boot kernel, or the module is missing after the next boot."""
    name = "kernel headers"
    if case.intent.cpu or not case.intent.driver or not case.host.gpus or case.intent.modules == "prebuilt":
        return Checked(name, _SKIP)
    states = dict(case.host.headers)
    wanted = [kernel for kernel in dict.fromkeys((case.host.kernel, case.host.default_kernel)) if kernel]
    if not wanted:
        return Checked(
            name, _UNKNOWN, "no kernel could be read", "the kernel's version", "run as root on the host itself"
        )
    missing = [kernel for kernel in wanted if states.get(kernel) is Headers.MISSING]
    if missing:
        which = "running" if missing[0] == case.host.kernel else "default-boot"
        return Checked(
            name,
            _FAIL,
            f"none for the {which} kernel {missing[0]}",
            "headers installed or installable for every kernel",
            "boot a kernel of the repository (full upgrade and reboot), or enable the repository that has its headers",
        )
    unknown = [kernel for kernel in wanted if states.get(kernel, Headers.UNKNOWN) is Headers.UNKNOWN]
    if unknown:
        return Checked(
            name,
            _UNKNOWN,
            f"not known for {unknown[0]}: the package lists are empty",
            "headers for every kernel",
            "refresh the package lists; the driver role checks again before it installs",
        )
    return Checked(name, _OK, ", ".join(f"{kernel}: {states[kernel]}" for kernel in wanted))


def one_repository(case: HostToJudge) -> Checked:
    """7: one repository owns the driver's packages."""
    name = "repository owner"
    if case.intent.cpu or not case.intent.driver or not case.host.gpus:
        return Checked(name, _SKIP)
    if case.host.repositories is None:
        return Checked(name, _UNKNOWN, "the package sources could not be read", "one owner", "run as root on the host")
    others = [source for source in case.host.repositories if source.owner == "other"]
    if others:
        return Checked(
            name,
            _FAIL,
            f"{others[0].file} ({others[0].uri}) delivers the driver too",
            f"only the {_owner(case.intent)} repository",
            f"remove {others[0].file}",
        )
    vendor = [source for source in case.host.repositories if source.owner == "nvidia"]
    if case.intent.repository == "distribution" and vendor:
        return Checked(
            name,
            _FAIL,
            f"NVIDIA's repository in {vendor[0].file}",
            "only the distribution's repository",
            f"remove {vendor[0].file}, or set nvidia_driver_repository: nvidia",
        )
    if len({source.uri.rstrip("/") for source in vendor}) > 1:
        return Checked(
            name,
            _FAIL,
            "NVIDIA's repository twice: " + " and ".join(f"{source.file} ({source.uri})" for source in vendor),
            "one definition",
            "remove one of them (the package cuda-keyring brings its own)",
        )
    strangers = [item for item in case.host.packages if item.owner not in {case.intent.repository, None}]
    if strangers:
        first = strangers[0]
        return Checked(
            name,
            _FAIL,
            f"{first.name} {first.version} comes from the {_owner_name(first.owner)} repository",
            f"all driver packages from the {_owner(case.intent)} repository",
            f"purge them first, or set nvidia_driver_repository: {first.owner}",
        )
    return Checked(name, _OK, f"{_owner(case.intent)}")


def fabric_manager(case: HostToJudge) -> Checked:
    """11: where NVSwitches are, the fabric manager of exactly the driver's version can be had."""
    name = "fabric manager"
    if case.intent.cpu or not case.intent.driver or not needs_fabric_manager(case):
        if case.intent.fabric_manager == "present" and not case.intent.cpu and case.intent.driver and case.host.gpus:
            return Checked(
                name,
                _WARN,
                "no NVSwitch on the bus",
                "an NVSwitch, or no fabric manager",
                "set nvidia_driver_fabric_manager: auto; the service would fail to start here",
            )
        return Checked(name, _SKIP)
    if case.intent.fabric_manager == "absent":
        return Checked(
            name,
            _FAIL,
            "NVSwitches, and nvidia_driver_fabric_manager: absent",
            "a fabric manager; without it CUDA fails with error 802",
            "set nvidia_driver_fabric_manager: auto",
        )
    if case.host.fabric_candidates is None:
        return Checked(
            name,
            _UNKNOWN,
            "the repository is not configured yet",
            f"version {case.intent.driver_version}",
            "the driver role checks again before it installs",
        )
    if not any(
        numbers(version.split("-")[0].split(":")[-1]) == numbers(case.intent.driver_version)
        for version in case.host.fabric_candidates
    ):
        return Checked(
            name,
            _FAIL,
            ", ".join(case.host.fabric_candidates) or "no version in the repository",
            f"exactly {case.intent.driver_version}",
            "choose a driver version for which the repository has the fabric manager",
        )
    return Checked(name, _OK, case.intent.driver_version)


def flavour(intent: Intent, gpus: tuple[PciGpu, ...]) -> str:
    """The flavour to install: the wanted one, else open wherever every GPU of the host may use it."""
    if intent.flavour != "auto":
        return intent.flavour
    return "open" if all("open" in gpu.flavours for gpu in gpus) else "proprietary"


def needs_fabric_manager(case: HostToJudge) -> bool:
    """NVSwitch on the bus (A100 to H200 boards), or a GPU whose switches are managed in band (NVLink 5 boards)."""
    on_bus = any(case.table.is_nvswitch(device) for device in case.host.switches)
    return on_bus or any(gpu.fabric is Fabric.NVLINK5 for gpu in case.gpus)


def _counted(gpus: tuple[PciGpu, ...]) -> list[str]:
    labels = [gpu.label for gpu in gpus]
    return [f"{labels.count(label)} x {label}" for label in dict.fromkeys(labels)]


def _owner(intent: Intent) -> str:
    return _owner_name(intent.repository)


def _owner_name(owner: str | None) -> str:
    return "NVIDIA" if owner == "nvidia" else "distribution"

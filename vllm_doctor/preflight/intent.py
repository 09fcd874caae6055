"""From what Ansible hands over to records: variables to an `Intent`, the facts module's answer to a `Host`."""

import re
from collections.abc import Iterator, Mapping, Sequence

from vllm_doctor.knowledge.compat import DriverFit, Table, numbers
from vllm_doctor.knowledge.versions import default_port
from vllm_doctor.preflight.existence import toolkit_released
from vllm_doctor.preflight.judged import (
    Checked,
    Disk,
    Headers,
    HostFacts,
    Installed,
    Intent,
    Repository,
    Result,
)
from vllm_doctor.preflight.launches import launches

_STORE = "/var/lib/vllm-models"  # the role vllm's own default


def intent(values: Mapping[str, object], table: Table, flags: Mapping[str, str] | None = None) -> Intent:
    """What the variables of the roles want; a role that is not in play leaves its part at the default.

    `flags` maps the flags of `vllm serve` to inventory variables; without it no launch is composed.
    """
    count = values.get("preflight_gpu_count")
    version = _text(values, "vllm_version")
    store = next(filter(None, (_text(values, f"{role}_models_dir") for role in ("preflight", "vllm"))), _STORE)
    variant = _text(values, "vllm_variant") or "auto"
    return Intent(
        driver=bool(values.get("nvidia_driver_enabled", False)),
        driver_version=_text(values, "nvidia_driver_version") or table.default_driver,
        driver_branch=_text(values, "nvidia_driver_branch"),
        flavour=_text(values, "nvidia_driver_flavour") or "auto",
        repository=_text(values, "nvidia_driver_repository") or "nvidia",
        modules=_text(values, "nvidia_driver_modules") or "dkms",
        fabric_manager=_text(values, "nvidia_driver_fabric_manager") or "auto",
        end_of_life=_text(values, "preflight_end_of_life") or "warn",
        vllm=version is not None,
        vllm_version=version,
        variant="cpu" if version is not None and version.endswith("+cpu") else variant,
        exists=tuple(_words(values.get("preflight_known_versions"))),
        python=_text(values, "preflight_python_version") or _python(_text(values, "vllm_python")),
        brought=_text(values, "managed_python_version") or Intent.brought,
        own_python=_text(values, "vllm_python") not in {None, "auto"},
        forward_compat=bool(values.get("preflight_forward_compatibility", False)),
        gpus=tuple(_words(values.get("preflight_gpus"))),
        gpu_count=count if isinstance(count, int) and not isinstance(count, bool) else None,
        releases_dir=_text(values, "preflight_releases_dir") or _text(values, "vllm_root") or "/opt/vllm",
        models_dir=store,
        model_gib=_number(values.get("preflight_model_gib")),
        memory_gib=_number(values.get("preflight_memory_gib")),
        ports=_ports(values) if version is not None else (),
        launches=launches(values, flags or {}, store) if version is not None else (),
        models_made=bool(values.get("vllm_generated_model", False)),
        slices=tuple(
            (str(gpu), tuple(_words(profiles))) for gpu, profiles in _mapping(values.get("host_settings_mig")).items()
        ),
    )


def declared_host(wanted: Intent, table: Table, model_configs: Mapping[str, str] | None = None) -> HostFacts:
    """The host that the inventory describes, for the checks that need no real one. One name is all of its cards."""
    named = [gpu.device for name in wanted.gpus if (gpu := table.gpu_named(name)) is not None]
    devices = named * (wanted.gpu_count or 1) if len(named) == 1 else named
    # How many cards there are decides whether a model fits: without the count nothing is said yet.
    counted = (model_configs or {}) if wanted.gpu_count is not None else {}
    return HostFacts(gpus=tuple(devices) or None, model_configs=tuple(counted.items()))


def contradictions(values: Mapping[str, object], wanted: Intent, table: Table) -> Iterator[Checked]:
    """Pins that cannot hold together, and names that no table knows."""
    for name in wanted.gpus:
        if table.gpu_named(name) is None:
            close = table.gpu_like(name)
            whole = ", ".join(close if gpu == name and close else gpu for gpu in wanted.gpus)
            action = f"preflight_gpus: [{whole}]" if close else f"name one of {', '.join(table.gpu_names())}"
            yield Checked("GPU name", Result.FAIL, name, "a GPU of the compatibility table", action)
    if wanted.driver and not _is_version(wanted.driver_version):
        yield Checked(
            "driver version",
            Result.FAIL,
            wanted.driver_version,
            "an exact version",
            f"set nvidia_driver_version: {table.default_driver}",
        )
    elif wanted.driver_branch is not None and wanted.driver_branch != str(numbers(wanted.driver_version)[0]):
        yield Checked(
            "contradictory pins",
            Result.FAIL,
            f"nvidia_driver_branch {wanted.driver_branch}, nvidia_driver_version {wanted.driver_version}",
            "one branch",
            "remove nvidia_driver_branch: it follows from the version",
        )
    if wanted.vllm and wanted.cpu and wanted.gpus:
        yield Checked(
            "contradictory pins",
            Result.FAIL,
            f"the CPU build of vLLM (vllm_variant {wanted.variant}), preflight_gpus {', '.join(wanted.gpus)}",
            "a build for the cards, or no cards",
            "set vllm_variant: auto, or remove preflight_gpus",
        )
    if wanted.driver and wanted.repository == "distribution" and _text(values, "nvidia_driver_repository_url"):
        yield Checked(
            "contradictory pins",
            Result.FAIL,
            "nvidia_driver_repository distribution, nvidia_driver_repository_url",
            "the distribution's own repository, or NVIDIA's with its URL",
            "remove nvidia_driver_repository_url, or set nvidia_driver_repository: nvidia",
        )
    if wanted.gpu_count is not None and wanted.gpu_count < 0:
        yield Checked("number of GPUs", Result.FAIL, str(wanted.gpu_count), "0 or more", "correct preflight_gpu_count")
    for gpu, profiles in _mapping(values.get("host_settings_mig")).items():
        if not isinstance(profiles, list):
            yield Checked(
                "MIG layout",
                Result.FAIL,
                f"GPU {gpu}: {profiles!r}",
                "a list of profiles",
                f'set host_settings_mig: {{"{gpu}": [{profiles}]}}',
            )
    toolkit = _text(values, "cuda_toolkit_version")
    if bool(values.get("cuda_toolkit_enabled", False)) and toolkit is not None:
        yield from _toolkit(toolkit, values, wanted, table)


def _toolkit(toolkit: str, values: Mapping[str, object], wanted: Intent, table: Table) -> Iterator[Checked]:
    released = toolkit_released(toolkit, wanted, table)
    if released.verdict is not Result.OK:
        yield released
    if released.verdict is Result.FAIL:
        return
    if wanted.driver and table.fit(wanted.driver_version, toolkit) is DriverFit.FAIL:
        yield Checked(
            "contradictory pins",
            Result.FAIL,
            f"cuda_toolkit_version {toolkit}, nvidia_driver_version {wanted.driver_version}",
            f"driver {table.family_floor(toolkit)} or newer",
            f"set nvidia_driver_version: {_driver_for(toolkit, table)}",
        )
    build = table.variant(wanted.variant) if wanted.vllm else None
    if build is not None and build.cuda and numbers(toolkit)[:2] < numbers(build.cuda)[:2]:
        # What is compiled at start takes the toolkit that CUDA_HOME names (vllm#50705).
        enough = [known for known in table.toolkits() if numbers(known)[:2] == numbers(build.cuda)[:2]]
        yield Checked(
            "contradictory pins",
            Result.FAIL,
            f"cuda_toolkit_version {toolkit}, vllm_variant {wanted.variant} of CUDA {build.cuda}",
            f"a toolkit of CUDA {build.cuda} or newer",
            f"set cuda_toolkit_version: {enough[-1] if enough else '…'}",
        )
    for package in _words(values.get("cuda_toolkit_extra_packages")):
        if package == "cuda" or package.startswith(
            ("cuda-drivers", "nvidia-", "libnvidia-", "cuda-runtime", "cuda-demo")
        ):
            yield Checked(
                "two owners of a package",
                Result.FAIL,
                f"{package} in cuda_toolkit_extra_packages",
                "driver packages only from the role nvidia_driver",
                f"remove {package}: it installs another driver",
            )


def _driver_for(toolkit: str, table: Table) -> str:
    """A driver that runs it: the one that a host gets anyway where that does, else the one inside the installer."""
    fits = table.fit(table.default_driver, toolkit) is not DriverFit.FAIL
    return table.default_driver if fits else table.toolkit_driver(toolkit) or "…"


def host(facts: Mapping[str, object], model_configs: Mapping[str, str] | None = None) -> HostFacts:
    """The answer of the facts module as a record; what it could not read stays None.

    `model_configs` maps models to the files in which the controller keeps their config.json.
    """
    kernel, boot = _mapping(facts.get("kernel")), _mapping(facts.get("secure_boot"))
    gpus, sources = facts.get("gpus"), facts.get("repositories")
    candidates, listening = facts.get("fabric_manager_candidates"), facts.get("listening")
    return HostFacts(
        gpus=tuple(_words(gpus)) if isinstance(gpus, list) else None,
        switches=tuple(_words(facts.get("switches"))),
        kernel=_text(kernel, "running"),
        default_kernel=_text(kernel, "default"),
        headers=tuple((str(name), Headers(str(state))) for name, state in _mapping(kernel.get("headers")).items()),
        secure_boot=_flag(boot.get("enabled")),
        mok_enrolled=_flag(boot.get("key_enrolled")),
        repositories=tuple(Repository(str(row["owner"]), str(row["file"]), str(row["uri"])) for row in _rows(sources))
        if isinstance(sources, list)
        else None,
        packages=tuple(
            Installed(str(row["name"]), str(row["version"]), _text(row, "owner"))
            for row in _rows(facts.get("packages"))
        ),
        loaded_driver=_text(_mapping(facts.get("driver")), "loaded"),
        fabric_candidates=tuple(_words(candidates)) if isinstance(candidates, list) else None,
        platform=_text(facts, "platform"),
        machine=_text(facts, "machine"),
        glibc=_text(facts, "glibc"),
        python=_text(facts, "python"),
        disk=tuple(
            Disk(str(row["path"]), _number(row["free_gib"]), str(row["filesystem"])) for row in _rows(facts.get("disk"))
        ),
        memory_gib=_number(facts["memory_gib"]) if facts.get("memory_gib") is not None else None,
        listening=tuple(
            (port, str(row.get("name", ""))) for row in _rows(listening) for port in _integers([row["port"]])
        )
        if isinstance(listening, list)
        else None,
        model_configs=tuple((model_configs or {}).items()),
        models_absent=tuple(_words(facts.get("models_absent"))),
    )


def _ports(values: Mapping[str, object]) -> tuple[int, ...]:
    """The ports of all instances of the role vllm, or those that preflight_ports names."""
    named = _integers(values.get("preflight_ports"))
    if named:
        return tuple(named)
    common = values.get("vllm_port", default_port())
    instances = _rows(values.get("vllm_instances")) or [{}]
    return tuple(dict.fromkeys(_integers([instance.get("port", common) for instance in instances])))


def _python(path: str | None) -> str | None:
    """The version in an interpreter's name, such as /opt/python/bin/python3.12; None for a plain python3."""
    found = re.search(r"python(\d+\.\d+)$", path or "")
    return found.group(1) if found else None


def _is_version(text: str) -> bool:
    parts = text.split(".")
    return len(parts) in {2, 3} and all(part.isdigit() for part in parts)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _rows(value: object) -> list[Mapping[str, object]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def _words(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, Sequence) and not isinstance(value, str) else []


def _integers(value: object) -> list[int]:
    return [item for item in value if isinstance(item, int)] if isinstance(value, Sequence) else []


def _text(values: Mapping[str, object], name: str) -> str | None:
    value = values.get(name)
    return str(value) if value not in {None, ""} else None


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None

"""What the preflight judges and what it says; frozen, without I/O."""

from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from vllm_doctor.knowledge.compat import PciGpu, Table, numbers
from vllm_doctor.preflight.locks import Lock


class Result(StrEnum):
    """The outcome of one check on one host."""

    OK = "ok"
    FAIL = "fail"
    WARN = "warn"
    UNKNOWN = "unknown"  # could not be read: neither ok nor a fault
    NOT_APPLICABLE = "not-applicable"


class Headers(StrEnum):
    """Whether the headers of one kernel are there."""

    INSTALLED = "installed"
    AVAILABLE = "available"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Checked:
    """One line of the table: what was checked, what was found, what is needed, and what to do."""

    check: str
    verdict: Result
    found: str = ""
    needed: str = ""
    action: str = ""


@dataclass(frozen=True)
class Instance:
    """One instance as the inventory asks for it: words after `vllm serve MODEL`; `gpus` empty for all of the host.

    `folder` is where the model lies on the host, which for a model of a hub is not what the inventory calls it.
    """

    name: str
    model: str
    words: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    folder: str = ""


@dataclass(frozen=True)
class Intent:
    """What the inventory wants of one host. Sizes in GiB."""

    driver: bool
    driver_version: str
    driver_branch: str | None = None
    flavour: str = "auto"
    repository: str = "nvidia"
    modules: str = "dkms"
    fabric_manager: str = "auto"
    end_of_life: str = "warn"
    vllm: bool = True
    vllm_version: str | None = None
    variant: str = "auto"
    exists: tuple[str, ...] = ()  # drivers and toolkits that the user vouches for
    locks: tuple[Lock, ...] = ()  # all that role vllm has; empty where nobody looked
    python: str | None = None  # of the interpreter that the inventory names; None where the roles choose one
    brought: str = "3.12"  # the Python that role managed_python brings where the host's own does not fit
    own_python: bool = False  # the inventory wants the host's own
    driver_left_out: bool = False  # the inventory wants a driver, and nothing of this run installs it
    forward_compat: bool = False
    attention_without_ptx: bool = False
    gpus: tuple[str, ...] = ()
    gpu_count: int | None = None
    releases_dir: str = "/opt"
    models_dir: str = "/var/lib"
    model_gib: float = 0.0
    memory_gib: float = 0.0
    ports: tuple[int, ...] = ()
    launches: tuple[Instance, ...] = ()
    models_made: bool = False  # a model that is not there is generated
    starts: bool = True  # this run starts services; one that prepares hosts may come before their models
    slices: tuple[tuple[str, tuple[str, ...]], ...] = ()  # GPU index to MIG profiles

    @property
    def cpu(self) -> bool:
        """Whether vLLM's CPU build is wanted; then no GPU fact matters. A host without a GPU says so, or lacks one."""
        return self.variant == "cpu" or (self.variant == "auto" and self.gpu_count == 0)

    @property
    def of_release(self) -> tuple[Lock, ...]:
        """The locks of the wanted release; a local part of its version (`+cpu`) names the build, not the release."""
        version = (self.vllm_version or "").partition("+")[0]
        return tuple(lock for lock in self.locks if lock.version == version)


@dataclass(frozen=True)
class Repository:
    """A package source that can deliver NVIDIA's driver; `owner` is nvidia, distribution or other."""

    owner: str
    file: str
    uri: str


@dataclass(frozen=True)
class Installed:
    """An installed package of the driver stack; `owner` as for a repository, None where its origin is not known."""

    name: str
    version: str
    owner: str | None


@dataclass(frozen=True)
class Disk:
    """The room under a path, in GiB; paths on one file system share it."""

    path: str
    free_gib: float
    filesystem: str


@dataclass(frozen=True)
class HostFacts:
    """What a host says about itself. None, or an empty mapping where noted, means that it could not be read."""

    gpus: tuple[str, ...] | None = None  # PCI device ids, one an installed GPU
    switches: tuple[str, ...] = ()  # PCI device ids of NVIDIA bridges
    kernel: str | None = None
    default_kernel: str | None = None
    headers: tuple[tuple[str, Headers], ...] = ()
    secure_boot: bool | None = None
    mok_enrolled: bool | None = None
    repositories: tuple[Repository, ...] | None = None
    packages: tuple[Installed, ...] = ()
    loaded_driver: str | None = None
    fabric_candidates: tuple[str, ...] | None = None
    platform: str | None = None
    machine: str | None = None
    glibc: str | None = None
    python: str | None = None
    disk: tuple[Disk, ...] = ()
    memory_gib: float | None = None
    listening: tuple[tuple[int, str], ...] | None = None
    model_configs: tuple[tuple[str, str], ...] = ()  # model to the config.json that was read, a path on the controller
    models_absent: tuple[str, ...] = ()  # paths of models where the host has nothing


@dataclass(frozen=True)
class HostToJudge:
    """One host to judge: what is wanted, what is there, what is known, and the day."""

    intent: Intent
    host: HostFacts
    table: Table
    today: date

    @property
    def gpus(self) -> tuple[PciGpu, ...]:
        """The GPUs of the host that the table knows."""
        return tuple(gpu for device in self.host.gpus or () if (gpu := self.table.gpu(device)) is not None)

    @property
    def machine(self) -> str | None:
        """The architecture of the host; what its cards tell where it was not asked. None where neither does."""
        told = {gpu.machine for gpu in self.gpus if gpu.machine}
        return self.host.machine or (told.pop() if len(told) == 1 else None)

    @property
    def locks(self) -> tuple[Lock, ...]:
        """The locks of the wanted release that are for this host's architecture, or for any where that is not known."""
        return tuple(lock for lock in self.intent.of_release if self.machine in {None, lock.machine})

    @property
    def driver(self) -> str | None:
        """The driver that will run vLLM: the wanted one, or the loaded one where the role does not own it.

        None where there is none, or where the inventory names none: `latest` is a complaint of its own.
        """
        version = self.intent.driver_version if self.intent.driver else self.host.loaded_driver
        return version if version and numbers(version) else None

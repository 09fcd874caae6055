"""What a host says about the service: the unit, the GPUs, the metrics, the kernel and the machine."""

import msgspec


class Launch(msgspec.Struct, frozen=True):
    """The effective command line. `flags` maps the long option without dashes to its value (True for a bare switch);
    `medium` is what it was written for (`docker`, `compose`, `pod`, `python` …), "" where nothing says it."""

    argv: tuple[str, ...]
    model: str | None
    flags: dict[str, str | bool]
    env: dict[str, str] = {}
    medium: str = ""


# The directive of a line of the file that vLLM's own --config names.
OF_CONFIG_FILE = "--config"


class Setting(msgspec.Struct, frozen=True):
    """A line of a unit's files that sets its command line or its environment; `line` counts from 1."""

    path: str
    line: int
    directive: str
    text: str


class Unit(msgspec.Struct, frozen=True):
    """A systemd unit as systemd itself reports it; memory figures in bytes. `settings` stand in systemd's order;
    `rendered` says that its own file is a playbook's, so that what it has comes from an inventory."""

    name: str
    load_state: str
    active_state: str
    sub_state: str
    result: str
    invocation_id: str | None = None
    main_pid: int | None = None
    exit_code: str | None = None
    exit_status: int | None = None
    restarts: int | None = None
    memory_max: int | None = None
    memory_peak: int | None = None
    oom_kills: int | None = None
    drop_ins: tuple[str, ...] = ()
    fragment: str | None = None
    properties: dict[str, str] = {}
    settings: tuple[Setting, ...] = ()
    rendered: bool = False

    @property
    def running(self) -> bool:
        """Has it a process, or is it about to have or to lose one?"""
        return self.active_state in {"active", "activating", "deactivating", "reloading"}

    @property
    def drained(self) -> bool:
        """Has playbooks/drain.yml, or a person in its way, taken the unit out of service?"""
        return any(path.endswith("/90-drained.conf") for path in self.drop_ins)


class GpuProcess(msgspec.Struct, frozen=True):
    """A process that holds memory of a GPU; `unit` is the systemd unit of its cgroup, if any."""

    pid: int
    used_bytes: int | None
    name: str | None = None
    unit: str | None = None
    user: str | None = None
    started_at: str | None = None


class Gpu(msgspec.Struct, frozen=True):
    """One GPU (or MIG slice, with its `mig_parent`); sizes in bytes. None means that this card does not report it.

    `unified_memory` is true where the card has none of its own (GB10); `error` is why a card did not answer (lost …).
    """

    index: int
    name: str
    uuid: str | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    compute_capability: str | None = None
    processes: tuple[GpuProcess, ...] = ()
    ecc_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    recovery_action: str | None = None
    throttle_reasons: tuple[str, ...] = ()
    mig_mode: bool | None = None
    compute_mode: str | None = None
    persistence: bool | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    nvlink_down: tuple[int, ...] = ()
    nvlink_errors: dict[str, int] = {}
    temperature_c: int | None = None
    pci: str | None = None
    reserved_bytes: int | None = None
    unified_memory: bool | None = None
    mig_parent: int | None = None
    error: str | None = None

    @property
    def cuda_bytes(self) -> int | None:
        """The total that CUDA, and so vLLM, sees: without what the driver keeps for itself, all of it where that is not
        told. NVML tells it apart since driver 510: 81920 MiB of an A100 are 81050 to torch."""
        return None if self.total_bytes is None else self.total_bytes - (self.reserved_bytes or 0)


class Driver(msgspec.Struct, frozen=True):
    """The driver's versions: the loaded kernel module, the user-space library and the CUDA it offers."""

    module: str | None = None
    library: str | None = None
    cuda: str | None = None
    fabric_manager: str | None = None


class Sample(msgspec.Struct, frozen=True):
    """One value of one series of the exposition format."""

    name: str
    labels: dict[str, str]
    value: float


class Scrape(msgspec.Struct, frozen=True):
    """One scrape of /metrics at `at` (seconds since the epoch)."""

    at: float
    samples: tuple[Sample, ...]


class Load(msgspec.Struct, frozen=True):
    """A server's means over a window: requests that ran and that waited, the full part of its KV cache (0 to 1)."""

    name: str
    model: str
    running: float
    waiting: float
    kv: float | None = None


class Metrics(msgspec.Struct, frozen=True):
    """One or two scrapes, oldest first; rates come from the pair and from nothing else.

    `loads` is this server's load and that of others with the same model, where one place tells of all.
    """

    url: str
    scrapes: tuple[Scrape, ...]
    loads: tuple[Load, ...] = ()


class KernelEvent(msgspec.Struct, frozen=True):
    """One kernel log line that matters (OOM killer, NVRM Xid, API mismatch)."""

    text: str
    at: str | None = None
    number: int | None = None


class Kernel(msgspec.Struct, frozen=True):
    """The kernel log since `boot_id` began."""

    events: tuple[KernelEvent, ...]
    boot_id: str | None = None


class Listener(msgspec.Struct, frozen=True):
    """Who listens on the service's port, and on which address."""

    port: int
    pid: int | None
    name: str | None
    unit: str | None
    address: str | None = None


class Process(msgspec.Struct, frozen=True):
    """One process of the host that belongs, or once belonged, to vLLM. `state` is /proc's letter (`D`, `T` …).

    `container` is the runtime, where the control group names it, and the short id; `output` the file that its standard
    output goes to; `serves` says that it is a server, an engine or a worker itself; `frozen` that its control group is;
    `user_unit` is a service of a user's own systemd, with the user's number; `around` the containers around its own,
    the outermost first.
    """

    pid: int
    ppid: int
    name: str
    cmdline: tuple[str, ...]
    unit: str | None = None
    user: str | None = None
    rss_bytes: int | None = None
    state: str | None = None
    container: tuple[str, str] | None = None
    output: str | None = None
    serves: bool = False
    frozen: bool = False
    user_unit: tuple[int, str] | None = None
    around: tuple[tuple[str, str], ...] = ()


class WeightFile(msgspec.Struct, frozen=True):
    """A weight file that is not whole: its size, the size that its header asks for (None where it has none), bytes.
    `copy` is a whole file with the same header in a folder beside, of a model with the same config.json."""

    path: str
    size: int
    needed: int | None
    modified: str
    copy: str = ""


class WeightFiles(msgspec.Struct, frozen=True):
    """How many weight files of the model's folder were looked at, and those that are not whole. `missing` is the folder
    where there is none, and `beside` are those next to it that hold a model. `denied` is what the service's user may
    not read or enter, with `why`; `group` is the user's, and empty where it is a folder above the model's."""

    checked: int
    cut: tuple[WeightFile, ...] = ()
    missing: str = ""
    beside: tuple[str, ...] = ()
    denied: str = ""
    group: str = ""
    why: str = ""


class Program(msgspec.Struct, frozen=True):
    """The first part of a program's path that is not there, and what beside it holds the same program."""

    missing: str
    beside: tuple[str, ...] = ()


class Machine(msgspec.Struct, frozen=True):
    """Memory, shared memory, disk and processes of the host; sizes in bytes. `weights` and `program` are looked at
    where the server does not run."""

    hostname: str
    memory_total: int | None = None
    memory_available: int | None = None
    swap_total: int | None = None
    shm_total: int | None = None
    shm_free: int | None = None
    disk_free: dict[str, int] = {}
    memlock_bytes: int | None = None
    processes: tuple[Process, ...] = ()
    listeners: tuple[Listener, ...] = ()
    weights: WeightFiles | None = None
    program: Program | None = None


# What `gather.http` says of such a server.
SENT_NOTHING = "accepted the connection and sent nothing"


class Probe(msgspec.Struct, frozen=True):
    """Whether the server answers: /health's status code and whether a real completion came back; None is not asked.

    `completion_unknown` says why a completion that was asked for could not be judged, `untried` why none was tried that
    nobody had asked for; `turned_away` that it was tried, and nobody would have got one. `advanced` says of a
    completion that did not come back whether the engine worked for others meanwhile. `keyless` is the status that
    /v1/models gives to a request without a key, and where that is refused `keyless_beside` the one of /invocations.
    """

    health_status: int | None = None
    health_error: str | None = None
    completion: bool | None = None
    completion_unknown: str = ""
    models: tuple[str, ...] = ()
    server: str | None = None
    keyless: int | None = None
    keyless_beside: int | None = None
    untried: str = ""
    turned_away: bool = False
    advanced: bool | None = None

    @property
    def silent(self) -> bool:
        """Did the server accept the connection and send nothing?"""
        return SENT_NOTHING in (self.health_error or "")

    @property
    def refused(self) -> bool:
        """Did the host refuse the connection: does nobody listen?"""
        return "refused" in (self.health_error or "")

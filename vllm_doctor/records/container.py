"""What a runtime says of what it runs: Docker and podman of a container, Kubernetes of a pod's, Slurm of a job."""

import msgspec


class Check(msgspec.Struct, frozen=True):
    """A probe that ends the container, or takes it out of service: `kind` is startup, liveness, readiness or health.

    Times in seconds; `failures` in a row count as one failure.
    """

    kind: str
    delay_s: float
    period_s: float
    timeout_s: float
    failures: int
    asks: str = ""
    port: str = ""

    @property
    def patience_s(self) -> float:
        """How long a server may stay silent after its start before this probe has failed."""
        return self.delay_s + self.period_s * self.failures


class End(msgspec.Struct, frozen=True):
    """How a run of the container ended. `reason` is the runtime's own word (OOMKilled, Error, Completed)."""

    exit_code: int | None = None
    reason: str = ""
    oom_killed: bool = False
    started_at: str | None = None
    finished_at: str | None = None


class Event(msgspec.Struct, frozen=True):
    """An event of the orchestrator about the container: its reason in one word, its text, how often it came."""

    reason: str
    text: str
    count: int = 1
    at: str | None = None


class Beside(msgspec.Struct, frozen=True):
    """Another container of the pod: one that runs before the server (`first`), or beside it. `wrote` are its last
    lines, where they could be read."""

    name: str
    first: bool
    state: str = ""
    reason: str = ""
    error: str = ""
    end: End | None = None
    restarts: int | None = None
    memory_limit: int | None = None
    wrote: tuple[str, ...] = ()

    @property
    def fails(self) -> bool:
        """Did its last run end with an error, and does it not run now?"""
        return self.state != "running" and self.end is not None and self.end.exit_code not in {0, None}


class Made(msgspec.Struct, frozen=True):
    """The words that make a container again, up to and with its image; `left` are its settings that are not in them,
    by the runtime's names, and `always` says that the runtime starts a stopped one by itself."""

    words: tuple[str, ...]
    left: tuple[str, ...] = ()
    always: bool = False


class Container(msgspec.Struct, frozen=True):
    """A container as its runtime reports it; sizes in bytes, None for what is not said.

    `state` is created, waiting, running, paused, restarting or exited; `reason` and `error` are the runtime's words for
    what keeps it there. `end` is the last run that ended, this one or the one before it. `shm_bytes` is the size of a
    /dev/shm of its own; `shares_shm` says that it uses the host's. `gpus` is how many it was given; -1 is all.
    `limit` is a batch job's time limit as Slurm writes it.
    `ready` says whether Kubernetes sends it requests; `beside` are the pod's containers that are no server of vLLM's.
    `host_memory` is what the machine under it has for containers, `unseen` what of all this could not be read.
    `id` is the runtime's, which names its control group; "" where it is not said. `made` is how it was made, where that
    is known whole. `owner` is the workload that made a pod (`deployment/NAME`), "" where none is named.
    """

    name: str
    runtime: str
    image: str = ""
    state: str = ""
    reason: str = ""
    error: str = ""
    end: End | None = None
    restarts: int | None = None
    started_at: str | None = None
    memory_limit: int | None = None
    shm_bytes: int | None = None
    shares_shm: bool = False
    gpus: int | None = None
    checks: tuple[Check, ...] = ()
    events: tuple[Event, ...] = ()
    node: str | None = None
    host_memory: int | None = None
    pid: int | None = None
    address: str | None = None
    unseen: str = ""
    ready: bool | None = None
    beside: tuple[Beside, ...] = ()
    limit: str = ""
    id: str = ""
    made: Made | None = None
    owner: str = ""

    @property
    def is_job(self) -> bool:
        """Is it a batch job?"""
        return self.runtime == "slurm"

    @property
    def kind(self) -> str:
        """What it is called."""
        return "job" if self.is_job else "container"

    @property
    def is_pod(self) -> bool:
        """Does Kubernetes run it?"""
        return self.runtime == "kubernetes"

    @property
    def started(self) -> bool:
        """Did the container's program ever run?"""
        return self.started_at is not None or self.end is not None or self.state in {"running", "paused"}

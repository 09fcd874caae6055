"""What gives the host, or what vLLM runs in, the memory that it lacked: limits, jobs of a compiler, Ray's threshold."""

import math

from vllm_doctor.launch import container
from vllm_doctor.log.match import read, says
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Change
from vllm_doctor.records.verdict import ChangeKind, Direction
from vllm_doctor.rules.case import GIB, Case
from vllm_doctor.rules.gates.oom_killer import UNNAMED, Kill
from vllm_doctor.rules.say import environment, thing

# Where a container's limit stands; the message that says so is Kubernetes' own, where nothing else is known.
_LIMITS = {"pod": "limits.memory", "docker": "--memory", "compose": "mem_limit"}
# What the kubelet calls the control groups of its pods.
_PODS = "kubepods"
# Ids of the catalogue by which Ray says that it ended a worker for the host's memory.
RAY = ("ray-low-memory", "ray-threshold", "ray-killed", "ray-oom-advice")


def memory_limit(kill: Kill, ranks: int = 1) -> Change:
    """A quarter more than it had when it was killed, in whole GiB: what it would have taken next is not known.

    The limit is that of a group: every rank is a process in it, and they load equal parts at the same time.
    """
    held = kill.resident
    if held is not None and ranks > 1:
        held *= ranks
    if (kill.container is not None or _PODS in (kill.group or "")) and held is not None:
        return _of_container(kill.container or "", kill.group or "", math.ceil(held / GIB * 1.25), _held_by(ranks))
    to = f"{math.ceil(held / GIB * 1.25)}G" if held is not None else None
    if (guest := read("system-container", kill.group or "")) is not None:
        return _of_guest(guest["guest"], math.ceil(held / GIB * 1.25) if held is not None else None)
    why = f"sets MemoryMax to 1.25 times what {_held_by(ranks)}; memory.peak in the unit's cgroup then shows the peak"
    if kill.group == UNNAMED or kill.container is not None:
        why += "; for a container use docker's --memory, for a pod limits.memory"
    return thing(ChangeKind.OS, "MemoryMax", Direction.RAISE, why, to=to, inventory="vllm_memory_max")


def _held_by(ranks: int) -> str:
    return "the process held" if ranks == 1 else f"{ranks} ranks hold, each as much as the killed one"


def _of_container(number: str, group: str, gib_: int, held: str) -> Change:
    why = f"1.25 times what {held} when its container's limit ended it"
    if _PODS in group:
        return thing(ChangeKind.OS, "container-memory", Direction.RAISE, why, to=f"{gib_}Gi")
    runtime = "podman" if "libpod" in group else "docker"
    command = f"{runtime} update --memory {gib_}g --memory-swap {gib_}g {excerpt.short(number)}   # then start"
    return thing(ChangeKind.OS, "container-memory", Direction.RAISE, why, to=f"{gib_}g", command=command)


def _of_guest(guest: str, gib_: int | None) -> Change:
    """A system container of LXC or Incus: its limit stands with its manager on the host, not in a unit."""
    why = "the memory of the system container (LXC, Incus), set on its host: 1.25 times what the process held"
    if gib_ is None:
        return thing(ChangeKind.OS, "container-memory", Direction.RAISE, why)
    command = f"lxc config set {guest} limits.memory {gib_}GiB"
    if guest.isdigit():  # Proxmox numbers its containers
        command = f"pct set {guest} --memory {gib_ << 10}"
    return thing(ChangeKind.OS, "container-memory", Direction.RAISE, why, to=f"{gib_}GiB", command=command)


def launched_limit(case: Case) -> Change | None:
    """The container's own limit, where its command gives one: half as much again, for what the container held at most
    is that; None where it gives none."""
    contained = container.split(case.argv)
    options = container.options(contained.kept) if contained is not None else ()
    given = next((value for name, value, _ in options if name in {"--memory", "-m"}), None)
    size = read("memory-limit", given) if given is not None else None
    if size is None:
        return None
    number = math.ceil(float(size["number"]) * 1.5)
    why = "the container reached the limit that its command gives it: half as much again"
    to = f"{number}{size['unit']}"
    return thing(ChangeKind.OS, "--memory", Direction.RAISE, why, before=given, to=to)


def containers_limit(case: Case) -> Change:
    """Nobody printed how much the container held: its limit has to grow, wherever it stands."""
    if (launched := launched_limit(case)) is not None:
        return launched
    named = _LIMITS.get(case.launch.medium if case.launch is not None else "pod", _LIMITS["pod"])
    return thing(ChangeKind.OS, named, Direction.RAISE, "the container was killed at its own limit")


def jobs_limit(*, by_slurm: bool) -> Change:
    """More memory for a job of a batch system; Slurm gives it the whole node's for 0."""
    if not by_slurm:
        why = "ask the batch system for more memory; the log does not show how much more the job needs"
        return thing(ChangeKind.OS, "job-memory", Direction.RAISE, why)
    why = "0 gives the job all memory of its node; the log does not show how much more it needs"
    return thing(ChangeKind.OS, "job-memory", Direction.RAISE, why, to="0")


def more_host_memory(kill: Kill | None, peak: float | None = None) -> Change:
    """What to do where no limit was met, with what was held at the end: of the process, or the unit's `peak` in GiB."""
    held = kill.resident / GIB if kill is not None and kill.resident is not None else peak
    size = f": more than the {held:.1f} GiB that it held when it was killed" if held is not None else ""
    why = f"the host needs more memory than it has{size}; swap only delays the failure"
    return thing(ChangeKind.HARDWARE, "host-ram", Direction.RAISE, why)


def spared_by_oomd() -> Change:
    """systemd-oomd ends a unit when memory is under pressure for long, which reading large weights makes by itself."""
    why = "systemd-oomd then ends other units first; the pressure stays, and with it the lack of memory"
    command = "systemctl edit UNIT   # [Service] ManagedOOMPreference=avoid, then systemctl restart UNIT"
    return thing(ChangeKind.OS, "ManagedOOMPreference", Direction.SET, why, to="avoid", command=command)


def room_to_load() -> Change:
    """What to do where the weights passed through too little memory."""
    why = (
        "give the host, its container or the virtual machine (memory= in .wslconfig) more memory, or add swap for the "
        "time of the loading: a start passes the weights through host memory"
    )
    return thing(ChangeKind.HARDWARE, "host-ram", Direction.RAISE, why)


def fewer_jobs(case: Case) -> Change | None:
    """Kernels that are compiled at the first start take 1 to 3 GiB a compiler."""
    run, kernel = case.run, case.kernel
    ids = ("compiler-killed-task", "compiler-oom-task")
    told = kernel is not None and any(says(e.text, *ids) for e in kernel.events)
    if not told and (run is None or run.first(*ids) is None):
        return None
    why = "each job is a compiler of 1 to 3 GiB; without a limit as many run as the host has cores"
    return environment("MAX_JOBS", Direction.LOWER, why, to=4)


def ray_threshold(case: Case) -> Change | None:
    """Ray kills before the kernel would, at a share of the host's memory that can be set."""
    run = case.run
    if run is None or run.first(*RAY) is None:
        return None
    why = "Ray ends workers when this part of the host's memory is in use; give the host more memory, if you can"
    return environment("RAY_memory_usage_threshold", Direction.RAISE, why, to=0.99)

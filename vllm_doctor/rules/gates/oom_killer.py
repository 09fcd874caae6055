"""The kernel's OOM killer: whom it ended, and for whose limit."""

from dataclasses import dataclass

from vllm_doctor.log.match import anchors, read, says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.records.host import Kernel, KernelEvent

# Without a name: a group's limit was reached, not the host's.
UNNAMED = "its control group"
# systemd's own killer, which ends a whole unit before the kernel has to.
OOMD = "systemd-oomd"
_OURS = ("vllm", "python", "ray::", "enginecor", "worker", "pt_main")
_DOCTOR = "vllm-doctor"
# Docker, podman and containerd give a container an id of as many hexadecimal digits.
_ID, _HEX = 64, frozenset("0123456789abcdef")


@dataclass(frozen=True)
class Kill:
    """One kill: the process, its resident bytes, and the control group whose limit it was (None: the host).

    Resident are its own pages and those that it shares; files are given back first. `service` is the victim's systemd
    unit and `container` the id of its container, where the kernel told its control group.
    """

    event: KernelEvent
    pid: int | None
    name: str
    resident: int | None
    group: str | None
    service: str | None = None
    container: str | None = None

    def may_be_of(self, unit: str | None, container: str | None = None) -> bool:
        """May the victim belong to this unit, or to the container of this id? Without either, what ran in a container
        of its own, or is not named after vLLM, is somebody else's."""
        if container is not None and self.container is not None:
            return self.container == container
        if unit is None:
            return self.container is None and "vllm" in f"{self.name} {self.service} {self.group}".lower()
        return self.service == unit or (self.service is None and self.container is None)


def in_log(run: AnalysedRun) -> tuple[Kill, ...]:
    """Kills that the service's own log shows, where the kernel's lines were written into it."""
    return kills(_kernel_in(run))


def of_the_host(run: AnalysedRun) -> tuple[Kill, ...]:
    """Those of anybody's process for the whole host's memory, no group's: whoever it was, none was left for vLLM."""
    return tuple(kill for kill in kills(_kernel_in(run), of_anybody=True) if kill.group is None)


def _kernel_in(run: AnalysedRun) -> Kernel:
    """The kernel's lines that somebody put among the service's own."""
    at = sorted({h.index for h in (*run.all("kernel-killed-line"), *run.all("kernel-constraint"))})
    told = (run.lines[index] for index in at)
    return Kernel(tuple(KernelEvent(line.text, line.at, line.number) for line in told))


def kills(kernel: Kernel, *, of_anybody: bool = False) -> tuple[Kill, ...]:
    """Every kill of a process that may be vLLM's, or of anybody's, in order."""
    groups: dict[str, str] = {}
    victims: dict[str, str] = {}
    found: list[Kill] = []
    of_a_group = False
    for event in kernel.events:
        killed, pressed = read("kernel-kill", event.text), read("oomd-kill", event.text)
        account = _account(event.text)
        if account.get("constraint") == "CONSTRAINT_MEMCG" and "oom_memcg" in account:
            groups[account.get("pid", "")] = account["oom_memcg"]
        if says(event.text, "kernel-constraint") or killed is not None:
            # What the kernel says of a kill begins with its constraint; the line of the kill itself may say it as well.
            of_a_group = says(event.text, "kernel-group-limit") or (killed is not None and of_a_group)
        if "task_memcg" in account:
            victims[account.get("pid", "")] = account["task_memcg"]
        name = killed.get("name", killed.get("bare", "")) if killed is not None else ""
        if killed is not None and (of_anybody or _may_be_vllms(name.lower())):
            pid = killed.get("pid", "")
            resident = int(killed["rss"]) + int(killed.get("shared") or 0) << 10
            service = _service(victims.get(pid))
            group = groups.get(pid) or (UNNAMED if of_a_group else None)
            own = _container(victims.get(pid))
            found.append(Kill(event, int(pid) if pid else None, name, resident, group, service, own))
        elif pressed is not None and "vllm" in pressed["group"]:
            found.append(Kill(event, None, OOMD, None, pressed["group"], _service(pressed["group"])))
    return tuple(found)


def _account(text: str) -> dict[str, str]:
    """The kernel's account of a kill, NAME=VALUE,NAME=VALUE; nothing of any other line. Whose limit it was stands in
    `oom_memcg`, and the victim's own group, which is named in any case, in `task_memcg`."""
    (begin,) = anchors("kernel-account")
    told = text.partition(begin)[2].split(",")
    return {name: value.split()[0] for name, _, value in (word.partition("=") for word in told) if value.strip()}


def _may_be_vllms(name: str) -> bool:
    return name != _DOCTOR and any(ours in name for ours in _OURS)


def _container(group: str | None) -> str | None:
    """The id of the innermost container of a control group, which its runtime names `ID` or `RUNTIME-ID.scope`."""
    named = [part.removesuffix(".scope").rpartition("-")[2] for part in (group or "").split("/")]
    found = [name for name in named if len(name) == _ID and set(name) <= _HEX]
    return found[-1] if found else None


def _service(group: str | None) -> str | None:
    """The innermost unit of a control group: `/system.slice/docker.service` of `/system.slice/docker.service/x`."""
    found = [part for part in (group or "").split("/")[1:] if part.endswith(".service")]
    return found[-1] if found else None

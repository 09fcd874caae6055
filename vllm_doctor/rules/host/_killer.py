"""The kernel's OOM killer: whom it ended, and for whose limit."""

from dataclasses import dataclass

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.records.host import Kernel, KernelEvent

# Kernels before 4.0 tell the user between the number and the name; people who retell it leave the number out.
_KILLED = Pattern(
    r"Killed process (?:(?P<pid>\d{1,10}),? )?(?:UID \d{1,10}, )?(?:\((?P<name>[^)]{0,1000})\)"
    r"|(?P<bare>VLLM::[^\s,)]{1,1000})),? "
    r".{0,400}?anon-rss:(?P<rss>\d{1,15})kB"
)
# Without a name: a group's limit was reached, not the host's.
_A_GROUP = Pattern(r"Memory cgroup out of memory|CONSTRAINT_MEMCG")
UNNAMED = "its control group"
_SYSTEMD = Pattern(r"Killed (?P<group>/\S+) due to memory pressure")
# NAME=VALUE,NAME=VALUE: whose limit it was (oom_memcg), and the victim's own group, which is named in any case.
_ACCOUNT = "oom-kill:"
_SERVICE = Pattern(r"/([^/\s]+\.service)(?:/|$)")
_OURS = ("vllm", "python", "ray::", "enginecor", "worker", "pt_main")
_DOCTOR = "vllm-doctor"


@dataclass(frozen=True)
class Kill:
    """One kill: the process, its resident bytes, and the control group whose limit it was (None: the host).

    `service` is the victim's systemd unit, where the kernel told its control group.
    """

    event: KernelEvent
    pid: int | None
    name: str
    resident: int | None
    group: str | None
    service: str | None = None

    def may_be_of(self, unit: str | None) -> bool:
        """May the victim belong to this unit? Without one, what is not named after vLLM is somebody else's."""
        if unit is None:
            return "vllm" in f"{self.name} {self.service} {self.group}".lower()
        return self.service in {None, unit}


def in_log(run: AnalysedRun) -> tuple[Kill, ...]:
    """Kills that the service's own log shows, where the kernel's lines were written into it."""
    told = (line for line in run.lines if "Killed process" in line.text or "CONSTRAINT_" in line.text)
    return kills(Kernel(tuple(KernelEvent(line.text, line.at, line.number) for line in told)))


def kills(kernel: Kernel) -> tuple[Kill, ...]:
    """Every kill of a process that may be vLLM's, in order."""
    groups: dict[str, str] = {}
    victims: dict[str, str] = {}
    found: list[Kill] = []
    of_a_group = False
    for event in kernel.events:
        killed, pressed = _KILLED.search(event.text), _SYSTEMD.search(event.text)
        account = _account(event.text)
        if account.get("constraint") == "CONSTRAINT_MEMCG" and "oom_memcg" in account:
            groups[account.get("pid", "")] = account["oom_memcg"]
        if "CONSTRAINT_" in event.text or killed is not None:
            # What the kernel says of a kill begins with its constraint; the line of the kill itself may say it as well.
            of_a_group = _A_GROUP.search(event.text) is not None or (killed is not None and of_a_group)
        if "task_memcg" in account:
            victims[account.get("pid", "")] = account["task_memcg"]
        name = (killed["name"] or killed["bare"]) if killed is not None else ""
        if killed is not None and _may_be_vllms(name.lower()):
            pid = killed["pid"] or ""
            resident = int(killed["rss"]) << 10
            service = _service(victims.get(pid))
            group = groups.get(pid) or (UNNAMED if of_a_group else None)
            found.append(Kill(event, int(pid) if pid else None, name, resident, group, service))
        elif pressed is not None and "vllm" in pressed["group"]:
            found.append(Kill(event, None, "systemd-oomd", None, pressed["group"], _service(pressed["group"])))
    return tuple(found)


def _account(text: str) -> dict[str, str]:
    """The kernel's account of a kill; nothing of any other line."""
    told = text.partition(_ACCOUNT)[2].split(",")
    return {name: value.split()[0] for name, _, value in (word.partition("=") for word in told) if value.strip()}


def _may_be_vllms(name: str) -> bool:
    return name != _DOCTOR and any(ours in name for ours in _OURS)


def _service(group: str | None) -> str | None:
    """The innermost unit of a control group: `/system.slice/docker.service` of `/system.slice/docker.service/x`."""
    found = [service[1] for service in _SERVICE.finditer(group or "")]
    return found[-1] if found else None

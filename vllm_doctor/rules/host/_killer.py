"""The kernel's OOM killer: whom it ended, and for whose limit."""

import re
from dataclasses import dataclass

from vllm_doctor.records.host import Kernel, KernelEvent
from vllm_doctor.rules.story import Story

_KILLED = re.compile(r"Killed process (?P<pid>\d{1,10}) \((?P<name>[^)]*)\).*?anon-rss:(?P<rss>\d{1,15})kB")
_LIMIT = re.compile(
    r"oom-kill:constraint=CONSTRAINT_MEMCG.*?oom_memcg=(?P<group>[^,\s]+).*?task=(?P<name>[^,]+),pid=(?P<pid>\d{1,10})"
)
_SYSTEMD = re.compile(r"Killed (?P<group>/\S+) due to memory pressure")
_OURS = ("vllm", "python", "ray::", "enginecor", "worker", "pt_main")


@dataclass(frozen=True)
class Kill:
    """One kill: the process, its resident bytes, and the control group whose limit it was (None: the host)."""

    event: KernelEvent
    pid: int | None
    name: str
    resident: int | None
    group: str | None


def in_log(story: Story) -> tuple[Kill, ...]:
    """Kills that the service's own log shows, where the kernel's lines were written into it."""
    told = (line for line in story.lines if "Killed process" in line.text or "oom-kill:constraint" in line.text)
    return kills(Kernel(tuple(KernelEvent(line.text, line.at, line.number) for line in told)))


def kills(kernel: Kernel) -> tuple[Kill, ...]:
    """Every kill of a process that may be vLLM's, in order."""
    groups: dict[str, str] = {}
    found: list[Kill] = []
    for event in kernel.events:
        limit, killed, pressed = (p.search(event.text) for p in (_LIMIT, _KILLED, _SYSTEMD))
        if limit is not None:
            groups[limit["pid"]] = limit["group"]
        if killed is not None and any(o in killed["name"].lower() for o in _OURS):
            found.append(
                Kill(event, int(killed["pid"]), killed["name"], int(killed["rss"]) << 10, groups.get(killed["pid"]))
            )
        elif pressed is not None and "vllm" in pressed["group"]:
            found.append(Kill(event, None, "systemd-oomd", None, pressed["group"]))
    return tuple(found)

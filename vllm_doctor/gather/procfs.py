"""The host's memory, disks, processes and listening sockets, from /proc and the file systems."""

import ipaddress
import os
import pwd
import re
import shutil
import socket
import sys
import time
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

from vllm_doctor.gather.bounded import start, text_of_start
from vllm_doctor.gather.launch import is_vllm, serves
from vllm_doctor.records.host import Listener, Machine, Process
from vllm_doctor.redact.launch import scrub_argv

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
_TITLE = re.compile(r"^VLLM::|^ray::(RayWorkerWrapper|EngineCore)|^VLLM_Engine", re.IGNORECASE)
_SERVICE = re.compile(r"/([^/\n]+\.service)(?=/|$)", re.MULTILINE)
# The systemd of a user, of which the system's own knows no units.
_MANAGER = re.compile(r"/user@(\d{1,10})\.service(?=/|$)", re.MULTILINE)
_CONTAINER = re.compile(r"([0-9a-f]{12})[0-9a-f]{52}")
# What a control group's path calls a container's runtime, and the program that shows its log.
_RUNTIMES = (("libpod", "podman"), ("docker", "docker"), ("crio", "crictl"), ("cri-containerd", "crictl"),
             ("kubepods", "crictl"))  # fmt: skip
_LISTENING = "0A"
# A process may give itself a command line and an environment of many MiB; sockets that listen come first in theirs.
_MAPS = 16 << 20
_ARGUMENTS, _ENVIRONMENT, _SOCKETS = 256 << 10, 4 << 20, 4 << 20


def machine(*, main_pid: int | None, port: int | None, folders: Sequence[str]) -> Machine:
    """The machine as this user may see it; what is not readable is None."""
    memory = meminfo()
    shm = _disk(f"/proc/{main_pid}/root/dev/shm") if main_pid else None
    shm = shm or _disk("/dev/shm")  # noqa: S108 - the shared memory file system itself
    return Machine(
        hostname=socket.gethostname(),
        memory_total=memory.get("MemTotal"),
        memory_available=memory.get("MemAvailable"),
        swap_total=memory.get("SwapTotal"),
        shm_total=shm.total if shm else None,
        shm_free=shm.free if shm else None,
        disk_free={folder: usage.free for folder in folders if (usage := _disk(folder))},
        memlock_bytes=_memlock(main_pid) if main_pid else None,
        processes=tuple(processes()),
        listeners=(listener(port),) if port is not None and _inodes(port) else (),
    )


def meminfo() -> dict[str, int]:
    """/proc/meminfo in bytes."""
    rows = re.findall(r"^(\w+):\s+(\d+) kB$", text_of_start(PROC / "meminfo") or "", re.MULTILINE)
    return {name: int(kib) << 10 for name, kib in rows}


def processes() -> Iterator[Process]:
    """Every process that is vLLM's: by its title, by its command line, or by the unit whose cgroup it lives in."""
    for pid in pids():
        argv = cmdline(pid)
        unit = unit_of(pid)
        ours = bool(argv) and (titled(argv) or is_vllm(argv))
        if ours or (unit is not None and re.match(r"vllm(?!-doctor)", unit)):
            found = _process(pid, argv, unit)
            if found is not None:
                yield found


def titled(argv: Sequence[str]) -> bool:
    """Did the process give itself the title of an engine, a worker or a server of vLLM?"""
    return bool(argv) and _TITLE.match(argv[0]) is not None


def is_of_vllm(pid: int) -> bool:
    """Is the process vLLM's, does it hold vLLM's code (a program of one's own with `LLM(…)`), or did it start one that
    is (a shell, a launcher of the same cgroup)? A process whose memory we may not read is only known by its command
    line."""
    started, group = {pid}, _cgroup(pid)
    for each in pids():  # in the order of their numbers; one that was started is mostly later
        if each not in started and (known := stat(each)) is not None and known[2] in started and _cgroup(each) == group:
            started.add(each)
    return any(_holds_vllm(each) for each in started)


def _holds_vllm(pid: int) -> bool:
    argv = cmdline(pid)
    if titled(argv) or is_vllm(argv):
        return True
    loaded = text_of_start(f"{PROC}/{pid}/maps", _MAPS)
    if loaded is None:  # another user's: a Python program may be anything
        return bool(argv) and argv[0].rpartition("/")[2].startswith("python")
    return re.search(r"/site-packages/vllm/", loaded) is not None


def unexplained(found: Sequence[Process], units: Container[str]) -> tuple[Process, ...]:
    """Of vLLM's processes the servers, engines and workers that are of none of these units."""
    return tuple(p for p in found if p.serves and p.unit not in units)


def pids() -> list[int]:
    """All process numbers of this pid namespace."""
    return sorted(int(name) for name in os.listdir(PROC) if name.isdecimal())  # noqa: PTH208 - a large, flat folder


def cmdline(pid: int) -> tuple[str, ...]:
    """The command line of a process; empty for kernel threads and processes that are gone."""
    data = start(f"{PROC}/{pid}/cmdline", _ARGUMENTS) or b""
    return tuple(word.decode(errors="replace") for word in data.rstrip(b"\0").split(b"\0")) if data.strip(b"\0") else ()


def environ(pid: int) -> dict[str, str] | None:
    """The environment it was started with; None without the right to read it. Secrets are still in it."""
    data = start(f"{PROC}/{pid}/environ", _ENVIRONMENT)
    if data is None:
        return None
    pairs = (item.decode(errors="replace").partition("=") for item in data.split(b"\0") if b"=" in item)
    return {name: value for name, _, value in pairs}


def unit_of(pid: int) -> str | None:
    """The service of the system whose cgroup the process lives in."""
    group = _cgroup(pid)
    found = _SERVICE.findall(group)
    return found[-1] if found and not _MANAGER.search(group) else None


def user_unit_of(pid: int) -> tuple[int, str] | None:
    """The service of a user's own systemd (`systemctl --user`): the user's number, and its name."""
    group = _cgroup(pid)
    manager = _MANAGER.search(group)
    found = _SERVICE.findall(group, manager.end()) if manager is not None else []
    return (int(manager[1]), found[-1]) if manager is not None and found else None


def container_of(pid: int) -> tuple[str, str] | None:
    """The container whose cgroup the process lives in: the program that shows its log ("" if unnamed), its short id."""
    found = containers_of(pid)
    return found[-1] if found else None


def containers_of(pid: int) -> tuple[tuple[str, str], ...]:
    """The containers that the process is in, the outermost first: a runtime in a container makes paths below its own.

    The words before an id name its runtime.
    """
    for group in sorted(_cgroup(pid).splitlines(), key=len, reverse=True):
        found: dict[str, str] = {}
        at = 0
        for each in _CONTAINER.finditer(group):
            before = group[at : each.start()]
            found.setdefault(each[1], next((program for word, program in _RUNTIMES if word in before), ""))
            at = each.end()
        if found:
            return tuple((program, short) for short, program in found.items())
    return ()


def _cgroup(pid: int) -> str:
    return text_of_start(f"{PROC}/{pid}/cgroup") or ""


def frozen(pid: int) -> bool:
    """Is its control group frozen (`systemctl freeze`, `docker pause`)? /proc/PID/stat shows nothing of that."""
    group = re.search(r"^0::/(.*)$", _cgroup(pid), re.MULTILINE)
    return group is not None and "frozen 1" in (text_of_start(CGROUPS / group[1] / "cgroup.events") or "").splitlines()


def output_of(pid: int) -> str | None:
    """The file that the process's standard output goes to; None for a terminal, a device, a pipe (what we read of it
    its reader would never have) or without the right to look."""
    try:
        target = os.readlink(PROC / str(pid) / "fd" / "1")  # noqa: PTH115 - /proc's links are no paths
        regular = Path(target).is_file()
    except OSError:
        return None
    return target if target.startswith("/") and regular else None


def user_of(pid: int) -> str | None:
    """The owner's name, or number where it has none."""
    try:
        uid = (PROC / str(pid)).stat().st_uid
    except OSError:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def stat(pid: int) -> tuple[str, str, int] | None:
    """Name, state letter and parent of a process. The name may hold spaces and brackets."""
    name, _, rest = (text_of_start(f"{PROC}/{pid}/stat") or "").partition("(")[2].rpartition(")")
    fields = rest.split()
    return (name, fields[0], int(fields[1])) if len(fields) > 1 else None


def started(pid: int) -> int | None:
    """When the process began, in ticks since boot, which tells it from a later one with its number; None where it is
    gone."""
    fields = (text_of_start(PROC / str(pid) / "stat") or "").rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 else None


def booted() -> float:
    """When this system began, seconds since the epoch: a container's with its own PID 1."""
    kernel = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return kernel + (started(1) or 0) / os.sysconf("SC_CLK_TCK")


def _named(comm: str, argv: tuple[str, ...]) -> str:
    """The process's name; whole where the kernel kept 15 characters of the title that it gave itself."""
    title = argv[0].partition(" ")[0] if titled(argv) else ""
    return title if len(comm) == 15 and title.startswith(comm) else comm


def _process(pid: int, argv: tuple[str, ...], unit: str | None) -> Process | None:
    told = stat(pid)
    if told is None or told[1] == "Z":
        return None
    pages = (text_of_start(f"{PROC}/{pid}/statm") or "").split()
    within = containers_of(pid)
    return Process(
        pid=pid,
        ppid=told[2],
        name=_named(told[0], argv),
        cmdline=tuple(word[:500] for word in scrub_argv(argv[:200])),
        unit=unit,
        user=user_of(pid),
        rss_bytes=int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 1 else None,
        state=told[1],
        container=within[-1] if within else None,
        around=within[:-1],
        output=output_of(pid),
        serves=titled(argv) or serves(argv),
        frozen=frozen(pid),
        user_unit=user_unit_of(pid),
    )


def _inodes(port: int) -> dict[str, str]:
    """The sockets that listen on a TCP port, each with its address."""
    found: dict[str, str] = {}
    for table in ("tcp", "tcp6"):
        for row in (text_of_start(PROC / "net" / table, _SOCKETS) or "").splitlines()[1:]:
            fields = row.split()
            if len(fields) > 9 and fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                found[fields[9]] = _address(fields[1].partition(":")[0])
    return found


def _address(words: str) -> str:
    """An address of /proc/net/tcp: 32-bit words in the processor's order."""
    raw = b"".join(int(words[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(words), 8))
    return str(ipaddress.ip_address(raw))


def listener(port: int) -> Listener:
    """Who listens on a TCP port; the process is None where this user may not look into it."""
    sockets = {f"socket:[{inode}]": address for inode, address in _inodes(port).items()}
    for pid in pids():
        folder = PROC / str(pid) / "fd"
        try:
            handles = os.listdir(folder)  # noqa: PTH208 - a large, flat folder
        except OSError:
            continue
        for handle in handles:
            try:
                target = os.readlink(folder / handle)  # noqa: PTH115 - thousands of them
            except OSError:
                continue
            if target in sockets:
                told = stat(pid)
                return Listener(port, pid, told[0] if told else None, unit_of(pid), sockets[target])
    return Listener(port, None, None, None, next(iter(sockets.values()), None))


def _disk(folder: str) -> "shutil._ntuple_diskusage | None":
    try:
        return shutil.disk_usage(folder)
    except OSError:
        return None


def _memlock(pid: int) -> int | None:
    """The soft limit of locked memory; None for unlimited or unreadable."""
    found = re.search(r"^Max locked memory\s+(\d+)", text_of_start(f"{PROC}/{pid}/limits") or "", re.MULTILINE)
    return int(found[1]) if found else None

#!/usr/bin/python
# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""What a host says about its GPUs, kernels, firmware and packages. Changes nothing and needs no driver.

The same file is an Ansible module and, copied to /etc/ansible/facts.d/gpu.fact, a local fact. Standard library only.
What cannot be read is null, never a guess.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

DOCUMENTATION = r"""
module: preflight_facts
short_description: Facts for the preflight checks, without a driver
description:
  - Reads the PCI bus from sysfs, kernels and their headers, Secure Boot, package sources, installed driver packages,
    glibc, Python, disk, memory and listening ports. Changes nothing.
options:
  root:
    description: Where the host's file system begins. Commands are only asked when it is /.
    type: path
    default: /
  light:
    description: Leave the package manager alone; what only it knows is null.
    type: bool
    default: false
  paths:
    description: Paths whose free space matters.
    type: list
    elements: str
    default: []
  ports:
    description: Ports whose listener matters.
    type: list
    elements: int
    default: []
  repository_uris:
    description: URIs that count as NVIDIA's repository (a mirror), beside NVIDIA's own.
    type: list
    elements: str
    default: []
  models:
    description: Folders of models that are to be there, and whose config.json is to be read.
    type: list
    elements: str
    default: []
  run:
    description: >-
      A run of a playbook that takes the host before it is asked, as with the module run_lock, where it is root.
    type: dict
author:
  - the authors of vllm-doctor
"""

EXAMPLES = r"""
- name: The host has said what it is
  vllm_doctor.hosts.preflight_facts:
    paths: [/opt/vllm]
    ports: [8000]
  register: answer
"""

RETURN = r"""
facts:
  description: The facts; what could not be read is null.
  returned: always
  type: dict
run:
  description: Which other run has the host, and whether it was taken; as the module run_lock says it.
  returned: where a run was given
  type: dict
"""

NVIDIA = "0x10de"
# not the session's: a profile may have put the current folder into it
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
STACK = re.compile(
    r"^(nvidia-|libnvidia-|libcuda1$|libcudadebugger|libnvcuvid|libnvoptix|libnv|cuda-drivers|xserver-xorg-video-nvidia"
    r"|firmware-nvidia|kmod-nvidia|libxnvctrl|linux-(modules|objects|signatures)-nvidia)"
)
# nothing of the driver itself: containers, monitoring and the toolkit live by their own versions
NOT_STACK = re.compile(r"^(nvidia-container-|libnvidia-container|nvidia-cuda-toolkit|nvidia-driver-assistant)")
PROBES = ("nvidia-driver", "nvidia-open", "nvidia-driver-cuda", "libnvidia-ml1", "libnvidia-compute", "cuda-drivers")
# What our own roles write: a mirror in these is NVIDIA's repository, and nobody's second one.
OWN_SOURCES = tuple(
    folder + "/" + name + ending
    for folder, ending in (("/etc/apt/sources.list.d", ".sources"), ("/etc/yum.repos.d", ".repo"))
    for name in ("nvidia-driver", "nvidia-cuda")
)
DISTRIBUTION_HOSTS = re.compile(r"(debian\.org|ubuntu\.com|rockylinux\.org|almalinux\.org|redhat\.com|centos\.org)")


def below(root: str, path: str) -> Path:
    """A path of the host, seen from root."""
    return Path(root) / path.lstrip("/")


def read(root: str, path: str) -> str | None:
    """The text of a file below root, or None."""
    try:
        return below(root, path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def entries(root: str, path: str) -> list[str] | None:
    """The names in a folder below root, or None."""
    try:
        return sorted(item.name for item in below(root, path).iterdir())
    except OSError:
        return None


def ask(argv: Sequence[str], seconds: float = 20, status: int | None = 0) -> str | None:
    """Standard output of a command that only reads, or None; None too where it ends with another status than this."""
    program = shutil.which(argv[0], path=PATH)
    if program is None:
        return None
    environment = {"PATH": PATH, "LC_ALL": "C", "LANGUAGE": "C"}
    try:
        done = subprocess.run(
            [program, *argv[1:]], capture_output=True, text=True, timeout=seconds, check=False, env=environment, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if status is None or done.returncode == status else None


def pci(root: str) -> tuple[list[str] | None, list[str], list[str]]:
    """(GPU device ids, NVIDIA bridge device ids, PCI addresses) from sysfs; (None, [], []) without a bus to read."""
    names = entries(root, "/sys/bus/pci/devices")
    if names is None:
        return None, [], []
    gpus, bridges, addresses = [], [], []
    for name in names:
        base = "/sys/bus/pci/devices/" + name
        if (read(root, base + "/vendor") or "").strip() != NVIDIA:
            continue
        device = (read(root, base + "/device") or "").strip().replace("0x", "")
        kind = (read(root, base + "/class") or "").strip()
        if kind.startswith("0x03"):
            gpus.append(device)
            addresses.append(name)
        elif kind.startswith("0x0680"):
            bridges.append(device)
    return gpus, bridges, addresses


def version_key(text: str) -> list[tuple[int, int, str]]:
    """Sort key of a kernel release."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.findall(r"\d+|[A-Za-z]+", text)]


def kernels(root: str, light: bool) -> dict[str, object]:
    """The running, the default-boot and all installed kernels, and whether each has headers."""
    running = (read(root, "/proc/sys/kernel/osrelease") or "").strip() or None
    images = [n[len("vmlinuz-") :] for n in entries(root, "/boot") or [] if n.startswith("vmlinuz-")]
    installed = sorted((n for n in images if "rescue" not in n), key=version_key)
    default = installed[-1] if installed else None
    if root == "/":
        told = ask(["grubby", "--default-kernel"])
        if told and "vmlinuz-" in told:
            default = told.strip().split("vmlinuz-", 1)[1]
    wanted = list(dict.fromkeys([*installed, *([running] if running else [])]))
    here = [k for k in wanted if below(root, "lib/modules/" + k + "/build").exists()]
    offered = headers_offered([k for k in wanted if k not in here]) if root == "/" and not light else {}
    states = {k: "installed" if k in here else offered.get(k, "unknown") for k in wanted}
    return {"running": running, "default": default, "installed": installed, "headers": states}


def headers_offered(missing: Sequence[str]) -> dict[str, str]:
    """For kernels without headers: available, missing or unknown, as the package manager's lists say."""
    if not missing or entries("/", "/etc/apt") is None or not has_lists():
        return {}
    names = {"linux-headers-" + kernel: kernel for kernel in missing}
    answer = ask(["apt-cache", "policy", *names]) or ""
    states = dict.fromkeys(missing, "missing")
    current = None
    for line in answer.splitlines():
        if line and not line.startswith(" "):
            current = names.get(line.rstrip(":"))
        elif current and line.strip().startswith("Candidate:") and "(none)" not in line:
            states[current] = "available"
    return states


def has_lists() -> bool:
    """Whether apt has any package list at all."""
    return any(name.endswith("_Packages") or "_Packages." in name for name in entries("/", "/var/lib/apt/lists") or [])


def secure_boot(root: str) -> dict[str, bool | None]:
    """Whether Secure Boot is on and whether the DKMS signing key is enrolled."""
    if entries(root, "/sys/firmware/efi") is None:
        return {"enabled": False if entries(root, "/sys/firmware") is not None else None, "key_enrolled": None}
    try:
        name = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
        enabled = below(root, "/sys/firmware/efi/efivars/" + name).read_bytes()[-1:] == b"\x01"
    except OSError:
        return {"enabled": None, "key_enrolled": None}
    enrolled = None
    for key in ("/var/lib/dkms/mok.pub", "/var/lib/shim-signed/mok/MOK.der"):
        if root == "/" and Path(key).exists():
            told = ask(["mokutil", "--test-key", key], status=None)
            if told is not None:
                enrolled = bool(enrolled) or "is already enrolled" in told
    return {"enabled": enabled, "key_enrolled": enrolled if enrolled is not None else (False if enabled else None)}


def driver(root: str) -> dict[str, str | bool | None]:
    """The loaded module (version, flavour), the one on disk, the user-space library, and whether nouveau is loaded."""
    text = read(root, "/proc/driver/nvidia/version")
    loaded = flavour = None
    if text:
        found = re.search(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", text)
        loaded = found.group(1) if found else None
        flavour = "open" if "Open Kernel Module" in text else "proprietary"
    modules = entries(root, "/sys/module")
    nouveau = "nouveau" in modules if modules is not None else None
    on_disk = (ask(["modinfo", "-F", "version", "nvidia"]) or "").strip() if root == "/" else ""
    library = None
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"):
        for name in entries(root, folder) or []:
            found = re.match(r"libnvidia-ml\.so\.(\d+\.\d+(?:\.\d+)?)$", name)
            library = found.group(1) if found else library
    return {"loaded": loaded, "flavour": flavour, "on_disk": on_disk or None, "library": library, "nouveau": nouveau}


def apt_sources(root: str) -> dict[str, list[str]]:
    """{URI: files} of every enabled apt source."""
    found: dict[str, list[str]] = {}
    names = ["/etc/apt/sources.list"]
    names += ["/etc/apt/sources.list.d/" + n for n in entries(root, "/etc/apt/sources.list.d") or []]
    for name in names:
        text = read(root, name) or ""
        if name.endswith(".sources"):
            for stanza in re.split(r"\n\s*\n", text):
                if not re.search(r"(?mi)^Enabled:\s*(no|false)", stanza):
                    for uris in re.findall(r"(?mi)^URIs:\s*(.+)$", stanza):
                        for uri in uris.split():
                            found.setdefault(uri.rstrip("/"), []).append(name)
        elif name.endswith(".list"):
            for line in text.splitlines():
                hit = re.match(r"\s*deb\s+(?:\[[^\]]*\]\s+)?(\S+)", line)
                if hit:
                    found.setdefault(hit.group(1).rstrip("/"), []).append(name)
    return found


def own_uris(root: str) -> list[str]:
    """The URIs in the sources that our own roles have written."""
    text = "\n".join(read(root, path) or "" for path in OWN_SOURCES)
    return [uri for line in re.findall(r"(?mi)^\s*(?:URIs:|baseurl\s*=)\s*(.+)$", text) for uri in line.split()]


def owner_of(uri: str, ours: Iterable[str]) -> str:
    """nvidia, distribution or other."""
    uri = uri.rstrip("/")
    if "nvidia.com" in uri or any(uri.startswith(known.rstrip("/")) for known in ours):
        return "nvidia"
    return "distribution" if DISTRIBUTION_HOSTS.search(uri) else "other"


def repositories(root: str, ours: Collection[str]) -> list[dict[str, str]] | None:
    """The sources that deliver the driver: NVIDIA's wherever defined, others only where they have the packages."""
    if entries(root, "/etc/apt") is None:
        return yum_repositories(root, ours)
    sources = apt_sources(root)
    rows = [
        {"owner": "nvidia", "file": name, "uri": uri}
        for uri, names in sources.items()
        if owner_of(uri, ours) == "nvidia"
        for name in names
    ]
    told = ask(["apt-cache", "policy", *PROBES]) if root == "/" else None
    for uri in sorted(set(re.findall(r"^\s+-?\d+ (\S+:\S*/\S*) ", told or "", re.MULTILINE))):
        owner = owner_of(uri, ours)
        if owner != "nvidia":
            rows.append({"owner": owner, "file": (sources.get(uri.rstrip("/")) or ["?"])[0], "uri": uri})
    return rows


def yum_repositories(root: str, ours: Collection[str]) -> list[dict[str, str]] | None:
    """NVIDIA's repositories of a dnf host, as defined in files."""
    names = entries(root, "/etc/yum.repos.d")
    if names is None:
        return None
    rows = []
    for name in names:
        text = read(root, "/etc/yum.repos.d/" + name) or ""
        for section in re.split(r"(?m)^(?=\[)", text):
            uri = re.search(r"(?m)^\s*baseurl\s*=\s*(\S+)", section)
            if uri and not re.search(r"(?m)^\s*enabled\s*=\s*0", section) and owner_of(uri.group(1), ours) == "nvidia":
                rows.append({"owner": "nvidia", "file": "/etc/yum.repos.d/" + name, "uri": uri.group(1)})
    return rows


def packages(ours: Collection[str]) -> list[dict[str, str | None]]:
    """Installed packages of the driver stack, with the owner of the repository that offers this very version."""
    if entries("/", "/etc/apt") is not None:
        stack = []
        told = ask(["dpkg-query", "-W", "-f", "${Package}\t${Version}\t${db:Status-Abbrev}\n"]) or ""
        for line in told.splitlines():
            name, version, state = [*line.split("\t"), "", ""][:3]
            if state.startswith(("ii", "hi")) and STACK.match(name) and not NOT_STACK.match(name):
                stack.append((name, version))
        origins = apt_origins([name for name, _ in stack], ours)
        return [{"name": name, "version": version, "owner": origins.get((name, version))} for name, version in stack]
    rows: list[dict[str, str | None]] = []
    told = ask(["rpm", "-qa", "--queryformat", "%{NAME}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\n"]) or ""
    for line in told.splitlines():
        name, version = line.split("\t")
        if STACK.match(name) and not NOT_STACK.match(name):
            rows.append({"name": name, "version": version, "owner": None})
    return rows


def apt_origins(names: Sequence[str], ours: Collection[str]) -> dict[tuple[str, str], str]:
    """{(package, version): owner} where exactly one repository offers that version."""
    if not names:
        return {}
    owners: dict[tuple[str, str], set[str]] = {}
    package, version = "", None
    for line in (ask(["apt-cache", "policy", *names]) or "").splitlines():
        if line and not line.startswith(" "):
            package, version = line.rstrip(":"), None
            continue
        found = re.match(r" (?:\*\*\*|   ) (\S+) -?\d+$", line)
        if found:
            version = found.group(1)
            continue
        source = re.match(r"\s+-?\d+ (\S+:\S*/\S*) ", line)
        if source and version:
            owners.setdefault((package, version), set()).add(owner_of(source.group(1), ours))
    return {key: next(iter(found)) for key, found in owners.items() if len(found) == 1}


def fabric_candidates(rows: Iterable[Mapping[str, str]] | None) -> list[str] | None:
    """All versions of the fabric manager that the configured NVIDIA repository has; None where there is none."""
    if not any(row["owner"] == "nvidia" for row in rows or []):
        return None
    if entries("/", "/etc/apt") is not None:
        names = (ask(["apt-cache", "pkgnames", "nvidia-fabricmanager"]) or "").split()
        listed = (ask(["apt-cache", "madison", *names]) or "") if names else ""
        return sorted({line.split("|")[1].strip() for line in listed.splitlines() if line.count("|") == 2})
    told = ask(["dnf", "-C", "-q", "repoquery", "--queryformat", "%{evr}\n", "nvidia-fabricmanager"], 60)
    return sorted(set(told.split())) if told is not None else None


def model_configs(root: str, models: Iterable[str]) -> dict[str, str]:
    """The config.json of each model folder that has one of a plausible size, as text."""
    found = {}
    for folder in models:
        path = below(root, folder + "/config.json")
        try:
            small = path.stat().st_size < 1 << 20
        except OSError:
            continue
        text = read(root, folder + "/config.json") if small else None
        if text is not None:
            found[folder] = text
    return found


def absent(root: str, paths: Iterable[str]) -> list[str]:
    """Those of the paths where nothing is. One that may not be looked at is not known to be absent."""
    found = []
    for path in paths:
        try:
            below(root, path).stat()
        except (FileNotFoundError, NotADirectoryError):
            found.append(path)
        except OSError:
            continue
    return found


def system(root: str) -> dict[str, str | None]:
    """Distribution, machine, glibc and the host's own Python."""
    text = read(root, "/etc/os-release") or ""
    fields = dict(re.findall(r'(?m)^(\w+)="?([^"\n]*)"?$', text))
    name, version = fields.get("ID", ""), fields.get("VERSION_ID", "")
    if "rhel" in (name + " " + fields.get("ID_LIKE", "")).split():
        name, version = "rhel", version.split(".")[0]
    glibc = None
    if root == "/":
        try:
            words = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
            glibc = words[-1] if words else None
        except (ValueError, OSError):
            glibc = None
    return {
        "platform": name + "-" + version if name and version else None,
        "machine": platform.machine(),
        "glibc": glibc,
        "python": platform.python_version(),
    }


def disk(root: str, paths: Iterable[str]) -> list[dict[str, object]]:
    """Free GiB under each path, judged at its nearest existing parent."""
    rows = []
    for path in paths:
        place = below(root, path)
        while not place.exists() and place != place.parent:
            place = place.parent
        try:
            free = os.statvfs(place)
            gib = round(free.f_bavail * free.f_frsize / 2**30, 2)
            rows.append({"path": path, "free_gib": gib, "filesystem": str(place.stat().st_dev)})
        except OSError:
            continue
    return rows


def memory(root: str) -> float | None:
    """The host's memory in GiB, or None."""
    found = re.search(r"MemTotal:\s+(\d+) kB", read(root, "/proc/meminfo") or "")
    return round(int(found.group(1)) / 2**20, 2) if found else None


def listening(root: str, ports: Collection[int]) -> list[dict[str, object]] | None:
    """Who listens on these ports: the unit or the name of the process, as far as it can be read."""
    if not ports:
        return []
    inodes, readable = {}, False
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        text = read(root, name)
        readable = readable or text is not None
        for line in (text or "").splitlines()[1:]:
            fields = line.split()
            port = int(fields[1].rsplit(":", 1)[1], 16)
            if fields[3] == "0A" and port in ports:
                inodes["socket:[" + fields[9] + "]"] = port
    if not readable:
        return None
    owners = dict.fromkeys(inodes.values(), "")
    for pid in [n for n in entries(root, "/proc") or [] if n.isdigit()] if inodes else []:
        try:
            links = [str(fd.readlink()) for fd in below(root, "/proc/" + pid + "/fd").iterdir()]
        except OSError:
            continue
        for link in links:
            if link in inodes:
                unit = re.search(r"/([^/\n]+\.service)", read(root, "/proc/" + pid + "/cgroup") or "")
                owners[inodes[link]] = unit.group(1) if unit else (read(root, "/proc/" + pid + "/comm") or "").strip()
    return [{"port": port, "name": name} for port, name in sorted(owners.items())]


def computing(root: str) -> list[str] | None:
    """What holds nvidia_uvm open, as CUDA does: units, or processes without one. None where not all can be seen."""
    found = set()
    if root == "/" and os.geteuid() != 0:
        return None
    for pid in [name for name in entries(root, "/proc") or [] if name.isdigit()]:
        try:
            held = any(str(fd.readlink()) == "/dev/nvidia-uvm" for fd in below(root, "/proc/" + pid + "/fd").iterdir())
        except OSError:
            continue  # it has ended
        if held:
            unit = re.search(
                r"/([^/\n]+[.](?:service|scope))$", read(root, "/proc/" + pid + "/cgroup") or "", re.MULTILINE
            )
            name = (read(root, "/proc/" + pid + "/comm") or "").strip()
            found.add(unit.group(1) if unit else name + " (process " + pid + ")")
    return sorted(found)


def drained(root: str) -> str | None:
    """When and why the host was drained, by the drop-in that keeps vLLM's services from starting; None for no."""
    text = read(root, "/etc/systemd/system/vllm@.service.d/90-drained.conf")
    return text.partition("\n")[0].lstrip("# ") or "drained" if text is not None else None


def boot(root: str) -> str | None:
    """Which boot of which machine this is: clones differ in the boot, containers in the rest.

    machine-id(5) itself is not to be handed around.
    """
    told = [
        read(root, path) for path in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/hostname")
    ]
    return hashlib.sha256("".join(map(str, told)).encode()).hexdigest()[:16] if None not in told and told[0] else None


def collect(
    root: str = "/",
    paths: Iterable[str] = (),
    ports: Iterable[int] = (),
    repository_uris: Iterable[str] = (),
    models: Sequence[str] = (),
    *,
    light: bool = False,
) -> dict[str, object]:
    """All facts of the host below root."""
    gpus, switches, addresses = pci(root)
    repository_uris = [*repository_uris, *own_uris(root)]
    live = root == "/" and not light
    sources = None if light else repositories(root, repository_uris)
    return {
        "gpus": gpus,
        "gpu_addresses": addresses,
        "switches": switches,
        "kernel": kernels(root, light),
        "secure_boot": secure_boot(root),
        "driver": driver(root),
        "computing": computing(root),
        "repositories": sources,
        "packages": packages(repository_uris) if live else [],
        "fabric_manager_candidates": fabric_candidates(sources) if live else None,
        "disk": disk(root, paths),
        "memory_gib": memory(root),
        "listening": listening(root, list(ports)),
        "models": model_configs(root, models),
        "models_absent": absent(root, models),
        "root": os.geteuid() == 0,
        "drained": drained(root),
        "boot": boot(root),
        **system(root),
    }


def ask_nvml() -> dict[str, object]:
    """What the driver's library says, from this process: it may hang for good, so only a child calls it."""
    import ctypes

    library = ctypes.CDLL("libnvidia-ml.so.1")

    def text(name: str, *handle: object) -> str | None:
        buffer = ctypes.create_string_buffer(96)
        return buffer.value.decode() if getattr(library, name)(*handle, buffer, 96) == 0 else None

    def number(name: str, *handle: object) -> int | None:
        value = ctypes.c_uint()
        return value.value if getattr(library, name)(*handle, ctypes.byref(value)) == 0 else None

    def address(handle: object) -> str | None:
        """As sysfs has it: nvmlPciInfo_t ends with 32 bytes of text, whose domain has four figures too many."""
        info = (ctypes.c_char * 68)()
        if library.nvmlDeviceGetPciInfo_v3(handle, info):
            return None
        return re.sub("^0000(?=....:)", "", info.raw[36:].split(b"\0")[0].decode().lower())

    def slices(handle: object) -> list[dict[str, str | None]]:
        part = ctypes.c_void_p()
        return [
            {"uuid": text("nvmlDeviceGetUUID", part), "name": text("nvmlDeviceGetName", part)}
            for index in range(number("nvmlDeviceGetMaxMigDeviceCount", handle) or 0)
            if library.nvmlDeviceGetMigDeviceHandleByIndex(handle, index, ctypes.byref(part)) == 0
        ]

    code = library.nvmlInit_v2()
    if code:
        return {"error": code}
    gpus: list[dict[str, object]] = []
    for index in range(number("nvmlDeviceGetCount_v2") or 0):
        handle = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
            gpus.append({"index": index, "uuid": None})  # a lost card does not hide the others
            continue
        memory, pending, mig = (ctypes.c_ulonglong * 3)(), ctypes.c_uint(), ctypes.c_uint()
        sized = library.nvmlDeviceGetMemoryInfo(handle, memory) == 0
        sliced = library.nvmlDeviceGetMigMode(handle, ctypes.byref(mig), ctypes.byref(pending)) == 0
        gpus.append(
            {
                "index": index,
                "address": address(handle),
                "uuid": text("nvmlDeviceGetUUID", handle),
                "name": text("nvmlDeviceGetName", handle),
                "memory_bytes": memory[0] if sized else None,
                "mig": bool(mig.value) if sliced else None,
                "slices": slices(handle) if mig.value else [],
            }
        )
    return {
        "driver": text("nvmlSystemGetDriverVersion"),
        "cuda": number("nvmlSystemGetCudaDriverVersion"),
        "gpus": gpus,
    }


def nvml(seconds: float = 5) -> dict[str, object]:
    """The child's answer, or null with the reason. A child that hangs in the driver is killed and not waited for."""
    command = [sys.executable, "-I", str(Path(__file__).resolve()), "--nvml"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/")
    try:
        told, _ = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        return {"error": "the driver did not answer within " + str(seconds) + " s"}
    try:
        answer: dict[str, object] = json.loads(told)
    except ValueError:
        return {"error": "no NVIDIA library"}
    return answer


def main() -> None:
    """Answer as an Ansible module."""
    from ansible.module_utils.basic import AnsibleModule  # only there when Ansible runs it

    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "light": {"type": "bool", "default": False},
            "paths": {"type": "list", "elements": "str", "default": []},
            "ports": {"type": "list", "elements": "int", "default": []},
            "repository_uris": {"type": "list", "elements": "str", "default": []},
            "models": {"type": "list", "elements": "str", "default": []},
            "run": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    lists = [wanted[name] for name in ("paths", "ports", "repository_uris", "models")]
    told = {}
    if wanted["run"] and os.geteuid() == 0:
        from ansible_collections.vllm_doctor.hosts.plugins.module_utils.run_lock import FOLDER, taken

        try:
            told = {"run": taken(wanted["run"], FOLDER, only_look=module.check_mode)}
        except OSError as failure:
            module.fail_json(msg=FOLDER + ": " + str(failure.strerror))
    facts = collect(wanted["root"], *lists, light=wanted["light"])
    module.exit_json(changed=False, facts=facts, **told)


if __name__ == "__main__":
    if sys.argv[1:] == ["--nvml"]:
        json.dump(ask_nvml(), sys.stdout)
    elif sys.argv[0].endswith(".fact"):
        json.dump({**collect(light=True), "nvml": nvml()}, sys.stdout)
    else:
        main()

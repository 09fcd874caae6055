"""What this machine must have before anything is built, and how to get what is missing.

Each check returns one line for the person at the keyboard (what was found, what is needed, what to do), or None.
Runs on the machine's own Python before there is a .venv: standard library only.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from host import container_name
from podman import CACHE, PODMAN, REPO, say

GIB = 1024**3
PACKAGES = {  # command that shows that it is there → Debian package
    "podman": "podman",
    "crun": "crun",
    "netavark": "netavark",
    "aardvark-dns": "aardvark-dns",
    "iptables": "iptables",
    "mmdebstrap": "mmdebstrap",
}
ROOTLESS_PACKAGES = {"podman": "podman", "newuidmap": "uidmap"}
ROOTLESS_NETWORK = ("pasta", "slirp4netns")  # either carries a user's containers to the network
HELPER_PATHS = "/usr/lib/podman:/usr/libexec/podman:/usr/sbin:/sbin:/usr/local/libexec/podman"
SUBORDINATE_IDS = (Path("/etc/subuid"), Path("/etc/subgid"))
TUNNEL = Path("/dev/net/tun")
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")
UP_GIB = 8  # .venv 0.3, image and host 3.5, packages 2.5, and room to work
PIP_INDEX = "https://pypi.org/simple"


def is_root() -> bool:
    """Say whether we run as root."""
    return os.geteuid() == 0


def have(command: str) -> bool:
    """Say whether a program is installed, podman's helpers included."""
    return shutil.which(command, path=f"{os.environ.get('PATH', '')}:{HELPER_PATHS}") is not None


def missing_packages() -> list[str]:
    """List the Debian packages still to install; elsewhere than on Debian's kin only podman can be asked for."""
    if not have("apt-get"):
        return [] if have("podman") else ["podman"]
    wanted = PACKAGES if is_root() else ROOTLESS_PACKAGES
    missing = [package for command, package in wanted.items() if not have(command)]
    if not is_root() and not any(have(command) for command in ROOTLESS_NETWORK):
        missing.append("slirp4netns")
    if not have_venv_module():
        missing.append("python3-venv")
    return missing


def have_venv_module() -> bool:
    """Debian splits ensurepip from Python."""
    with contextlib.suppress(ImportError):
        import ensurepip  # noqa: F401 (asked, not used)

        return True
    return False


def sudo() -> list[str] | None:
    """Give the words before a command that needs root; None where we may not."""
    if is_root():
        return []
    allowed = (
        shutil.which("sudo")
        and subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode == 0
    )
    return ["sudo"] if allowed else None


def python_is_new_enough() -> str | None:
    """Ansible and the doctor need 3.11."""
    running: tuple[int, ...] = sys.version_info[:2]  # a type checker knows the version that it runs on, a user does not
    if running >= (3, 11):
        return None
    return f"Python {platform.python_version()} is too old, 3.11 or newer is needed: make up PYTHON=/path/to/python3.11"


def machine_is_supported() -> str | None:
    """The hosts are Linux containers, and the CPU build of vLLM that they run is locked for x86-64."""
    if platform.system() != "Linux":
        return f"this is {platform.system()}, but hosts are Linux containers: run make up in a Linux virtual machine"
    if platform.machine() != "x86_64":
        return f"the sandbox's vLLM is locked for x86-64, this machine is {platform.machine()}: run make up on x86-64"
    return None


def packages_can_be_installed() -> str | None:
    """Whatever is missing must be installable by us, or else by the reader."""
    missing = missing_packages()
    if not missing:
        return None
    words = " ".join(missing)
    if not have("apt-get"):
        return f"{words} is not installed and this is not Debian or Ubuntu: install it with your package manager"
    if sudo() is None:
        return f"not installed, and neither root nor sudo to install it: ask for `apt-get install {words}`"
    return None


def cgroups_are_unified() -> str | None:
    """systemd as PID 1 in a container needs cgroup v2; as root we can mount our own beside an old hierarchy."""
    kind = subprocess.run(
        ["stat", "-fc", "%T", str(CGROUPS)], capture_output=True, text=True, check=False
    ).stdout.strip()
    if kind == "cgroup2fs":
        return None
    private = "umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup"
    if (
        is_root()
        and subprocess.run(["unshare", "--mount", "sh", "-c", private], capture_output=True, check=False).returncode
        == 0
    ):
        return None
    return (
        f"{CGROUPS} is {kind or 'not mounted'}, cgroup v2 is needed: "
        "boot with systemd.unified_cgroup_hierarchy=1 on the kernel command line, or run as root"
    )


def user_has_subordinate_ids() -> str | None:
    """Rootless podman maps a range of ids that /etc/subuid must grant."""
    if is_root():
        return None
    user = os.environ.get("USER") or str(os.geteuid())
    for table in SUBORDINATE_IDS:
        lines = table.read_text().splitlines() if table.exists() else []
        if not any(line.split(":")[0] in {user, str(os.geteuid())} for line in lines):
            remedy = f"sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}"
            return f"{table} grants {user} no ids, rootless podman needs them: {remedy}"
    return None


def user_has_a_tunnel() -> str | None:
    """Rootless networking opens /dev/net/tun; distributions let everyone, hardened machines may not."""
    if is_root() or os.access(TUNNEL, os.R_OK | os.W_OK):
        return None
    if not TUNNEL.exists():
        return f"{TUNNEL} does not exist, rootless podman's network needs it: sudo modprobe tun"
    return f"{TUNNEL} is closed to you, rootless podman's network needs it: sudo chmod 0666 {TUNNEL}"


def user_owns_a_cgroup() -> str | None:
    """systemd in a rootless container needs a cgroup that its user may divide; a login session gives one."""
    if is_root() or Path(os.environ.get("XDG_RUNTIME_DIR", "/nonexistent"), "systemd", "private").exists():
        return None
    lines = OWN_CGROUP.read_text().splitlines()
    ours = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")
    if os.access(CGROUPS / ours.lstrip("/"), os.W_OK):
        return None
    return (
        f"the cgroup {ours} is not yours to divide, systemd in a rootless container needs that: log in by ssh or on a "
        "console rather than with su, so that systemd starts your session, or run as root"
    )


def podman_works() -> str | None:
    """Ask podman itself: a user's set-up has more corners than can be checked from outside."""
    if missing_packages():
        return None
    done = subprocess.run([PODMAN, "info"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode == 0:
        return None
    words = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
    return f"podman does not work here ({words}): make `podman info` succeed first"


def storage_folder() -> Path:
    """Find where podman keeps images and hosts."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path("/var/lib/containers") if is_root() else Path(home) / "containers"


def disk_has_room(needed_gib: float) -> str | None:
    """Everything together must fit, on whatever file systems it lands."""
    shares = {storage_folder(): 0.5, CACHE: 0.35, REPO: 0.15}
    wanted: dict[int, tuple[Path, float]] = {}
    for folder, share in shares.items():
        place = next(parent for parent in (folder, *folder.parents) if parent.exists())
        first, so_far = wanted.get(place.stat().st_dev, (place, 0.0))
        wanted[place.stat().st_dev] = (first, so_far + share * needed_gib)
    for place, gib in wanted.values():
        free = shutil.disk_usage(place).free / GIB
        if free < gib:
            return f"{place} has {free:.1f} GiB free, {gib:.1f} GiB are needed: make room there"
    return None


def memory_suffices(needed_gib: float) -> str | None:
    """vLLM's three processes and its KV cache must fit beside what runs."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024 / GIB
            if free < needed_gib:
                return (
                    f"{free:.1f} GiB of memory are available, {needed_gib:.0f} are needed: stop something, or add some"
                )
    return None


def port_is_free(port: int, group: str) -> str | None:
    """The port belongs to our own sandbox if that is running, and to nobody otherwise."""
    if have("podman"):
        ours = subprocess.run(
            [PODMAN, "port", container_name(group, None)], capture_output=True, text=True, check=False
        )
        if f":{port}" in ours.stdout:
            return None
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            remedy = f"stop what uses it (ss -ltnp), or take another: make up PORT={port + 1}"
            return f"port {port} on 127.0.0.1 cannot be had ({error.strerror}): {remedy}"
    return None


def package_index_answers() -> str | None:
    """Without an index nothing can be installed; a configured one is asked instead of PyPI."""
    if (REPO / ".venv" / ".installed").exists():
        return None
    index = os.environ.get("PIP_INDEX_URL", PIP_INDEX).rstrip("/")
    try:
        with urllib.request.urlopen(f"{index}/uv/", timeout=15):  # noqa: S310 (the index is the user's own setting)
            return None
    except (urllib.error.URLError, OSError, ValueError) as error:
        return f"the package index {index} does not answer ({error}): check network, https_proxy and PIP_INDEX_URL"


def problems(port: int | None, group: str, *, disk_gib: float, memory_gib: float) -> list[str]:
    """Run all checks, so that one look shows everything that is in the way."""
    found = [
        python_is_new_enough(),
        machine_is_supported(),
        packages_can_be_installed(),
        cgroups_are_unified(),
        user_has_subordinate_ids(),
        user_has_a_tunnel(),
        user_owns_a_cgroup(),
        disk_has_room(disk_gib),
        memory_suffices(memory_gib),
        port_is_free(port, group) if port else None,
        package_index_answers(),
    ]
    return [problem for problem in found if problem] or [problem for problem in [podman_works()] if problem]


def install_missing() -> None:
    """Install what is missing through apt."""
    missing, prefix = missing_packages(), sudo()
    if not missing or prefix is None:
        return
    say(f"installing {' '.join(missing)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "--yes", "--no-install-recommends", *missing]):
        command = [*prefix, "apt-get", "--quiet", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL, check=False
        )
        if done.returncode != 0:
            say(done.stdout + done.stderr)
            raise SystemExit(f"`{' '.join(command)}` failed, see above; put it right and run make up again")

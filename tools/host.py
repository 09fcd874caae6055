#!/usr/bin/env python3
"""Boot and remove the throw-away systemd hosts that the sandbox and the tests provision.

A host is a podman container whose PID 1 is systemd. Hosts come in groups; a group has one network on which its
hosts find each other by name. Container and network names carry a hash of this checkout's path, so that two
checkouts on one machine do not meet.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from host_image import PYTHON, SUITES, ensure_image, remove_images
from podman import CACHE, PODMAN, PREFIX, REPO, TOOLS, HostError, locked, podman, say
from ready_image import EXTRA_CAS, ensure_installed_image, installed_name

BOOT_SECONDS = 300
REMOVAL_TRIES = 4


def container_name(group: str, host: str | None) -> str:
    """Name a host's container; inventories and testinfra address it by this name."""
    return "-".join(part for part in (PREFIX, group, host) if part)


def pid_file(container: str) -> Path:
    """Where podman writes a host's first process at each start; tools/connection enters by it."""
    return REPO / ".cache" / "hosts" / f"{container}.pid"


def wheel_folders() -> list[str]:
    """List the local folders in PIP_FIND_LINKS: hosts see them at the same place, read-only."""
    words = os.environ.get("PIP_FIND_LINKS", "").replace("file://", "").split()
    return [str(Path(word).resolve()) for word in words if Path(word).is_dir()]


def host_environment() -> dict[str, str]:
    """Give what a command on the host needs to reach packages; empty settings on an ordinary machine."""
    environment = {"UV_CACHE_DIR": "/var/cache/vllm-doctor-uv", "UV_LINK_MODE": "copy"}
    if folders := wheel_folders():
        environment |= {"PIP_FIND_LINKS": " ".join(folders), "UV_FIND_LINKS": " ".join(folders)}
    if any(EXTRA_CAS.glob("*.crt")):
        bundle = "/etc/ssl/certs/ca-certificates.crt"
        environment |= dict.fromkeys(("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE"), bundle)
    return environment


def run_arguments(group: str, host: str | None, options: argparse.Namespace) -> list[str]:
    """Compose `podman run`'s arguments, less the image."""
    for cache in ("uv", "compiled"):
        (CACHE / cache).mkdir(parents=True, exist_ok=True)
    alias = host or group
    arguments = ["--name", container_name(group, host), "--hostname", alias]
    arguments += ["--network", f"{PREFIX}-{group}", "--network-alias", alias]
    # systemd's own sandboxing needs mount namespaces; vLLM needs more than podman's 64 MB of shared memory.
    arguments += ["--privileged", "--systemd", "always", "--shm-size", "1g"]
    arguments += ["--volume", f"{CACHE / 'uv'}:/var/cache/vllm-doctor-uv"]
    # Half of what a task costs on a host is Python compiling Ansible's modules, which come as source each time.
    arguments += ["--volume", f"{CACHE / 'compiled'}:/var/cache/vllm-doctor-compiled"]
    for file in sorted((TOOLS / "host_python").glob("*.p*")):
        # Python of a virtual environment reads this one alone; it is in place of Debian's own.
        ours = file.name == "sitecustomize.py"
        place = f"/etc/python{PYTHON[options.release]}" if ours else "/usr/lib/python3/dist-packages"
        arguments += ["--volume", f"{file}:{place}/{file.name}:ro"]
    for folder in wheel_folders():
        arguments += ["--volume", f"{folder}:{folder}:ro"]
    for name, value in host_environment().items():
        arguments += ["--env", f"{name}={value}"]
    for volume in options.volume:
        arguments += ["--volume", volume]
    for port in options.publish:
        arguments += ["--publish", f"127.0.0.1:{port}"]
    return arguments


def up(group: str, host: str | None, options: argparse.Namespace) -> str:
    """Make sure that this host runs; return its container's name."""
    name = container_name(group, host)
    image = installed_name(options.release, options.has)
    arguments = run_arguments(group, host, options)
    digest = hashlib.sha256(json.dumps([image, arguments]).encode()).hexdigest()[:16]
    if not resumed(name, digest):
        ensure_installed_image(options.release, options.has)
        with locked("network"):
            if podman("network", "exists", f"{PREFIX}-{group}", check=False).returncode != 0:
                podman("network", "create", "--label", f"vllm-doctor.checkout={PREFIX}", f"{PREFIX}-{group}")
        labels = {"checkout": PREFIX, "group": f"{PREFIX}-{group}", "run": digest}
        flags = [word for key, value in labels.items() for word in ("--label", f"vllm-doctor.{key}={value}")]
        pid_file(name).parent.mkdir(parents=True, exist_ok=True)
        podman("run", "--detach", "--pidfile", str(pid_file(name)), *flags, *arguments, image)
    wait_until_booted(name)
    # systemd does this itself at boot, but not in a container; without it credentials never reach a service.
    podman("exec", name, "mount", "--make-rshared", "/")
    return name


def resumed(name: str, digest: str) -> bool:
    """Start this host if it is there and was made in the same way; otherwise clear the way for a new one."""
    wanted = '{{index .Config.Labels "vllm-doctor.run"}} {{.State.Running}} {{.State.Pid}}'
    found = podman("inspect", "--format", wanted, name, check=False)
    if found.returncode != 0:
        return False
    label, running, pid = found.stdout.split()
    # When somebody killed the host together with the process that watches it, podman goes on calling it running.
    dead = running == "true" and not Path("/proc", pid).exists()
    if label == digest and not dead and (running == "true" or podman("start", name, check=False).returncode == 0):
        return True
    say(f"{name} was made differently, was killed or does not start: made anew")
    remove("rm", "--force", "--ignore", "--time", "10", name)
    return False


def wait_until_booted(name: str) -> None:
    """Wait for systemd to have started all units; "degraded" counts, as on many real hosts."""
    deadline = time.monotonic() + BOOT_SECONDS
    state = ""
    while time.monotonic() < deadline:
        # Before D-Bus is up the command fails at once; afterwards --wait blocks until booted.
        state = podman("exec", name, "systemctl", "is-system-running", "--wait", check=False).stdout.strip()
        if state in {"running", "degraded"}:
            return
        time.sleep(0.2)
    raise HostError(
        f"{name} did not boot within {BOOT_SECONDS} s (systemd says {state or 'nothing'}): tools/bin/podman logs {name}"
    )


def spent(name: str) -> float:
    """Seconds of processors that this host's processes took and Ansible's modules in it; 0 where nothing tells."""
    try:
        root = Path("/proc", pid_file(name).read_text().strip(), "root")
        used = int((root / "sys/fs/cgroup/cpu.stat").read_text().split()[1]) / 1e6
    except (OSError, ValueError, IndexError):
        return 0.0
    with suppress(OSError):  # they are forked in the host, but count for whoever began the first
        used += sum(map(float, (root / "run/ready-python/cpu").read_text().split()))
    return used


def remove(*words: str) -> None:
    """Have podman remove what these words name; try again where it gives up while processes still end.

    podman kills what does not stop in time and then waits only a few seconds for it to be gone; on a busy machine a
    host's hundred processes take longer. Where a host is gone by then, there is nothing left to do (`--ignore`).
    """
    for more in reversed(range(REMOVAL_TRIES)):
        try:
            podman(*words)
        except HostError as error:
            if not more:
                raise
            say(f"{error}; trying again")
        else:
            return


def down(group: str | None) -> None:
    """Remove a group's hosts and network; all groups of this checkout if none is named."""
    label = f"vllm-doctor.group={PREFIX}-{group}" if group else f"vllm-doctor.checkout={PREFIX}"
    for name in podman("ps", "--all", "--filter", f"label={label}", "--format", "{{.Names}}").stdout.split():
        if told := os.environ.get("HOSTS_CPU"):  # tools/run_tests.py adds them up
            with Path(told).open("a") as file:
                file.write(f"{spent(name):.1f}\n")
        remove("rm", "--force", "--ignore", "--volumes", "--time", "5", name)
        pid_file(name).unlink(missing_ok=True)
        say(f"removed {name}")
    wanted = f"{PREFIX}-{group}" if group else f"{PREFIX}-"
    for name in podman("network", "ls", "--format", "{{.Name}}").stdout.split():
        if name == wanted or (group is None and name.startswith(wanted)):
            remove("network", "rm", "--force", name)


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    image = commands.add_parser("image", help="build the host image unless it is there; print its name")
    image.add_argument("--release", choices=SUITES, default="12")
    for name, text in (("up", "boot a host and print its container's name"), ("name", "print that name only")):
        command = commands.add_parser(name, help=text)
        command.add_argument("group")
        command.add_argument("host", nargs="?")
        if name == "up":
            command.add_argument("--release", choices=SUITES, default="12", help="of Debian")
            command.add_argument(
                "--has", action="append", default=[], metavar="PACKAGE", help="of Debian, from the start"
            )
            command.add_argument("--publish", action="append", default=[], metavar="HOSTPORT:PORT")
            command.add_argument("--volume", action="append", default=[], metavar="FROM:TO[:ro]")
    command = commands.add_parser("down", help="remove a group's hosts and network")
    command.add_argument("group", nargs="?")
    command.add_argument("--images", action="store_true", help="remove unused host images too")
    shell = commands.add_parser("exec", help="run a command on a host as root")
    shell.add_argument("container")
    shell.add_argument("words", nargs=argparse.REMAINDER)
    commands.add_parser("list", help="show this checkout's hosts")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Do what the command line says."""
    options = parse(argv)
    try:
        if options.command == "image":
            print(ensure_image(options.release))
        elif options.command == "up":
            print(up(options.group, options.host, options))
        elif options.command == "name":
            print(container_name(options.group, options.host))
        elif options.command == "down":
            down(options.group)
            if options.images:
                remove_images()
        elif options.command == "list":
            print(podman("ps", "--all", "--filter", f"label=vllm-doctor.checkout={PREFIX}").stdout, end="")
        else:
            terminal = ["--tty"] if sys.stdin.isatty() else []
            return subprocess.call(
                [PODMAN, "exec", "--interactive", *terminal, options.container, *(options.words or ["bash"])]
            )
    except HostError as error:
        say(f"tools/host.py: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

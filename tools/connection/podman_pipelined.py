"""Podman's connection with pipelining, and for root without podman: its namespaces are entered directly.

A module travels on standard input instead of being copied first, and the container's file system is not mounted for
each task anew (which a machine that needs tools/hosttest could not see anyway). `podman exec` costs 0.1 s of processor
time, a third of a task; entering the namespaces of a host that tools/host.py made costs 0.002 s.

Ansible packs each module with all that it imports at its first use in a run, 0.3 s of processor time for one: runs of
one checkout share what they packed, in a folder named after the code that is packed. They share what their templates
are compiled to, too (tools/compiled_templates.py), and fork nothing for a task that asks no host (tools/unforked.py).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import cast

from ansible import constants
from ansible.errors import AnsibleError
from ansible_collections.containers.podman.plugins.connection.podman import Connection as Podman

DOCUMENTATION = """
    name: podman_pipelined
    short_description: Run tasks in a podman container, with pipelining
    description:
        - As P(containers.podman.podman#connection), but a module travels on standard input.
    options:
      remote_addr:
        description: The container.
        default: inventory_hostname
        vars:
          - name: inventory_hostname
          - name: ansible_host
      remote_user:
        description: Run commands as this user of the container.
        vars:
          - name: ansible_user
      podman_extra_args:
        description: More arguments for podman.
        default: ''
        vars:
          - name: ansible_podman_extra_args
      podman_executable:
        description: The podman program.
        default: podman
        vars:
          - name: ansible_podman_executable
"""

CHECKOUT = Path(__file__).resolve().parents[2]
PIDS = CHECKOUT / ".cache" / "hosts"  # where tools/host.py lets podman write them
PACKED = CHECKOUT / ".cache" / "packed"
KEPT_S = 86400  # no run takes longer: older folders are of code that is no more


def code_of_modules(checkout: Path = CHECKOUT) -> str:
    """Name all that a packed module may consist of: Ansible and its collections by the locks, our own by content."""
    files = [
        *checkout.glob("tools/lock/*.txt"),
        *checkout.glob("plugins/modules/*.py"),
        *checkout.glob("plugins/module_utils/**/*.py"),
    ]
    digest = hashlib.sha256(sys.version.encode())
    for file in sorted(files):
        digest.update(f"{file.relative_to(checkout)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def share_packed(run: Path, packed: Path = PACKED) -> None:
    """Let this run, whose own temporary folder is given, find what others packed and leave what it packs itself."""
    here = run / "ansiballz_cache"  # Ansible's name, and its own lock and rename for each file in it
    if here.is_symlink() or here.exists():
        return
    folder = packed / code_of_modules()
    with suppress(OSError):  # another task of this run was first, or nothing can be written: packed anew as without us
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            for other in packed.iterdir():
                if time.time() - other.stat().st_mtime > KEPT_S:
                    shutil.rmtree(other, ignore_errors=True)
        here.symlink_to(folder)


def begin(program: str) -> None:
    """Let this process and its forks do less, by a program of tools/, in runs of tests."""
    if not os.environ.get("COMPILED_TEMPLATES"):
        return
    spec = importlib.util.spec_from_file_location(program, CHECKOUT / "tools" / f"{program}.py")
    if spec and spec.loader:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.begin()


# ansible-playbook reads every connection before its first task, in the process that all tasks are forked from.
share_packed(Path(constants.DEFAULT_LOCAL_TMP))
begin("compiled_templates")  # what others compiled of templates is found
begin("unforked")  # what asks no host is done in the run itself


def running(container: str) -> int | None:
    """The first process of this host; None where only podman knows, or we may not enter."""
    try:
        pid = int((PIDS / f"{container}.pid").read_text())
        status = Path(f"/proc/{pid}/status").read_text()
    except (OSError, ValueError):
        return None
    first = [line for line in status.splitlines() if line.startswith("NSpid:") and line.endswith("\t1")]
    return pid if first and os.geteuid() == 0 else None


def words(pid: int, user: str | None, command: list[str]) -> list[str]:
    """The command inside the namespaces of a process, as root or as a user who logs in."""
    login = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--reset-env", "--"]
    return ["nsenter", "--all", f"--target={pid}", "--", *(login if user not in {None, "", "root"} else []), *command]


class Connection(Podman):
    """Keep standard input open for a command that is given something to read."""

    transport = "podman_pipelined"
    has_pipelining = True

    def _connect(self) -> None:
        self._connected = True

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = False) -> tuple[int, bytes, bytes]:
        """Run a command with what it is to read."""
        pid = running(self._container_id)
        if pid is None:
            return cast("tuple[int, bytes, bytes]", super().exec_command(cmd, in_data=in_data, sudoable=sudoable))
        return self._enter(pid, shlex.split(cmd), in_data)

    def put_file(self, in_path: str, out_path: str) -> None:
        """Write a file of this machine to the host."""
        pid = running(self._container_id)
        if pid is None:
            super().put_file(in_path, out_path)
            return
        command = ["sh", "-c", 'cat > "$1"', "sh", out_path]
        code, _, errors = self._enter(pid, command, Path(in_path).read_bytes())
        if code != 0:
            raise AnsibleError(f"{in_path} could not be copied to {out_path} in {self._container_id}: {errors!r}")

    def _enter(self, pid: int, command: list[str], in_data: bytes | None) -> tuple[int, bytes, bytes]:
        environment = dict(
            word.split(b"=", 1) for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if b"=" in word
        )
        done = subprocess.run(
            words(pid, self.user, command),
            input=in_data or b"",
            capture_output=True,
            check=False,
            env=environment,
            umask=0o022,
        )
        return done.returncode, done.stdout, done.stderr

    def _podman(
        self,
        cmd: str | list[str],
        cmd_args: list[str] | None = None,
        in_data: bytes | None = None,
        use_container_id: bool = True,
    ) -> tuple[int, bytes, bytes]:
        if in_data and isinstance(cmd, list) and cmd[0] == "exec":
            cmd = ["exec", "--interactive", *cmd[1:]]
        return cast("tuple[int, bytes, bytes]", super()._podman(cmd, cmd_args, in_data, use_container_id))

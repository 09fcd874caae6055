#!/usr/bin/python
# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""What a host has of vLLM: releases, the service's user, secrets, services, and the configurations that answered."""

from __future__ import annotations

import grp
import pwd
import re
import stat
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: vllm_host
short_description: What a host has of vLLM and what it serves, whatever the inventory says
description:
  - Reads which services the role has made here, whether they run and start at boot, and as what they last answered;
    which releases are there, the user of the services, and the names of credentials.
  - Changes nothing. One question to the host where the tasks that act on the answers would each ask their own.
options:
  user: {type: str, default: vllm, description: The user of the services.}
  root: {type: path, default: /opt/vllm, description: Where releases and kept configurations lie.}
  units: {type: path, default: /etc/systemd/system, description: Where units lie.}
  secrets: {type: path, default: /etc/vllm, description: Where the services' secrets lie.}
  sysfs: {type: path, default: /sys, description: Where the kernel shows the bus and the nodes.}
  doctor: {type: path, default: /usr/local/bin/vllm-doctor, description: The program of the doctor.}
  proc: {type: path, default: /proc, description: Where the driver shows its cards.}
author: the authors of vllm-doctor
"""

EXAMPLES = r"""
- name: What serves here is known
  vllm_doctor.hosts.vllm_host:
  register: here
"""

RETURN = r"""
drained: {type: str, returned: always, description: "When and why the host was drained; empty for one that is not."}
out:
  type: bool
  returned: always
  description: Whether a playbook took the host out of its load balancer and has not put it back.
current: {type: str, returned: always, description: The release that serves; empty for none.}
doctor: {type: str, returned: always, description: The path of the doctor's program; empty where it is not there.}
releases: {type: list, returned: always, description: The names of the releases on the host.}
complete: {type: list, returned: always, description: The names of those that were installed to the end.}
account:
  type: dict
  returned: always
  description: The user's primary C(group), C(home) and C(shell); empty where there is no such user.
private: {type: bool, returned: always, description: Whether the folder of secrets is there and root's alone.}
credentials: {type: list, returned: always, description: The names of the credentials that lie beside the secrets.}
nodes: {type: int, returned: always, description: How many NUMA nodes have processors.}
cards:
  type: list
  elements: dict
  returned: always
  description: >-
    NVIDIA's GPUs in the order of the bus, each with its C(node) (-1 where the kernel does not know) and its C(uuid),
    empty without a driver.
services:
  type: list
  elements: dict
  returned: always
  description: >-
    For each service its C(instance), C(name), C(active), C(enabled), C(secrets_file) (empty for none), as C(now) and
    C(before) what was kept when it answered (release, digest, url, run; null where it never did), C(url) from there,
    C(drifted), whether its unit or secrets are no longer those, C(unit), the text of its unit (empty for none), and
    C(files), what the role and the doctor have laid down for it, its unit first.
"""

DRAINED = "vllm@.service.d/90-drained.conf"
OURS = "# Rendered by role vllm"
KEPT = ("release", "digest", "url", "run")


def kept(folder: Path) -> dict[str, str] | None:
    """Read a configuration that answered; one written by an earlier version of this role has no run."""
    if not (folder / "digest").is_file():
        return None
    return {name: (folder / name).read_text().strip() if (folder / name).is_file() else "" for name in KEPT}


def instances(root: Path, units: Path) -> list[str]:
    """Name the services that the role made: by their units, and by what answered."""
    by_unit = [
        path.name.removeprefix("vllm@").removesuffix(".service")
        for path in units.glob("vllm@?*.service")
        if OURS in path.read_text(encoding="utf-8", errors="replace")[:200]
    ]
    answered = [path.name for path in (root / "served").glob("*") if kept(path / "now")]
    return sorted({*by_unit, *answered})


def states(shown: str) -> dict[str, dict[str, str]]:
    """Read `systemctl show` of several units: blocks of NAME=VALUE, one for each."""
    blocks = (dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in shown.split("\n\n"))
    return {block["Id"]: block for block in blocks if "Id" in block}


def service(name: str, root: Path, units: Path, secrets: Path, state: dict[str, str]) -> dict[str, object]:
    """Say of one service what is known."""
    folder, file, unit = root / "served" / name, secrets / f"{name}.secrets", f"vllm@{name}.service"
    now = kept(folder / "now")
    drop_ins = [units / f"{unit}.d", Path("/run/systemd/system") / f"{unit}.d"]
    return {
        "instance": name,
        "name": f"vllm@{name}",
        "active": state.get("ActiveState") == "active",
        "enabled": state.get("UnitFileState") == "enabled",
        "secrets_file": str(file) if file.exists() else "",
        "now": now,
        "before": kept(folder / "before"),
        "url": now["url"] if now else "",
        "drifted": drifted(folder / "now", units / unit, file),
        "unit": text(units / unit),
        "files": [str(path) for path in (units / unit, *drop_ins, file, folder) if path.exists()],
    }


def text(unit: Path) -> str:
    """Return a unit as it lies there; the controller reads it."""
    return unit.read_text(encoding="utf-8", errors="replace") if unit.is_file() else ""


def drifted(kept_in: Path, unit: Path, secrets: Path) -> bool:
    """Whether what is in place is no longer what was kept when it answered."""
    pairs = ((kept_in / "unit", unit), (kept_in / "secrets", secrets))
    return any((a.read_bytes() if a.exists() else None) != (b.read_bytes() if b.exists() else None) for a, b in pairs)


def drained(units: Path) -> str:
    """Say when and why the host was drained, as the drop-in that keeps its services from starting has it."""
    path = units / DRAINED
    if not path.exists():
        return ""
    return path.read_text(encoding="utf-8", errors="replace").partition("\n")[0].lstrip("# ") or "drained"


def account(user: str) -> dict[str, str]:
    """Say what the services' user is; nothing where there is none."""
    try:
        entry = pwd.getpwnam(user)
        return {"group": grp.getgrgid(entry.pw_gid).gr_name, "home": entry.pw_dir, "shell": entry.pw_shell}
    except KeyError:
        return {}


def credentials(secrets: Path) -> list[str]:
    """Name what lies there, whether it is encrypted or not."""
    names = (path.name.removesuffix(".encrypted") for path in secrets.glob("*") if path.suffix != ".secrets")
    return sorted(set(names))


def private(secrets: Path) -> bool:
    """Say whether a folder is there and nobody but root can look into it."""
    try:
        state = secrets.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(state.st_mode) and (state.st_uid, state.st_gid, stat.S_IMODE(state.st_mode)) == (0, 0, 0o700)


def nodes(sysfs: Path) -> int:
    """Count the nodes with processors; memory of a card may be a node, too."""
    lists = (sysfs / "devices/system/node").glob("node[0-9]*/cpulist")
    return sum(1 for path in lists if path.read_text().strip())


def cards(sysfs: Path, proc: Path) -> list[dict[str, object]]:
    """List NVIDIA's GPUs in the order of the bus."""
    found: list[dict[str, object]] = []
    for device in sorted((sysfs / "bus/pci/devices").glob("*")):
        try:
            told = [(device / name).read_text().strip() for name in ("vendor", "class", "numa_node")]
        except OSError:
            continue
        if told[0] != "0x10de" or not told[1].startswith("0x03"):
            continue
        said = proc / "driver/nvidia/gpus" / device.name / "information"
        uuid = re.search(r"GPU-[0-9a-f-]{36}", said.read_text(errors="replace")) if said.exists() else None
        found.append({"node": int(told[2]), "uuid": uuid[0] if uuid else ""})
    return found


def main() -> None:
    """Read, and answer."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/opt/vllm"},
            "units": {"type": "path", "default": "/etc/systemd/system"},
            "secrets": {"type": "path", "default": "/etc/vllm", "no_log": False},
            "user": {"type": "str", "default": "vllm"},
            "sysfs": {"type": "path", "default": "/sys"},
            "proc": {"type": "path", "default": "/proc"},
            "doctor": {"type": "path", "default": "/usr/local/bin/vllm-doctor"},
        },
        supports_check_mode=True,
    )
    root, units, secrets = (Path(module.params[name]) for name in ("root", "units", "secrets"))
    names = instances(root, units)
    shown = ""
    if names:
        asked = [f"vllm@{name}.service" for name in names]
        shown = module.run_command(["systemctl", "show", "--property=Id,ActiveState,UnitFileState", *asked])[1]
    told = states(shown)
    link = root / "current"
    releases = sorted(path for path in (root / "releases").glob("*") if path.is_dir())
    module.exit_json(
        changed=False,
        drained=drained(units),
        out=(root / "out-of-balancer").exists(),
        current=str(link.readlink()) if link.is_symlink() else "",
        doctor=module.params["doctor"] if Path(module.params["doctor"]).exists() else "",
        releases=[path.name for path in releases],
        complete=[path.name for path in releases if (path / ".complete").exists()],
        account=account(module.params["user"]),
        private=private(secrets),
        credentials=credentials(secrets),
        nodes=nodes(Path(module.params["sysfs"])),
        cards=cards(Path(module.params["sysfs"]), Path(module.params["proc"])),
        services=[service(name, root, units, secrets, told.get(f"vllm@{name}.service", {})) for name in names],
    )


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""Keep the configuration of a service that answered, and put a kept one back."""

from __future__ import annotations

import os
import shutil
from hashlib import sha256
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: vllm_keep
short_description: Keep the configuration of a service that answered, and put one back
description:
  - A configuration is the unit, its secrets and the release. `now` answered last, `before` answered before that.
  - C(kept) writes what is in place as `now`, and what was `now` as `before`.
  - C(now) and C(before) put that configuration in place; C(kept) exchanges the two once it answered.
options:
  folder: {type: path, required: true, description: Where this service's configurations are kept.}
  unit_file: {type: path, required: true, description: The unit.}
  secrets_file: {type: str, default: "", description: The file of secrets; empty for none.}
  current: {type: path, description: The link that says which release serves.}
  release: {type: path, description: The release that answered.}
  digest: {type: str, description: The name of the configuration that answered.}
  url: {type: str, description: Where it answered.}
  run:
    type: str
    description: The run of the role that it answered in; the same for all services that one run changed.
  rendered:
    type: str
    default: ""
    description: The SHA-256 of the unit as the caller wrote it; where it differs nothing is kept. Empty does not ask.
  state: {type: str, choices: [kept, now, before], default: kept, description: What to do.}
author: the authors of vllm-doctor
"""

EXAMPLES = r"""
- name: What served before is in place again
  vllm_doctor.hosts.vllm_keep:
    folder: /opt/vllm/served/main
    unit_file: /etc/systemd/system/vllm@main.service
    current: /opt/vllm/current
    state: now
"""

RETURN = r"""
found: {type: bool, returned: always, description: Whether there was such a configuration.}
release: {type: str, returned: when found, description: Its release.}
digest: {type: str, returned: when found, description: Its name.}
url: {type: str, returned: when found, description: Where it answered.}
secrets_file: {type: str, returned: when found, description: The file of its secrets; empty for none.}
"""

SAID = ("release", "digest", "url", "run")


def write(path: Path, content: bytes, mode: int) -> bool:
    """Put content in place in one step; says whether it was another."""
    if path.is_file() and path.read_bytes() == content:
        return False
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)
        os.fsync(file.fileno())
    beside.replace(path)
    return True


def point(link: Path, target: str) -> bool:
    """Let a link point to target in one step; says whether it pointed elsewhere."""
    if link.is_symlink() and str(link.readlink()) == target:
        return False
    beside = link.with_name(f".{link.name}.new")
    beside.unlink(missing_ok=True)
    beside.symlink_to(target)
    beside.replace(link)
    return True


def keep(folder: Path, unit: Path, secrets: str, said: dict[str, str]) -> bool:
    """Make what is in place `now`, and what was `now` `before`."""
    now, before, beside = folder / "now", folder / "before", folder / "next"
    if (now / "digest").is_file() and (now / "digest").read_text().strip() == said["digest"]:
        return False
    shutil.rmtree(beside, ignore_errors=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    beside.mkdir(mode=0o700)
    write(beside / "unit", unit.read_bytes(), 0o600)
    if secrets:
        write(beside / "secrets", Path(secrets).read_bytes(), 0o600)
    for name, value in said.items():
        write(beside / name, f"{value}\n".encode(), 0o600)
    if now.exists():
        shutil.rmtree(before, ignore_errors=True)
        now.rename(before)
    beside.rename(now)
    return True


def put_back(kept: Path, unit: Path, secrets: str, current: Path) -> bool:
    """Put a kept configuration in place; says whether another was there."""
    changed = write(unit, (kept / "unit").read_bytes(), 0o644)
    if secrets and (kept / "secrets").is_file():
        changed |= write(Path(secrets), (kept / "secrets").read_bytes(), 0o600)
    release = (kept / "release").read_text().strip()
    if f"{release}/" in unit.read_text(encoding="utf-8", errors="replace"):
        return changed  # a service with a version of its own names its release, and leaves the host's current one alone
    return point(current, release) or changed


def is_ours(unit: Path, rendered: str) -> bool:
    """Say whether the unit is as the caller wrote it: kept so, another would be taken for what is wanted."""
    return not rendered or sha256(unit.read_bytes()).hexdigest() == rendered


def differs(kept: Path, unit: Path, secrets: str, current: Path) -> bool:
    """Say whether something else is in place than a kept configuration."""
    pairs = [(kept / "unit", unit)]
    if secrets and (kept / "secrets").is_file():
        pairs.append((kept / "secrets", Path(secrets)))
    if any(not there.is_file() or there.read_bytes() != copy.read_bytes() for copy, there in pairs):
        return True
    release = (kept / "release").read_text().strip()
    own = f"{release}/" in (kept / "unit").read_text(encoding="utf-8", errors="replace")
    return not own and not (current.is_symlink() and str(current.readlink()) == release)


def main() -> None:
    """Do what `state` says."""
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "unit_file": {"type": "path", "required": True},
            "secrets_file": {"type": "str", "default": "", "no_log": False},
            "current": {"type": "path"},
            "release": {"type": "path"},
            "digest": {"type": "str"},
            "url": {"type": "str"},
            "run": {"type": "str"},
            "rendered": {"type": "str", "default": ""},
            "state": {"type": "str", "choices": ["kept", "now", "before"], "default": "kept"},
        },
        required_if=[
            ("state", "kept", ["release", "digest", "url", "run"]),
            ("state", "now", ["current"]),
            ("state", "before", ["current"]),
        ],
        supports_check_mode=True,
    )
    given = module.params
    folder, unit = Path(given["folder"]), Path(given["unit_file"])
    if given["state"] == "kept":
        if module.check_mode:
            module.exit_json(changed=True, found=True)
        if not is_ours(unit, given["rendered"]):
            module.fail_json(
                f"{unit.name} is no longer as this run wrote it: somebody else, such as a second run, changes this "
                "host. Nothing was put back; what is there may be either's. Run again when the other has ended."
            )
        said = {name: given[name] for name in SAID}
        module.exit_json(changed=keep(folder, unit, given["secrets_file"], said), found=True)
    kept = folder / given["state"]
    if not (kept / "digest").is_file():
        module.exit_json(changed=False, found=False)
    change = differs if module.check_mode else put_back
    changed = change(kept, unit, given["secrets_file"], Path(given["current"]))
    said = {name: (kept / name).read_text().strip() for name in SAID if name != "run"}
    secrets = given["secrets_file"] if (kept / "secrets").is_file() else ""
    module.exit_json(changed=changed, found=True, secrets_file=secrets, **said)


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""Hold or release many packages at once, and remember which holds are ours."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: package_lock
short_description: Lock every installed package of a stack
description:
  - With apt it holds packages, with dnf it writes exact entries for the versionlock plugin.
  - Only packages that match are touched. The names are kept in a file, so that holds of somebody else are told apart.
options:
  stack:
    description: Regular expression of the package names.
    type: str
    required: true
  state:
    description: Whether the installed packages of the stack are locked, or those that we locked are free.
    type: str
    choices: [locked, free]
    default: locked
  record:
    description: File that remembers which locks are ours.
    type: path
    required: true
  manager:
    description: The package manager.
    type: str
    choices: [apt, dnf]
    default: apt
  versionlock:
    description: The versionlock plugin's list, for dnf.
    type: path
    default: /etc/dnf/plugins/versionlock.list
author:
  - the authors of vllm-doctor
"""

EXAMPLES = r"""
- name: Every package of the driver stack is held
  vllm_doctor.hosts.package_lock:
    stack: ^(lib)?nvidia-
    record: /var/lib/nvidia-driver-role/held
"""

RETURN = r"""
packages:
  description: The packages of the stack that are locked now.
  returned: always
  type: list
"""

MARK = "# locked by the role nvidia_driver"


BUSY = re.compile(r"lock was locked by another process|[Cc]ould not get lock|unable to lock")  # dpkg and apt, LC_ALL=C
LOCK_S = 300  # as long as role nvidia_driver lets apt-get wait: unattended-upgrades runs when a host has just started
PAUSE_S = 2


def ask(module: AnsibleModule, argv: Sequence[str]) -> str:
    """Standard output, or a failed module. Another run of dpkg is waited for, which apt-mark does not do itself."""
    end = time.monotonic() + LOCK_S
    while True:
        environment = {**os.environ, "LC_ALL": "C"}
        done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/", env=environment)
        if not (done.returncode and BUSY.search(done.stderr)) or time.monotonic() > end:
            break
        time.sleep(PAUSE_S)
    if done.returncode:
        module.fail_json(msg=" ".join(argv[:3]) + ": " + (done.stderr.strip() or done.stdout.strip()))
    return done.stdout


def apt(module: AnsibleModule, pattern: re.Pattern[str], ours: Collection[str], locked: bool) -> tuple[bool, list[str]]:
    """Set holds; returns (changed, packages that are held now)."""
    told = ask(module, ["dpkg-query", "-W", "-f", "${Package}\t${db:Status-Abbrev}\n"])
    rows = [line.split("\t") for line in told.splitlines()]
    present = sorted({name for name, state in rows if state[1:2] not in "nc" and pattern.match(name)})
    held = set(ask(module, ["apt-mark", "showhold"]).split())
    if locked:
        change = [name for name in present if name not in held]
        verb, result = "hold", present
    else:
        change = [name for name in sorted(ours) if name in held]
        verb, result = "unhold", []
    if change and not module.check_mode:
        ask(module, ["apt-mark", verb, *change])
    return bool(change), result


def dnf(module: AnsibleModule, pattern: re.Pattern[str], locked: bool) -> tuple[bool, list[str]]:
    """Write exact versionlock entries; returns (changed, packages that are locked now)."""
    told = ask(module, ["rpm", "-qa", "--queryformat", "%{NAME}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\n"])
    rows = sorted(line.split("\t") for line in told.splitlines())
    present = [(name, evr) for name, evr in rows if pattern.match(name)]  # of a kernel there may be several
    path = Path(module.params["versionlock"])
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    # The driver and the toolkit are locked one after the other: of our entries, those of this stack alone are anew.
    written = re.compile(rf"(?m)^{MARK}\n([^\n]*)\n?")
    ours = {entry for entry in written.findall(before) if not pattern.match(entry.rsplit("-", 2)[0])}
    ours |= {f"{name}-{evr}.*" for name, evr in present} if locked else set()
    foreign = written.sub("", before)
    own = "".join(f"{MARK}\n{entry}\n" for entry in sorted(ours))
    after = foreign + ("\n" if foreign and own and not foreign.endswith("\n") else "") + own
    if after != before and not module.check_mode:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(after, encoding="utf-8")
    return after != before, sorted({name for name, _ in present}) if locked else []


def main() -> None:
    """Answer as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "stack": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["locked", "free"], "default": "locked"},
            "record": {"type": "path", "required": True},
            "manager": {"type": "str", "choices": ["apt", "dnf"], "default": "apt"},
            "versionlock": {"type": "path", "default": "/etc/dnf/plugins/versionlock.list"},
        },
        supports_check_mode=True,
    )
    pattern, locked = re.compile(module.params["stack"]), module.params["state"] == "locked"
    record = Path(module.params["record"])
    try:
        ours = set(json.loads(record.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        ours = set()
    if module.params["manager"] == "apt":
        changed, packages = apt(module, pattern, ours, locked)
    else:
        changed, packages = dnf(module, pattern, locked)
    if locked and set(packages) != ours and not module.check_mode:
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(packages, indent=0) + "\n", encoding="utf-8")
    module.exit_json(changed=changed, packages=packages)


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""What apt would have to do so that exactly one driver version is installed. Reads only; nothing is changed."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: driver_plan
short_description: The transaction that leads to exactly one driver version
description:
  - Resolves the wanted packages to exact versions, and lists what differs on the host, who holds what,
    and what an interrupted run has left behind.
options:
  version:
    description: The wanted driver version, such as 580.105.08.
    type: str
    required: true
  packages:
    description: Packages that must have exactly this version.
    type: list
    elements: str
    required: true
  others:
    description: Packages that must be there in any version (headers, the pinning package's own version).
    type: list
    elements: str
    default: []
  stack:
    description: Regular expression of the driver stack's package names.
    type: str
    required: true
  conflicting:
    description: Regular expression of packages that cannot stay beside the wanted ones (the other flavour).
    type: str
    default: ^$
  independent:
    description: Regular expression of packages of the stack that have versions of their own.
    type: str
    default: ^$
  held_by_us:
    description: File with the names that this role holds, one a line.
    type: path
    required: true
author:
  - the authors of vllm-doctor
"""

EXAMPLES = r"""
- name: What has to change is known
  vllm_doctor.hosts.driver_plan:
    version: 580.105.08
    packages: [nvidia-driver-cuda]
    stack: ^(lib)?nvidia-
    held_by_us: /var/lib/nvidia-driver-role/held
  register: plan
"""

RETURN = r"""
request:
  description: NAME=VERSION of every wanted package, for the package manager.
  returned: always
  type: list
missing:
  description: Wanted packages of which no repository has the wanted version, with the versions that it has.
  returned: always
  type: list
strays:
  description: Installed packages of the stack at another driver version, which must change or go.
  returned: always
  type: list
leftovers:
  description: Strays of which there is no wanted version; they are purged after the change.
  returned: always
  type: list
conflicts:
  description: Installed packages that must go first.
  returned: always
  type: list
foreign_holds:
  description: Held packages of the stack that this role did not hold.
  returned: always
  type: list
interrupted:
  description: Whether dpkg has unfinished work.
  returned: always
  type: bool
driver:
  description: Whether a package of the driver itself changes, and not only what is beside it (headers).
  returned: always
  type: bool
needed:
  description: Whether anything has to be done.
  returned: always
  type: bool
"""

DRIVER_VERSION = re.compile(r"(?:\d+:)?(\d{3}\.\d+(?:\.\d+)?)-")


def run(argv: Sequence[str]) -> str:
    """Standard output of a command that only reads."""
    environment = dict(os.environ, LC_ALL="C")
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=environment, cwd="/").stdout


def installed() -> dict[str, tuple[str, str]]:
    """{package: (version, state)} as dpkg has it; the state is two letters such as ii or hi."""
    told = run(["dpkg-query", "-W", "-f", "${Package}\t${Version}\t${db:Status-Abbrev}\n"])
    rows = [line.split("\t") for line in told.splitlines()]
    return {name: (version, state.strip()) for name, version, state in rows if state[1:2] not in "nc"}


def offered(names: Sequence[str]) -> dict[str, list[str]]:
    """{package: versions} that the repositories have, newest first."""
    found: dict[str, list[str]] = {name: [] for name in names}
    for line in run(["apt-cache", "madison", *names]).splitlines() if names else []:
        fields = [field.strip() for field in line.split("|")]
        if len(fields) == 3 and fields[1] not in found.setdefault(fields[0], []):
            found[fields[0]].append(fields[1])
    return found


def upstream(version: str) -> str | None:
    """The driver version inside a package version, or None."""
    hit = DRIVER_VERSION.match(version)
    return hit.group(1) if hit else None


def plan(
    wanted: str,
    packages: Sequence[str],
    others: Sequence[str],
    stack: str,
    *,
    conflicting: str,
    independent: str,
    ours: Collection[str],
) -> dict[str, object]:
    """The plan as a dictionary; see RETURN."""
    have, has = installed(), offered([*packages, *others])
    request, missing, exact = [], [], {}
    for name in packages:
        fits = [version for version in has[name] if upstream(version) == wanted]
        if fits:
            exact[name] = fits[0]
            request.append(name + "=" + fits[0])
        elif name in have and upstream(have[name][0]) == wanted:
            exact[name] = have[name][0]  # installed already: the repository may be gone
        else:
            missing.append({"name": name, "has": has[name]})
    missing += [{"name": name, "has": []} for name in others if not has[name] and name not in have]
    pattern = re.compile(stack)
    members = {name: row for name, row in have.items() if pattern.match(name)}
    conflicts = sorted(name for name in members if re.match(conflicting, name) and name not in packages)
    others_version = {name for name, (version, _) in members.items() if upstream(version) not in {wanted, None}}
    strays = sorted(name for name in others_version.difference(conflicts) if not re.match(independent, name))
    # A stray of the same name goes to the wanted version with the rest; one whose name ends with its branch must go.
    elsewhere = offered([name for name in strays if name not in exact])
    for name in sorted(elsewhere):
        fits = [version for version in elsewhere[name] if upstream(version) == wanted]
        if fits:
            request.append(name + "=" + fits[0])
    leftovers = [name for name in strays if not any(item.startswith(name + "=") for item in request)]
    held = set(run(["apt-mark", "showhold"]).split())
    audit = any(state[1:2] != "i" for _, state in have.values()) or bool(run(["dpkg", "--audit"]).strip())
    absent = [name for name in (*packages, *others) if name not in have]
    wrong = [name for name in packages if name in have and have[name][0] != exact.get(name, have[name][0])]
    missed = [name for name in packages if name not in have]
    return {
        "request": request,
        "others": [name for name in others if name not in have],
        "missing": missing,
        "strays": strays,
        "conflicts": conflicts,
        "leftovers": leftovers,
        "stack": sorted(members),
        "unheld": sorted(set(members) - held),
        "foreign_holds": sorted(name for name in held if pattern.match(name) and name not in ours),
        "interrupted": audit,
        "driver": bool(missed or wrong or strays or conflicts),
        "needed": bool(absent or wrong or strays or conflicts),
        "before": {name: version for name, (version, _) in members.items()},
    }


def main() -> None:
    """Answer as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "version": {"type": "str", "required": True},
            "packages": {"type": "list", "elements": "str", "required": True},
            "others": {"type": "list", "elements": "str", "default": []},
            "stack": {"type": "str", "required": True},
            "conflicting": {"type": "str", "default": "^$"},
            "independent": {"type": "str", "default": "^$"},
            "held_by_us": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    try:
        ours = set(json.loads(Path(wanted["held_by_us"]).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        ours = set()
    answer = plan(
        wanted["version"],
        wanted["packages"],
        wanted["others"],
        wanted["stack"],
        conflicting=wanted["conflicting"],
        independent=wanted["independent"],
        ours=ours,
    )
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()

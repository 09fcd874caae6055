#!/usr/bin/python
# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""Whether a host is still as a role left it: what was wanted, and what the role can change, compared with now."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENTATION = r"""
module: settled
short_description: Whether a host is as a role left it
description:
  - One question instead of a role's own ones. What the role left is read anew - files, units, packages - and
    compared with what was read when the role had ended well. A role whose host is settled has nothing to do.
  - The record holds digests and versions, no contents. It is root's alone.
  - The action plugin of the same name adds to C(wanted) the role's options and a digest of its code.
options:
  asked:
    description: >-
      Several questions at once, each with the options below; then C(settled) is said of all of them together.
    type: list
    elements: dict
    default: []
  record:
    description: The file that remembers.
    type: path
  wanted:
    description: What is wanted, as digests by name; anything that the role's outcome follows from, beside the host.
    type: dict
    default: {}
  files:
    description: >-
      Glob patterns of files, folders and links whose content, owner and mode the role sees to; also those that must
      not be there.
    type: list
    elements: str
    default: []
  stamps:
    description: Glob patterns of files of which size and time of change say enough.
    type: list
    elements: str
    default: []
  units:
    description: Units of systemd whose state and settings the role sees to.
    type: list
    elements: str
    default: []
  packages:
    description: Regular expression of the packages whose versions and holds the role sees to; none of them without it.
    type: str
  keep:
    description: Remember how the host is now, instead of asking.
    type: bool
    default: false
author:
  - the authors of vllm-doctor
"""

EXAMPLES = r"""
- name: Ask whether the host is as this role left it
  vllm_doctor.hosts.settled:
    record: /var/lib/vllm-doctor-roles/example.json
    wanted: {version: 3f5a}
    files: [/etc/example/*.conf]
    units: [example.service]
    packages: ^example
  register: answer
"""

RETURN = r"""
settled:
  description: Whether nothing differs.
  returned: always
  type: bool
differs:
  description: >-
    Names of what is wanted otherwise, and of what is there otherwise; C(never) where the role has never ended well.
  returned: always
  type: list
"""

PROPERTIES = "LoadState,ActiveState,UnitFileState,NeedDaemonReload,FragmentPath,DropInPaths"
# not the session's: a profile may have put the current folder into it
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DPKG = Path("/var/lib/dpkg/status")
RPM = (Path("/var/lib/rpm"), Path("/usr/lib/sysimage/rpm"))
WHOLE = {"installed", "config-files", "not-installed"}  # states of dpkg behind which nothing is unfinished


def told(argv: list[str]) -> str:
    """Standard output of a command that only reads; how it failed, where it did."""
    environment = {"PATH": PATH, "LC_ALL": "C", "LANGUAGE": "C"}
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=60, check=False, env=environment, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        return type(failure).__name__
    return done.stdout or str(done.returncode)


def content(path: Path) -> str:
    """What a path is, as a text that changes with its content, owner and mode."""
    try:
        status = path.lstat()
        owned = f"{status.st_mode:o} {status.st_uid}:{status.st_gid}"
        if stat.S_ISLNK(status.st_mode):
            return f"-> {path.readlink()}"
        if stat.S_ISREG(status.st_mode):
            return f"{owned} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    except OSError as failure:
        return failure.strerror or type(failure).__name__
    return owned


def stamp(path: Path) -> str:
    """Size and time of change of a path."""
    try:
        status = path.stat()
    except OSError as failure:
        return failure.strerror or type(failure).__name__
    return f"{status.st_size} {status.st_mtime_ns}"


def found(patterns: list[str], look: Callable[[Path], str]) -> dict[str, str]:
    """{path: look(path)} of what the patterns match, and {pattern: absent} of those that match nothing."""
    answer: dict[str, str] = {}
    for pattern in patterns:
        matches = sorted(Path("/").glob(pattern.lstrip("/")))
        answer.update({str(path): look(path) for path in matches} or {pattern: "absent"})
    return answer


def units(names: list[str]) -> dict[str, str]:
    """{unit: its state and settings}."""
    if not names:
        return {}
    blocks = told(["systemctl", "show", "--property=" + PROPERTIES, *names]).strip().split("\n\n")
    if len(blocks) != len(names):  # no systemd, or none that answers
        return dict.fromkeys(names, blocks[0])
    return {name: blocks[index] for index, name in enumerate(names)}


@functools.cache
def installed() -> str:
    """Every package with its version and state, a line for each; asked once.

    A host may have both: dpkg is a package of EPEL, and rpm one of Debian. rpm is asked where it has a database: where
    it has none it makes one.
    """
    lists = []
    if DPKG.exists():
        lists.append(told(["dpkg-query", "-W", "-f", "${Package}:${Architecture}\t${Version} ${Status}\n"]))
    if any(database.exists() for database in RPM):
        lists.append(told(["rpm", "-qa", "--queryformat", "%{NAME}:%{ARCH}\t%{EVR} installed\n"]))
    return "\n".join(lists)


def packages(pattern: str | None) -> dict[str, str]:
    """{package: version and state} of those that match, and of those with unfinished work."""
    if not pattern:
        return {}
    answer = {"unfinished work of dpkg": str(len(list(Path("/var/lib/dpkg/updates").glob("[0-9]*"))))}
    for row in sorted(installed().splitlines()):
        name, _, state = row.partition("\t")
        if row and (re.match(pattern, name.split(":")[0]) or state.split(" ")[-1] not in WHOLE):
            answer[name] = f"{answer[name]}, {state}" if name in answer else state  # kernels, and what broke off
    return answer


def differences(then: dict[str, str], now: dict[str, str]) -> list[str]:
    """Names whose values differ."""
    return sorted(name for name in set(then) | set(now) if then.get(name) != now.get(name))


def remembered(record: Path) -> dict[str, dict[str, str]] | None:
    """What was kept, or None."""
    try:
        kept = json.loads(record.read_text(encoding="utf-8"))
        return kept if isinstance(kept["wanted"], dict) and isinstance(kept["is"], dict) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(record: Path, kept: dict[str, dict[str, str]]) -> None:
    """Write it whole or not at all, for root alone."""
    record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = record.with_name(record.name + ".new")
    if new.is_symlink() or new.exists():
        new.unlink()
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(kept, file, indent=1, sort_keys=True)
    new.replace(record)


def answer(asked: dict[str, Any], *, check_mode: bool) -> list[str]:
    """Name what differs, and remember where that is asked. Raises OSError where it cannot be written."""
    record = Path(asked["record"])
    wanted = {name: str(value) for name, value in asked["wanted"].items()}
    now = found(asked.get("files", []), content)
    now.update({f"{name} (age)": value for name, value in found(asked.get("stamps", []), stamp).items()})
    now.update(units(asked.get("units", [])))
    now.update(packages(asked.get("packages")))
    kept = remembered(record)
    differs = ["never"] if kept is None else differences(kept["wanted"], wanted) + differences(kept["is"], now)
    if asked.get("keep") and differs and not check_mode:
        keep(record, {"wanted": wanted, "is": now})
    return differs


def main() -> None:
    """Answer as an Ansible module."""
    texts = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "asked": {"type": "list", "elements": "dict", "default": []},
            "record": {"type": "path"},
            "wanted": {"type": "dict", "default": {}},
            "files": texts,
            "stamps": texts,
            "units": texts,
            "packages": {"type": "str"},
            "keep": {"type": "bool", "default": False},
        },
        required_one_of=[("asked", "record")],
        supports_check_mode=True,
    )
    differs: list[str] = []
    for asked in module.params["asked"] or [module.params]:
        try:
            differs += answer(asked, check_mode=module.check_mode)
        except OSError as failure:
            module.fail_json(msg=f"{asked['record']}: {failure.strerror}")
    # A note about the host, and nothing that it serves with: what the role changed has been said by the role.
    module.exit_json(changed=False, settled=not differs, differs=differs)


if __name__ == "__main__":
    main()

#!/usr/bin/python
# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""Remove releases that nothing needs any more."""

from __future__ import annotations

import glob
import re
import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: vllm_prune
short_description: Remove releases that nothing needs any more
description:
  - The release that serves, those of kept configurations (the way back), and those that any process on the host runs
    from or has mapped are never removed. Of the others the newest stay, as many as there is room for.
options:
  root: {type: path, default: /opt/vllm, description: Where releases and kept configurations lie.}
  keep: {type: int, required: true, description: How many releases stay.}
author: the authors of vllm-doctor
"""

EXAMPLES = r"""
- name: Old releases are gone
  vllm_doctor.hosts.vllm_prune: {keep: 3}
"""

RETURN = r"""
removed: {type: list, returned: always, description: The names of the releases that were removed.}
needed: {type: list, returned: always, description: The names of the releases that may not be removed.}
"""


CACHES = Path("/var/cache/vllm")  # the units' CacheDirectory: <instance>/<release>


def named(root: Path) -> set[str]:
    """Name the release that serves and those of configurations that may be put back."""
    found = {str(path) for path in (root / "current",) if path.is_symlink() for path in (path.readlink(),)}
    found |= {path.read_text().strip() for path in (root / "served").glob("*/*/release")}
    return {Path(text).name for text in found}


def in_use(root: Path, proc: Path) -> set[str]:
    """Name the releases that a process runs from: an engine can outlive its server, a trial has no unit of ours.

    Its interpreter is the system's, so its words and the libraries it has mapped say it (proc(5)).
    """
    pattern = re.compile(re.escape(f"{root}/releases/".encode()) + rb"([^/\0\n]+)")
    found: set[bytes] = set()
    for process in proc.glob("[0-9]*"):
        for name in ("cmdline", "maps"):
            try:
                found.update(pattern.findall((process / name).read_bytes()))
            except OSError:
                continue  # it ended, or is a kernel thread
    return {name.decode(errors="replace") for name in found}


def age(release: Path) -> float:
    """When its build was complete; one that never was is the oldest of all."""
    marker = release / ".complete"
    return marker.stat().st_mtime if marker.exists() else 0.0


def spare(root: Path, needed: set[str], keep: int) -> list[Path]:
    """List the releases to remove, the oldest first."""
    every = [path for path in (root / "releases").glob("*") if path.is_dir()]
    others = sorted((path for path in every if path.name not in needed), key=age)
    room = max(0, keep - (len(every) - len(others)))
    return others[: max(0, len(others) - room)]


def remove(root: Path, release: Path, caches: Path = CACHES) -> None:
    """Take the marker first: what is left of an interrupted removal is no release. What it compiled goes with it."""
    (release / ".complete").unlink(missing_ok=True)
    shutil.rmtree(release)
    (root / "locks" / f"{release.name}.lock").unlink(missing_ok=True)
    for cache in caches.glob(f"*/{glob.escape(release.name)}"):
        shutil.rmtree(cache, ignore_errors=True)


def main() -> None:
    """Remove, or in check mode say what would be removed."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/opt/vllm"},
            "keep": {"type": "int", "required": True},
        },
        supports_check_mode=True,
    )
    root = Path(module.params["root"])
    needed = named(root) | in_use(root, Path("/proc"))
    old = spare(root, needed, module.params["keep"])
    if not module.check_mode:
        for release in old:
            remove(root, release)
    module.exit_json(changed=bool(old), removed=[path.name for path in old], needed=sorted(needed))


if __name__ == "__main__":
    main()

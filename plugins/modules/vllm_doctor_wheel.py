#!/usr/bin/python
# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""Build the doctor's wheel on the controller; one place for each content."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: vllm_doctor_wheel
short_description: Build the doctor's wheel on the controller
description:
  - The wheel of one checkout is the same to the bit each time it is built, so its checksum names it and its place.
  - Runs on the controller. Wheels that no run used for a day are removed.
options:
  project: {type: path, required: true, description: The checkout.}
  python: {type: path, required: true, description: The Python that builds; it has the build system and uv beside it.}
author: the authors of vllm-doctor
"""

EXAMPLES = r"""
- name: The wheel is built on the controller
  vllm_doctor.hosts.vllm_doctor_wheel: {project: /srv/vllm-doctor, python: /srv/vllm-doctor/.venv/bin/python}
  delegate_to: localhost
"""

RETURN = r"""
path: {type: str, returned: success, description: Where the wheel lies.}
name: {type: str, returned: success, description: Its file name.}
version: {type: str, returned: success, description: The version that it is of.}
checksum: {type: str, returned: success, description: Its SHA-256.}
"""

DAY_S = 86400


def place(cache: Path, built: Path) -> tuple[Path, str]:
    """Move a wheel to where its content says, in one step: runs side by side do not meet."""
    checksum = hashlib.sha256(built.read_bytes()).hexdigest()
    folder = cache / checksum[:12]
    folder.mkdir(exist_ok=True)
    built.replace(folder / built.name)
    os.utime(folder)
    return folder / built.name, checksum


def forget(cache: Path, now: float) -> None:
    """Remove what no run used for a day."""
    for folder in cache.iterdir():
        if folder.stat().st_mtime < now - DAY_S:
            shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Build, and say where it is."""
    module = AnsibleModule(
        argument_spec={"project": {"type": "path", "required": True}, "python": {"type": "path", "required": True}},
        supports_check_mode=True,
    )
    project, python = module.params["project"], module.params["python"]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vllm-doctor" / "wheels"
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        # Nothing is fetched, and the environment's cache may be the hosts' (site_environment).
        uv = [str(Path(python).with_name("uv")), "build", "--quiet", "--wheel", "--no-build-isolation", "--no-cache"]
        module.run_command([*uv, "--python", python, "--out-dir", scratch, project], check_rc=True)
        (built,) = Path(scratch).glob("*.whl")
        wheel, checksum = place(cache, built)
    forget(cache, time.time())
    version = wheel.name.split("-")[1]
    module.exit_json(changed=False, path=str(wheel), name=wheel.name, version=version, checksum=checksum)


if __name__ == "__main__":
    main()

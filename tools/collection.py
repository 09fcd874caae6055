#!/usr/bin/env python3
"""Build roles, plugins and playbooks as the collection vllm_doctor.hosts: an archive in build/collection.

The checkout is laid out as a collection is, and its own playbooks call the roles and plugins by the collection's name.
So the files that git knows are packed as they are; the doctor's package, from which the roles judge and build its
wheel, comes along.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import yaml

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

from vllm_doctor import __version__  # noqa: E402 - the checkout's own, whatever is installed

NAMESPACE, NAME = "vllm_doctor", "hosts"
OUT = REPO / "build" / "collection"
OF_ANSIBLE = ("roles", ":!roles/*/molecule/*", "plugins", "playbooks", "site.yml", "meta", "templates", "tests/sanity")
OF_THE_DOCTOR = ("vllm_doctor", "bin", "tools/lock", "pyproject.toml")
TO_READ = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "docs", "inventories/example")
# Not in the checkout: whoever builds from there would pack inventories and environments that git does not know.
GALAXY = {
    "namespace": NAMESPACE,
    "name": NAME,
    "version": __version__,
    "readme": "README.md",
    "authors": ["the authors of vllm-doctor"],
    "description": "GPU hosts from bare Linux to a model that vLLM serves, and why it does not start",
    "license": ["Apache-2.0"],
    "tags": ["infrastructure", "linux", "monitoring"],
    "dependencies": {"ansible.posix": ">=1.5.0"},
}


def shipped() -> list[str]:
    """The files of the collection: those that git knows, or would ask about, and that are there."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]
    listed = subprocess.run(
        [*command, *OF_ANSIBLE, *OF_THE_DOCTOR, *TO_READ], cwd=REPO, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.split("\0") if name and (REPO / name).is_file()]


def build(out: Path) -> Path:
    """Copy the files into a tree below `out` and have ansible-galaxy pack it; returns the archive."""
    tree = out / "ansible_collections" / NAMESPACE / NAME  # what ansible-test asks for
    shutil.rmtree(out, ignore_errors=True)
    for name in shipped():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPO / name, tree / name)
    (tree / "galaxy.yml").write_text(yaml.safe_dump(GALAXY, sort_keys=False), encoding="utf-8")
    galaxy = [str(REPO / ".venv" / "bin" / "ansible-galaxy"), "collection", "build", "--output-path", str(out)]
    subprocess.run([*galaxy, str(tree)], cwd=REPO, capture_output=True, text=True, check=True)
    return out / f"{NAMESPACE}-{NAME}-{__version__}.tar.gz"


def main() -> int:
    """Build it and say where it is."""
    try:
        archive = build(OUT)
    except subprocess.CalledProcessError as failure:
        print(f"{failure.stdout}{failure.stderr}", file=sys.stderr)
        return 1
    print(f"{archive.relative_to(REPO)}, to install where there is no checkout: ansible-galaxy collection install FILE")
    return 0


if __name__ == "__main__":
    sys.exit(main())

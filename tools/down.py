#!/usr/bin/env python3
"""make down: remove what make up made. The last host to go takes the images, the caches and the namespace along."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import host
from host_image import remove_images
from podman import CACHE, TOOLS, HostError, podman


def main() -> int:
    """Remove this sandbox, then whatever no other host needs."""
    if shutil.which("podman") is None:
        print("make down: podman is not installed, so there is nothing to remove")
        return 0
    try:
        host.down(os.environ.get("SANDBOX") or "sandbox")
        others = podman(
            "ps", "--all", "--filter", "label=vllm-doctor.checkout", "--format", "{{.Names}}"
        ).stdout.split()
        if others:
            print(f"the host image and the package cache stay, they are used by: {' '.join(others)}")
            return 0
        remove_images()
    except HostError as error:
        print(f"make down: {error}", file=sys.stderr)
        return 1
    shutil.rmtree(CACHE, ignore_errors=True)
    subprocess.run([str(TOOLS / "hosttest"), "--down"], check=False)
    print(
        "removed: host, network, image, package cache. Kept: .venv (make clean removes it) and what apt-get installed"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

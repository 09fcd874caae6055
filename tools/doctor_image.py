#!/usr/bin/env python3
"""Build the doctor's container image by podman: make image (BASE=an image, PYTHON=its Python, TAG=the name).

Packages are put together here, by the hashes of the lock that hosts get; the image itself is built without the network
where its base has a Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import podman

REPO = podman.REPO
CONTEXT = REPO / "build" / "image"
LOCK = REPO / "roles" / "vllm_doctor" / "files" / "requirements.lock"
UV = REPO / ".venv" / "bin" / "uv"


def fill(python: str) -> None:
    """Make the context: the packages for this Python, the doctor's wheel among them, and the command."""
    shutil.rmtree(CONTEXT, ignore_errors=True)
    (CONTEXT / "dist").mkdir(parents=True)
    site = str(CONTEXT / "site")
    build = [str(UV), "build", "--quiet", "--wheel", "--no-build-isolation", "--python", str(UV.parent / "python")]
    subprocess.run([*build, "--out-dir", str(CONTEXT / "dist"), str(REPO)], cwd=REPO, check=True)
    into = [str(UV), "pip", "install", "--quiet", "--python-version", python, "--python-platform", "linux"]
    into += ["--only-binary", ":all:", "--target", site]
    subprocess.run([*into, "--require-hashes", "-r", str(LOCK)], cwd=REPO, check=True)
    (wheel,) = (CONTEXT / "dist").glob("*.whl")
    subprocess.run([*into, "--no-deps", str(wheel)], cwd=REPO, check=True)
    for folder in ("bin", ".lock"):  # uv's own, and commands that start with this machine's Python
        path = CONTEXT / "site" / folder
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    shutil.copy2(REPO / "bin" / "vllm-doctor", CONTEXT / "vllm-doctor")


def main() -> int:
    """Fill the context and build."""
    base, tag = os.environ.get("BASE"), os.environ.get("TAG") or "vllm-doctor"
    python = os.environ.get("PYTHON_OF_BASE") or "3.13"
    fill(python)
    recipe = str(REPO / "tools" / "doctor_image" / "Containerfile")
    arguments = ["--build-arg", f"PYTHON={python}", *(["--build-arg", f"BASE={base}"] if base else [])]
    try:
        podman.podman("build", "--tag", tag, "--file", recipe, *arguments, str(CONTEXT))
    except podman.HostError as problem:
        print(problem, file=sys.stderr)
        return 1
    print(f"built {tag}: podman run --rm -i {tag} diagnose - <server.log")
    return 0


if __name__ == "__main__":
    sys.exit(main())

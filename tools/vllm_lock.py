#!/usr/bin/env python3
"""Write the hash lock of a vLLM release: tools/vllm_lock.py roles/vllm/files/locks/0.32.0+cpu.in

The .in file pins every package by version and is kept by hand. uv finds the files; of their hashes only those of
wheels for Linux and the given Pythons are kept, so that a source package, which would be compiled as root on the
host, can never match. A wheel folder in PIP_FIND_LINKS is looked at first, as on the hosts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote

from packaging.utils import parse_wheel_filename

PYTHONS = {"cp311", "cp312", "cp313"}
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"


def resolve(pins: Path) -> list[dict[str, object]]:
    """Ask uv for the files behind exact pins; dependencies are not followed, the .in file is complete."""
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    source: list[str] = []
    if pins.stem.endswith("+cpu"):  # for the others a folder's torch X+cpu would pass for a newer X
        folders = os.environ.get("PIP_FIND_LINKS", "").split()
        index = [f"--index={TORCH_INDEX}", "--index-strategy=unsafe-best-match"]
        source = [f"--find-links={folder}" for folder in folders] or index
    with TemporaryDirectory() as scratch:
        out = Path(scratch) / "pylock.toml"
        command = [
            uv,
            "pip",
            "compile",
            "--quiet",
            "--no-deps",
            "--format=pylock.toml",
            "--python-version=3.11",
            *source,
        ]
        subprocess.run([*command, f"--output-file={out}", str(pins)], check=True)
        packages: list[dict[str, object]] = tomllib.loads(out.read_text())["packages"]
        return packages


def serves(filename: str) -> bool:
    """Say whether this wheel can be installed on one of our hosts."""
    return any(
        (tag.interpreter in PYTHONS or tag.interpreter.startswith("py3") or tag.abi == "abi3")
        and (tag.platform == "any" or ("linux" in tag.platform and tag.platform.endswith(("x86_64", "aarch64"))))
        and "musl" not in tag.platform
        for tag in parse_wheel_filename(filename)[3]
    )


def requirement(package: dict[str, object]) -> str:
    """Compose one pin with its hashes; a package without a wheel stops the lock."""
    wheels = package.get("wheels")
    kept = sorted(
        wheel["hashes"]["sha256"]
        for wheel in (wheels if isinstance(wheels, list) else [])
        if serves(unquote(wheel["url"].rsplit("/", 1)[1]))
    )
    if not kept:
        raise SystemExit(
            f"{package['name']}=={package['version']}: no wheel for Linux and {', '.join(sorted(PYTHONS))}"
        )
    # To == a wheel folder's torch X+cpu is an X, and its hash then stops the installation for a GPU.
    sign = "===" if package["name"] == "torch" and "+" not in str(package["version"]) else "=="
    return " \\\n    ".join(
        [f"{package['name']}{sign}{package['version']}", *(f"--hash=sha256:{digest}" for digest in kept)]
    )


def main() -> None:
    """Write one lock beside each .in file named on the command line."""
    for argument in sys.argv[1:] or [__doc__]:
        pins = Path(argument)
        if pins.suffix != ".in":
            raise SystemExit(f"usage: {__doc__}")
        lines = [requirement(package) for package in resolve(pins)]
        pins.with_suffix(".lock").write_text(
            f"# made by tools/vllm_lock.py from {pins.name}\n" + "\n".join(lines) + "\n"
        )
        print(f"{pins.with_suffix('.lock')}: {len(lines)} packages")


if __name__ == "__main__":
    main()

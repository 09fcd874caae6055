#!/usr/bin/env python3
"""Write hash locks of vLLM releases: tools/vllm_lock.py 0.32.0+cu130-x86_64 0.32.0+cu130-aarch64

A lock is for one release, one build (its CUDA) and one architecture, and installs on every Python that it names. What
it holds is what uv resolves of `vllm==RELEASE` for that architecture; where a file RELEASE+BUILD.in is beside the
locks, it is complete, kept by hand, and resolved without dependencies. Only wheels are taken: a source package would
be compiled as root on the host. A package without a wheel for one of the Pythons stops the lock, and so does a torch
without CUDA, or with another CUDA than the build's name says. Wheel folders in PIP_FIND_LINKS are looked at for the
CPU build, as on the hosts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote

from packaging.markers import Marker
from packaging.tags import Tag
from packaging.utils import parse_wheel_filename

FOLDER = Path(__file__).resolve().parents[1] / "roles/vllm/files/locks"
PYTHONS = ("3.11", "3.12", "3.13")
CPU_PYTHONS = ("3.11",)  # of the CPU build's torch one file is pinned
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
OLD_PLATFORMS = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
NAME = re.compile(r"(?P<version>[0-9][^+]*)\+(?P<build>[a-z0-9]+)-(?P<machine>x86_64|aarch64)")


@dataclass(frozen=True)
class Target:
    """What a lock is for."""

    version: str
    build: str
    machine: str

    @property
    def pythons(self) -> tuple[str, ...]:
        """The Pythons on which everything must be installable."""
        return CPU_PYTHONS if self.build == "cpu" else PYTHONS

    @property
    def pins(self) -> Path | None:
        """The file of pins that is kept by hand, None where uv resolves."""
        pins = FOLDER / f"{self.version}+{self.build}.in"
        return pins if pins.exists() else None

    def environment(self, python: str) -> dict[str, str]:
        """The values of markers on such a host."""
        return {
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "os_name": "posix",
            "sys_platform": "linux",
            "platform_system": "Linux",
            "platform_machine": self.machine,
            "python_version": python,
            "python_full_version": f"{python}.99",
        }


def resolve(target: Target) -> list[dict[str, object]]:
    """Ask uv for packages, markers and files."""
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    with TemporaryDirectory() as scratch:
        out, project = Path(scratch) / "pylock.toml", Path(scratch) / "pyproject.toml"
        here = (
            f"sys_platform == 'linux' and platform_machine == '{target.machine}' and implementation_name == 'cpython'"
        )
        until = f"python_version <= '{target.pythons[-1]}'"
        project.write_text(
            f'[project]\nname = "lock"\nversion = "0"\nrequires-python = ">={target.pythons[0]}"\n'
            f'dependencies = ["vllm=={target.version}"]\n[tool.uv]\nenvironments = ["{here} and {until}"]\n'
        )
        how: list[str] = []
        if target.pins:
            folders = os.environ.get("PIP_FIND_LINKS", "").split()
            index = [f"--index={TORCH_INDEX}", "--index-strategy=unsafe-best-match"]
            how = ["--no-deps", *([f"--find-links={folder}" for folder in folders] or index)]
        command = [uv, "pip", "compile", "--quiet", "--format=pylock.toml", "--only-binary=:all:", "--universal"]
        command += [f"--python-version={target.pythons[0]}", *how, f"--output-file={out}"]
        done = subprocess.run([*command, str(target.pins or project)], check=False, cwd=scratch)
        if done.returncode:  # uv has said why
            raise SystemExit(f"{target.version}+{target.build}-{target.machine}: no lock")
        packages: list[dict[str, object]] = tomllib.loads(out.read_text())["packages"]
        return packages


def glibc(tag: Tag, machine: str) -> tuple[int, ...] | None:
    """The glibc that this tag of a wheel asks for; () for none; None where the wheel is for another system."""
    if tag.platform in {"any", f"linux_{machine}"}:
        return ()
    found = re.fullmatch(rf"(manylinux\d+)_{machine}|manylinux_(\d+)_(\d+)_{machine}", tag.platform)
    if found is None:
        return None
    return OLD_PLATFORMS[found[1]] if found[1] else (int(found[2]), int(found[3]))


def runs(tag: Tag, python: str) -> bool:
    """Whether CPython of this minor version takes wheels with this tag."""
    minor = int(python.partition(".")[2])
    if tag.interpreter == f"cp3{minor}":
        return tag.abi in {f"cp3{minor}", "abi3", "none"}
    older = re.fullmatch(r"cp3(\d+)", tag.interpreter)
    if older is not None and tag.abi == "abi3":
        return int(older[1]) <= minor
    pure = re.fullmatch(r"py3(\d*)", tag.interpreter)
    return pure is not None and tag.abi == "none" and int(pure[1] or 0) <= minor


@dataclass(frozen=True)
class Pinned:
    """One package of the lock: its line, its files by hash, and the glibc that it needs."""

    line: str
    files: tuple[tuple[str, str], ...]  # (sha256, file name)
    glibc: tuple[int, ...]

    def __str__(self) -> str:
        """Write it for pip and uv; below it the names of the files, for readers and tests."""
        hashes = [f"--hash=sha256:{digest}" for digest, _ in self.files]
        names = [f"# {digest[:12]} {name}" for digest, name in self.files]
        return "\n".join([" \\\n    ".join([self.line, *hashes]), *names])


def pin(package: dict[str, object], target: Target) -> Pinned | None:
    """Compose one pin; None for a package that none of the Pythons needs."""
    name, version = str(package["name"]), str(package["version"])
    marker = Marker(str(package["marker"])) if package.get("marker") else None
    needing = [p for p in target.pythons if marker is None or marker.evaluate(target.environment(p))]
    if not needing:
        return None
    listed = package.get("wheels")
    files: dict[str, str] = {}
    floor: tuple[int, ...] = ()
    for python in needing:
        fits: list[tuple[tuple[int, ...], str, str]] = []
        for wheel in listed if isinstance(listed, list) else []:
            file = unquote(wheel["url"].rsplit("/", 1)[1])
            floors = [glibc(tag, target.machine) for tag in parse_wheel_filename(file)[3] if runs(tag, python)]
            known = [one for one in floors if one is not None]
            if known:
                fits.append((min(known), wheel["hashes"]["sha256"], file))
        if not fits:
            raise SystemExit(f"{name}=={version}: no wheel for {target.machine} and Python {python}")
        files |= {digest: file for _, digest, file in fits}
        floor = max(floor, min(fits)[0])
    # To == a wheel folder's torch X+cpu is an X, and its hash then stops the installation for a GPU.
    sign = "===" if name == "torch" and "+" not in version else "=="
    only = {
        ("3.11",): "python_version < '3.12'",
        ("3.12", "3.13"): "python_version >= '3.12'",
        ("3.11", "3.12"): "python_version < '3.13'",
        ("3.13",): "python_version >= '3.13'",
        ("3.12",): "python_version == '3.12'",
    }
    where = "" if needing == list(target.pythons) else f" ; {only[tuple(needing)]}"
    return Pinned(f"{name}{sign}{version}{where}", tuple(sorted(files.items(), key=lambda pair: pair[1])), floor)


def check_build(target: Target, packages: list[dict[str, object]]) -> None:
    """Refuse a lock whose CUDA is not what its name says."""
    versions = {str(package["name"]): str(package["version"]) for package in packages}
    runtime = versions.get("nvidia-cuda-runtime") or versions.get("nvidia-cuda-runtime-cu12")
    build = "cpu" if runtime is None else "cu" + "".join(runtime.split(".")[:2])
    if build != target.build:
        raise SystemExit(
            f"vllm {target.version} on {target.machine}: what the index has is a build for {build}, not {target.build}"
        )


def write(target: Target) -> None:
    """Write one lock beside the others."""
    packages = resolve(target)
    check_build(target, packages)
    pinned = [one for package in packages if (one := pin(package, target)) is not None]
    name = f"{target.version}+{target.build}-{target.machine}"
    floor = ".".join(map(str, max(one.glibc for one in pinned)))
    head = (
        f"# made by tools/vllm_lock.py {name} on {datetime.now(UTC).date()}\n"
        f"# installs on: {target.machine}, glibc {floor}, Python {' '.join(target.pythons)}\n"
    )
    (FOLDER / f"{name}.lock").write_text(head + "\n".join(map(str, pinned)) + "\n")
    print(f"{name}: {len(pinned)} packages, glibc {floor}")


def main() -> None:
    """Write the locks that are named on the command line."""
    for argument in sys.argv[1:] or [""]:
        found = NAME.fullmatch(argument)
        if found is None:
            raise SystemExit(f"usage: {__doc__}")
        write(Target(found["version"], found["build"], found["machine"]))


if __name__ == "__main__":
    main()

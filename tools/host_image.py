"""The host image: Debian with systemd as PID 1, named after what goes into it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time

from podman import PODMAN, TOOLS, HostError, locked, podman, say

SOURCES = TOOLS / "image"
SUITES = {"12": "bookworm", "13": "trixie"}
PYTHON = {"12": "3.11", "13": "3.13"}  # Debian's own


def image_name(release: str) -> str:
    """Name the image after all that goes into it: changed sources make a new image."""
    digest = hashlib.sha256(f"{release} {os.environ.get('DEBIAN_MIRROR', '')}".encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.read_bytes())
    return f"localhost/vllm-doctor-host:{release}-{digest.hexdigest()[:12]}"


def ensure_image(release: str) -> str:
    """Build the host image unless it is there; return its name."""
    image = image_name(release)
    with locked(f"image-{release}"):
        if podman("image", "exists", image, check=False).returncode == 0:
            return image
        began = time.monotonic()
        say(f"building the Debian {release} host image {image}")
        with_mmdebstrap = shutil.which("mmdebstrap") is not None
        if (with_mmdebstrap and os.geteuid() == 0) or not build_from_registry(image, release, last=not with_mmdebstrap):
            build_with_mmdebstrap(image, SUITES[release])
        say(f"host image built in {time.monotonic() - began:.0f} s")
    return image


def build_with_mmdebstrap(image: str, suite: str) -> None:
    """Build from the Debian mirror: no container registry is asked."""
    packages = ",".join((SOURCES / "packages.txt").read_text().split())
    with tempfile.TemporaryDirectory(prefix="vllm-doctor-image-") as scratch:
        tar = f"{scratch}/root.tar"
        # systemd-modules-load cannot work in a container and would leave the host "degraded".
        mask = '--customize-hook=systemctl --root="$1" mask systemd-modules-load.service'
        mirror = [os.environ["DEBIAN_MIRROR"]] if os.environ.get("DEBIAN_MIRROR") else []
        command = ["mmdebstrap", "--variant=minbase", f"--include={packages}", mask, suite, tar, *mirror]
        if subprocess.run([str(TOOLS / "hosttest"), *command], stdin=subprocess.DEVNULL, check=False).returncode != 0:
            raise HostError(
                "mmdebstrap could not build the host image: see its messages above (is the mirror reachable?)"
            )
        # CMD as a JSON list: as a plain word podman would wrap it in a shell, and systemd would not be PID 1.
        changes = ["--change", 'CMD ["/sbin/init"]', "--change", "STOPSIGNAL SIGRTMIN+3"]
        podman("import", "--quiet", *changes, tar, image)


def build_from_registry(image: str, release: str, *, last: bool) -> bool:
    """Build from docker.io's Debian image, for machines without Debian's tools or without root."""
    command = [PODMAN, "build", "--build-arg", f"RELEASE={release}", "--tag", image, str(SOURCES)]
    built = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode == 0
    if last and not built:
        raise HostError(
            "podman build could not make the host image, see above: it needs docker.io; "
            "without that, install mmdebstrap and run make up again"
        )
    return built


def remove_images() -> None:
    """Remove the host images that no host uses any more."""
    listed = podman(
        "images", "--format", "{{.Repository}}:{{.Tag}}", "--filter", "reference=localhost/vllm-doctor-host"
    )
    for image in listed.stdout.split():
        done = podman("rmi", image, check=False)
        say(f"removed {image}" if done.returncode == 0 else f"kept {image}: a host still uses it")

"""The host image as an installed machine would have it: the CAs that this machine trusts, and fresh package lists.

On top of it, for hosts that are to have them from the start, one with packages of Debian.

Made once an hour instead of on each host, where it costs 4 s of a processor. Named after what goes into it.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from host_image import ensure_image, image_name
from podman import locked, podman, say

EXTRA_CAS = Path("/usr/local/share/ca-certificates")
FRESH_SECONDS = 3600  # an archive may remove what older lists name
# force-unsafe-io: else dpkg waits for the disk after each file, and a compiler takes 107 s instead of 37. Hosts are
# thrown away.
SCRIPT = """set -e
echo force-unsafe-io > /etc/dpkg/dpkg.cfg.d/throw-away-host
find /mnt -name "*.crt" -exec cp -t /usr/local/share/ca-certificates {} +
update-ca-certificates
apt-get update --quiet --error-on=any
"""


def ready_name(release: str) -> str:
    """Name the image after the one below it, the CAs and the script."""
    digest = hashlib.sha256(SCRIPT.encode())
    for certificate in sorted(EXTRA_CAS.glob("*.crt")):
        digest.update(certificate.read_bytes())
    return f"{image_name(release)}-ready-{digest.hexdigest()[:12]}"


def installed_name(release: str, packages: list[str]) -> str:
    """Name the image of hosts that come with these packages of Debian; the ready image itself without any."""
    if not packages:
        return ready_name(release)
    digest = hashlib.sha256(" ".join(sorted(packages)).encode())
    return f"{ready_name(release)}-with-{digest.hexdigest()[:12]}"


def ensure_installed_image(release: str, packages: list[str]) -> str:
    """Make it unless there is one on top of this hour's ready image; return its name. Raises HostError as that does.

    A compiler costs each host some ten seconds of a processor; scenarios that are not about that come with it.
    """
    below, image = ensure_ready_image(release), installed_name(release, packages)
    if not packages:
        return image
    with locked(f"ready-{release}"):
        made = podman("image", "inspect", "--format", "{{.Id}} {{.Parent}}", image, check=False)
        parent = podman("image", "inspect", "--format", "{{.Id}}", below).stdout.strip()
        old, _, on = made.stdout.strip().partition(" ") if made.returncode == 0 else ("", "", "")
        if on == parent:
            return image
        say(f"installing {' '.join(sorted(packages))} into {image}")
        install = 'DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends "$@"'
        commit(image, below, ["sh", "-ec", install, "sh", *sorted(packages)])
        if old:
            podman("rmi", old, check=False)  # stays as long as a host is made of it
    return image


def commit(image: str, below: str, command: list[str], *mounts: str) -> None:
    """Run a command in a container of the image below, and keep what it leaves as an image."""
    made_in = f"{image.rpartition('/')[2].replace(':', '-')}-being-made"
    podman("rm", "--force", "--time", "0", "--ignore", made_in)
    try:
        podman("run", "--name", made_in, "--privileged", "--network", "host", *mounts, below, *command)
        # CMD as a JSON list: as a plain word podman would wrap it in a shell, and systemd would not be PID 1.
        changes = ["--change", 'CMD ["/sbin/init"]', "--change", "STOPSIGNAL SIGRTMIN+3"]
        podman("commit", "--quiet", *changes, made_in, image)
    finally:
        podman("rm", "--force", "--time", "0", "--ignore", made_in)


def ensure_ready_image(release: str) -> str:
    """Make it unless there is one of this hour; return its name. Raises HostError where the archive does not answer."""
    below, image = ensure_image(release), ready_name(release)
    with locked(f"ready-{release}"):
        made = podman("image", "inspect", "--format", "{{.Id}} {{.Created.Unix}}", image, check=False)
        old, created = made.stdout.split() if made.returncode == 0 else ("", "0")
        if time.time() - int(created) < FRESH_SECONDS:
            return image
        say(f"reading the package lists of Debian {release} into {image}")
        mounts = ["--volume", f"{EXTRA_CAS}:/mnt:ro"] if EXTRA_CAS.is_dir() else []
        commit(image, below, ["sh", "-c", SCRIPT], *mounts)
        if old:
            podman("rmi", old, check=False)  # stays as long as a host is made of it
    return image

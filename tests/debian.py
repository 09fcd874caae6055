"""Programs of Debian's packages for tests, unpacked beside the checkout: no service is installed or started."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock

FOLDER = Path(__file__).parents[1] / ".cache" / "debian"
PACKAGES = {
    "promtool": "prometheus",
    "prometheus": "prometheus",
    "amtool": "prometheus-alertmanager",
    "prometheus-alertmanager": "prometheus-alertmanager",
}


def program(name: str) -> str:
    """Its path: the host's own, else of the package; skips the test where apt-get cannot bring that."""
    found = shutil.which(name)
    if found:
        return found
    place = FOLDER / PACKAGES[name]
    FOLDER.mkdir(parents=True, exist_ok=True)
    with FileLock(FOLDER / f"{PACKAGES[name]}.lock"):  # another worker of this run may want it at the same time
        if not (place / "usr/bin" / name).exists():
            _unpack(PACKAGES[name], place)
    return str(place / "usr/bin" / name)


def command(name: str) -> list[str]:
    """The words that start it; one of an unpacked package sees that package's /usr/share, in a namespace of its own."""
    path = program(name)
    if not path.startswith(str(FOLDER)):
        return [path]
    share = FOLDER / PACKAGES[name] / "usr/share"
    mount = f"mount -t overlay overlay -o lowerdir={share}:/usr/share /usr/share"
    words = ["unshare", "--mount", "--map-root-user", "bash", "-c", f'{mount} && exec "$0" "$@"']
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"{PACKAGES[name]} is not installed here, and nobody may mount its /usr/share in a namespace")
    return [*words, path]


def _unpack(package: str, place: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip(f"{package} is not installed here, and there is no apt-get to fetch it with")
    place.mkdir(parents=True, exist_ok=True)
    got = subprocess.run(["apt-get", "download", package], cwd=place, capture_output=True, text=True, check=False)
    files = sorted(place.glob(f"{package}_*.deb"))
    if got.returncode or not files:
        pytest.skip(f"{package} is not installed here, and apt-get cannot fetch it: {got.stderr.strip()[-200:]}")
    subprocess.run(["dpkg-deb", "-x", str(files[-1]), str(place)], check=True)
    files[-1].unlink()

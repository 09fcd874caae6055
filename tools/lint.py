#!/usr/bin/env python3
"""make lint: every static check, side by side. `tools/lint.py NAME...` runs some; pre-commit runs each by its name."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
BIN = REPO / ".venv" / "bin"

CHECKS = {
    "ansible-lint": ["python", "tools/ansible_lint.py", "--offline", "--strict", "-q"],
    "mypy": ["mypy", "--strict", "vllm_doctor"],
    "mypy-tools": ["mypy", "--strict", "--explicit-package-bases", "tools"],
    "mypy-roles": ["mypy", "--strict", "--explicit-package-bases"],
    "ruff": ["ruff", "check", "--quiet", "--output-format", "concise"],
    "ruff-format": ["ruff", "format", "--check", "--output-format", "concise"],
    "yamllint": ["yamllint", "--strict", "."],
    "role-docs": ["python", "tools/role_docs.py", "--check"],
    "template-docs": ["python", "tools/template_docs.py", "--check"],
    "alert-docs": ["python", "tools/alert_docs.py", "--check"],
    "shellcheck": ["shellcheck"],
    "doc-site": ["python", "tools/doc_site.py"],
    "advisories": ["python", "tools/audit.py", "--own"],
}
NOT_CHECKED = 3


def tracked(*patterns: str) -> list[str]:
    """List the tracked files that are there, by git's patterns; links are left out."""
    names = subprocess.run(
        ["git", "ls-files", "--", *patterns], cwd=REPO, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [name for name in names if (REPO / name).is_file() and not (REPO / name).is_symlink()]


def shell_scripts() -> list[str]:
    """List the tracked scripts for sh and bash, by their first line."""
    scripts = []
    for name in tracked():
        with (REPO / name).open("rb") as handle:
            if handle.readline().startswith((b"#!/bin/sh", b"#!/bin/bash", b"#!/usr/bin/env bash")):
                scripts.append(name)
    return scripts


def role_sources() -> list[str]:
    """List the Python of the roles without that of their test scenarios: modules, plugins, and what hosts run."""
    return tracked("plugins/*.py", "roles/*.py", ":!roles/*/molecule/*")


FILES = {"shellcheck": shell_scripts, "mypy-roles": role_sources}


def run(name: str) -> tuple[str, int, str, float]:
    """Run one check; return its name, exit status, output and seconds."""
    program, *arguments = CHECKS[name]
    if name in FILES:
        arguments += FILES[name]()
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "NO_COLOR": "1"}
    began = time.monotonic()
    done = subprocess.run(
        [str(BIN / program), *arguments],
        cwd=REPO,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return name, done.returncode, done.stdout, time.monotonic() - began


def main(names: list[str]) -> int:
    """Run the named checks, or all."""
    if unknown := set(names) - CHECKS.keys():
        print(
            f"tools/lint.py: no check called {', '.join(sorted(unknown))}; there are {', '.join(CHECKS)}",
            file=sys.stderr,
        )
        return 2
    failed = 0
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for name, code, output, seconds in pool.map(run, names or CHECKS):
            if code == NOT_CHECKED and name == "advisories":
                print(f"----  lint {name} ({seconds:.0f} s): {output.strip()}", flush=True)
                continue
            print(f"{'pass' if code == 0 else 'FAIL'}  lint {name} ({seconds:.0f} s)", flush=True)
            if code != 0:
                failed += 1
                print(output, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

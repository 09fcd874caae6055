#!/usr/bin/env python3
"""make up: from nothing to a served and diagnosed model on a systemd host on this machine.

All checks come first; nothing is installed or built before they pass. Every step may be repeated: an interrupted
run is simply started again, and a second run changes nothing. SANDBOX names the host, PORT where it answers.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
import urllib.request
from http.client import HTTPException

import host
import machine
from host_image import ensure_image
from podman import PODMAN, REPO, TOOLS, HostError, podman

SANDBOX = os.environ.get("SANDBOX") or "sandbox"
PORT = os.environ.get("PORT") or "8000"
DISK_GIB, MEMORY_GIB = 8, 5
STEPS = 6


def step(number: int, text: str) -> None:
    """Announce a step."""
    print(f"[{number}/{STEPS}] {text}", flush=True)


def checked(command: list[str]) -> None:
    """Run a step that shows its own progress; stop where it failed."""
    if (code := subprocess.run(command, cwd=REPO, check=False).returncode) != 0:
        raise SystemExit(code)


def prepare(*, disk_gib: float, memory_gib: float, port: int | None) -> None:
    """Check the machine, install what is missing, make .venv."""
    step(1, "checking this machine")
    if found := machine.problems(port, SANDBOX, disk_gib=disk_gib, memory_gib=memory_gib):
        for problem in found:
            print(f"cannot start: {problem}", file=sys.stderr)
        raise SystemExit(2)
    machine.install_missing()
    step(2, "the environment: .venv")
    checked([sys.executable, str(TOOLS / "make_venv.py")])


def provision() -> int:
    """Run site.yml against the host; return how many tasks changed something."""
    playbook = [
        str(TOOLS / "hosttest"),
        "ansible-playbook",
        "site.yml",
        *shlex.split(os.environ.get("ANSIBLE_ARGS", "")),
    ]
    environment = {**os.environ, "SANDBOX": SANDBOX, "PYTHONUNBUFFERED": "1"}
    if sys.stdout.isatty():
        environment["ANSIBLE_FORCE_COLOR"] = "1"
    changed = 0
    with subprocess.Popen(
        playbook, cwd=REPO, env=environment, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as run:
        for line in run.stdout or ():
            print(line, end="", flush=True)
            changed += sum(int(count) for count in re.findall(r"\bchanged=(\d+)", line))
    if run.returncode != 0:
        print(
            "the playbook failed, see above; the host is still there: run make up again, or make down", file=sys.stderr
        )
        raise SystemExit(run.returncode)
    return changed


def ask_what_is_served(port: str, name: str) -> str:
    """Get the name of the model from the API itself, as a client sees it; HostError says why there is none.

    What publishes the port (podman's rules in the kernel's tables) is lost when something else rewrites these tables,
    a firewall's reload for one: podman makes them again when asked, so it is asked once.
    """
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy does not reach this machine
    address, why = f"http://127.0.0.1:{port}/v1/models", ""
    for again in (False, True):
        if again:
            podman("network", "reload", name, check=False)
        try:
            with direct.open(address, timeout=10) as answer:
                return str(json.load(answer)["data"][0]["id"])
        except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
            why = str(error) or type(error).__name__
    health = "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=10)"
    inside = podman("exec", name, "python3", "-c", health, check=False)
    if inside.returncode == 0:
        raise HostError(
            f"{address} gave no model: {why}. The service in {name} answers, but port {port} of this machine does not "
            "reach it. Run make down, then make up, which publishes the port anew"
        )
    raise HostError(
        f"{address} gave no model: {why}. The service in {name} does not answer either; what vllm-doctor found is above"
    )


def main(argv: list[str]) -> int:
    """Do the six steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only-prepare", action="store_true", help="stop before the sandbox: checks, packages, .venv")
    options = parser.parse_args(argv)
    if not PORT.isdigit() or not 0 < int(PORT) < 65536:
        print(
            f"cannot start: PORT={PORT} is not a port; choose 1024 to 65535, as in make up PORT=8001", file=sys.stderr
        )
        return 2
    began = time.monotonic()
    prepare(disk_gib=DISK_GIB, memory_gib=MEMORY_GIB, port=None if options.only_prepare else int(PORT))
    if options.only_prepare:
        return 0
    try:
        step(3, "the host image")
        ensure_image("12")
        step(4, "the host")
        name = host.up(SANDBOX, None, argparse.Namespace(release="12", has=[], publish=[f"{PORT}:8000"], volume=[]))
    except HostError as error:
        print(f"make up: {error}", file=sys.stderr)
        return 1
    step(5, "ansible-playbook site.yml (the first run installs vLLM: minutes)")
    changed = provision()
    step(6, f"vllm-doctor diagnose, on {name}")
    diagnosis = subprocess.run([PODMAN, "exec", name, "vllm-doctor", "diagnose"], check=False).returncode
    try:
        model = ask_what_is_served(PORT, name)
    except HostError as error:
        print(f"make up: {error}", file=sys.stderr)
        return diagnosis or 1
    what = f"{changed} tasks changed something" if changed else "nothing changed: everything was as it should be"
    body = json.dumps({"model": model, "prompt": "Hello", "max_tokens": 8})
    print(f"\n{what} ({time.monotonic() - began:.0f} s)")
    print(f"{model} is served at http://127.0.0.1:{PORT}/v1 - try:")
    print(f"  curl -s http://127.0.0.1:{PORT}/v1/completions -H 'Content-Type: application/json' -d '{body}'")
    return diagnosis


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print(
            "\ninterrupted: run make up again, it takes up from here; make down removes what is there", file=sys.stderr
        )
        sys.exit(130)

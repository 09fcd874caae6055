"""A sandbox of our own: `make up` under the name in SANDBOX, and `make down` at the end.

`make test` sets SANDBOX=test. By hand: SANDBOX=mine tools/hosttest .venv/bin/pytest tests/sandbox/make_up
(SANDBOX_KEEP=1 leaves it running). Without SANDBOX nothing here runs, and pytest says so.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[3]
PODMAN = str(REPO / "tools" / "bin" / "podman")
# A make under `make test` would end with a line about directories, after the line that a person is to try.
MAKE = ("make", "--no-print-directory")


@dataclass(frozen=True)
class Run:
    """How a command ended, what it printed, and how many seconds it took."""

    code: int
    output: str
    seconds: float


def execute(*command: str, **settings: str) -> Run:
    """Run a command in the repository, both streams together as a person sees them."""
    began = time.monotonic()
    done = subprocess.run(
        command,
        cwd=REPO,
        env={**os.environ, **settings},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return Run(done.returncode, done.stdout, time.monotonic() - began)


@dataclass(frozen=True)
class Sandbox:
    """The host that make up started."""

    name: str
    port: int
    container: str
    first_up: Run

    def make(self, target: str) -> Run:
        """Run make TARGET for this sandbox."""
        return execute(*MAKE, target, f"PYTHON={sys.executable}", SANDBOX=self.name, PORT=str(self.port))

    def site(self, **variables: object) -> Run:
        """Run site.yml, as a person does who has just edited these variables of the inventory."""
        extra = ["--extra-vars", json.dumps(variables)] if variables else []
        return execute("ansible-playbook", "site.yml", *extra, SANDBOX=self.name)

    def site_check(self) -> Run:
        """Run site.yml --check --diff: the plan."""
        return execute("ansible-playbook", "site.yml", "--check", "--diff", SANDBOX=self.name)

    def run(self, *command: str) -> Run:
        """Run a command on the host as root."""
        return execute(PODMAN, "exec", self.container, *command)

    def complete(self, prompt: str = "Hello", max_tokens: int = 4) -> str:
        """Ask the served model through the published port; return its text."""
        address = f"http://127.0.0.1:{self.port}/v1"
        with urllib.request.urlopen(f"{address}/models", timeout=300) as answer:
            model = json.load(answer)["data"][0]["id"]
        wanted = {"model": model, "prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True}
        body = json.dumps(wanted).encode()
        request = urllib.request.Request(f"{address}/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return str(json.load(answer)["choices"][0]["text"])


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    name = os.environ.get("SANDBOX")
    if not name:
        pytest.skip(
            "needs a sandbox host: make test, or SANDBOX=mine tools/hosttest .venv/bin/pytest tests/sandbox/make_up"
        )
    port = int(os.environ.get("PORT") or 8000)
    first = execute(*MAKE, "up", f"PYTHON={sys.executable}", SANDBOX=name, PORT=str(port))
    container = execute(str(REPO / "tools" / "host.py"), "name", name).output.strip()
    try:
        assert first.code == 0, f"make up failed:\n{first.output}"
        os.environ["SANDBOX_AS_IT_IS"] = "1"  # it stands: the tests that break it need not make it once more
        if not os.environ.get("SANDBOX_KEEP"):
            os.environ["SANDBOX_GOES"] = "1"  # nobody uses what they leave
        yield Sandbox(name, port, container, first)
    finally:
        if not os.environ.get("SANDBOX_KEEP"):
            execute(*MAKE, "down", f"PYTHON={sys.executable}", SANDBOX=name)

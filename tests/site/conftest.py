"""Three simulated GPU hosts, a checkout as a stranger has it, and his copy of the example inventory. See README.md."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.plan.models import LLAMA_8B as LLAMA
from tests.site import newcomer
from tests.stub_vllm.build import build as build_release

REPO = Path(__file__).parents[2]
TOOLS = REPO / "tools"
BIN = REPO / ".venv" / "bin"
GIB = 1 << 30
RELEASE = "0.32.0+cu130"
SMALL = LLAMA | {"hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24}
MODELS = [
    {"name": "Llama-3.1-8B-Instruct", "config.json": LLAMA, "bytes": 16060522496},
    {
        "name": "Llama-3.2-3B-Instruct",
        "config.json": SMALL | {"head_dim": 128, "tie_word_embeddings": True},
        "bytes": 6425499648,
    },
]


def cards(count: int, name: str, total: int, capability: str) -> str:
    """What NVML shows of so many cards of one kind."""
    lines = ["nvml = 13.580", "cuda = 13000"]
    for index in range(count):
        card = {
            "name": name,
            "uuid": f"GPU-{index:08d}-2222-3333-4444-555555555555",
            "pci": f"00000000:{index + 1:02X}:00.0",
            "total": total,
            "free": total - 600 * (1 << 20),
            "reserved": 560 * (1 << 20),
            "capability": capability,
            "ecc_mode": "1 1",
            "ecc.volatile.uncorrected": 0,
            "ecc.aggregate.uncorrected": 0,
            "remap": "0 0 0 0",
            "mig_mode": "0 0",
            "compute_mode": 0,
            "persistence": 1,
            "pcie.width": 16,
            "pcie.width_max": 16,
            "clocks_event_reasons": "0x1",
            "temperature": 35,
            "field.230": 0,
        }
        lines += [f"gpu.{index}.{key} = {value}" for key, value in card.items()]
    return "\n".join(lines) + "\n"


# The machines: PCI ids of the cards and switches, and what the driver will say of them.
MACHINES = {
    "gpu01": {
        "stub_gpus": ["2330"] * 8,
        "stub_switches": ["22a3"] * 4,
        "nvml": cards(8, "NVIDIA H100 80GB HBM3", 85520809984, "9.0"),
    },
    "edge01": {"stub_gpus": ["26b9"] * 2, "nvml": cards(2, "NVIDIA L40S", 48305799168, "8.9")},
    "edge02": {"stub_gpus": ["2236"], "nvml": cards(1, "NVIDIA A10", 24146608128, "8.6")},
}


@dataclass(frozen=True)
class Run:
    """One run of ansible-playbook: its exit code, what a person saw, and the recap by host."""

    rc: int
    text: str

    @property
    def recap(self) -> dict[str, dict[str, int]]:
        """{host: {ok: n, changed: n, …}}."""
        rows = re.findall(r"^(\S+)\s+: (ok=.*)$", self.text.split("PLAY RECAP")[-1], re.MULTILINE)
        return {host.split(".")[0]: {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", counts)} for host, counts in rows}

    def changed(self, task: str = "") -> list[str]:
        """Hosts that a task with these words in its name changed; any task without words."""
        blocks = re.split(r"^(?=TASK \[)", self.text, flags=re.MULTILINE)
        found = [
            re.findall(r"^changed: \[(\w+)", block, re.MULTILINE) for block in blocks if task in block.split("]")[0]
        ]
        return sorted({host for hosts in found for host in hosts})

    def names(self) -> list[str]:
        """The tasks that ran, in order."""
        return re.findall(r"^TASK \[(.*?)\] \*", self.text, re.MULTILINE)


@dataclass
class Site:
    """The checkout, the inventory and the hosts."""

    checkout: Path
    inventory: Path
    prefix: str
    logs: Path
    count: int = 0

    def play(self, *words: str, playbook: str = "site.yml") -> Run:
        """`.venv/bin/ansible-playbook -i inventories/mine PLAYBOOK` in the checkout, as README says."""
        command = [
            ".venv/bin/ansible-playbook",
            "-i",
            "inventories/mine",
            playbook,
            "--vault-password-file",
            ".vault-password",
            *words,
        ]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("ANSIBLE_", "PIP_", "UV_"))}
        self.count += 1
        log = self.logs / f"{self.count:02d}.log"  # written as it goes, for who watches
        with log.open("w") as output:
            print(*command, file=output, flush=True)
            done = subprocess.run(
                command,
                cwd=self.checkout,
                env={**environment, "ANSIBLE_NOCOLOR": "1"},
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        text = log.read_text(errors="replace")
        return Run(done.returncode, text)

    def on(self, host: str, script: str) -> str:
        """A shell script on a host, as root; its output."""
        command = [
            str(TOOLS / "bin" / "podman"),
            "exec",
            "-i",
            f"{self.prefix}-site-{host}",
            "bash",
            "-euo",
            "pipefail",
            "-s",
        ]
        done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{host}: {script}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    def line(self, file: str, old: str, new: str) -> None:
        """Change one line of the inventory."""
        newcomer.set_line(self.inventory / file, old, new)


def copied(folder: Path) -> Path:
    """The files that git knows, as in a fresh clone; of the locks, those of CUDA builds name the stand-in's wheels."""
    checkout = folder / "vllm-doctor"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=REPO, capture_output=True, check=True
    )
    for name in listed.stdout.decode().split("\0"):
        if name and ((REPO / name).is_file() or (REPO / name).is_symlink()):
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPO / name, checkout / name, follow_symlinks=False)
    (checkout / ".venv").symlink_to(REPO / ".venv")
    (checkout / ".cache").symlink_to(REPO / ".cache")  # where the connection finds the hosts' processes
    return checkout


# What a vendor's image may have already; without it a host has all of it to install.
COMPILER = ["gcc", "g++", "libc6-dev", "python3-dev", "libnuma1", "numactl"]
COMES_WITH: dict[str, list[str]] = {"gpu01": COMPILER, "edge01": COMPILER, "edge02": []}
WITHOUT_ARCHIVE = {"gpu01"}  # Debian's 60,000 packages cost each question to apt half a second


def booted(wheels: Path, name: str) -> None:
    """A host that sees the wheels as it would see a folder of its own."""
    environment = {**os.environ, "PIP_FIND_LINKS": f"{os.environ.get('PIP_FIND_LINKS', '')} {wheels}".strip()}
    has = [f"--has={package}" for package in COMES_WITH[name]]
    subprocess.run([sys.executable, TOOLS / "host.py", "up", "site", name, *has], env=environment, check=True)


@pytest.fixture(scope="session")
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """Everything as a stranger has it before his first run; the hosts stay where a test failed.

    SITE_AS_IT_IS=1 goes on with the hosts that are there, and leaves them.
    """
    folder = REPO / ".cache" / "site"
    program = "import host; print(host.PREFIX)"
    told = subprocess.run([sys.executable, "-c", program], cwd=TOOLS, capture_output=True, text=True, check=True)
    prefix = told.stdout.strip()
    as_it_is = os.environ.get("SITE_AS_IT_IS") == "1"
    if not as_it_is:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, TOOLS / "host.py", "down", "site"], check=True)
    wheels, logs = folder / "wheels", folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "vllm-doctor", ignore_errors=True)
    checkout = copied(folder)
    shutil.copy(build_release(wheels, RELEASE), checkout / "roles" / "vllm" / "files" / "locks")
    if not as_it_is:
        for name in MACHINES:
            booted(wheels, name)
        prepared(folder, prefix)
    mine = newcomer.inventory(checkout, BIN, repo=REPO, prefix=prefix)
    yield Site(checkout, mine, prefix, logs)
    if not as_it_is and not request.session.testsfailed:
        subprocess.run([sys.executable, TOOLS / "host.py", "down", "site"], check=True)


def prepared(folder: Path, prefix: str) -> None:
    """Make the hosts what MACHINES says."""
    index = {model["name"]: {"metadata": {"total_size": model["bytes"]}, "weight_map": {}} for model in MODELS}
    models = [{**model, "model.safetensors.index.json": index[model["name"]]} for model in MODELS]
    common = {
        "site_reports": "",
        "ansible_connection": "podman_pipelined",
        "ansible_podman_executable": str(TOOLS / "bin" / "podman"),
        "models": models,
        "stub_versions": "580.65.06 580.105.08",
    }
    hosts = {
        name: {**machine, "ansible_host": f"{prefix}-site-{name}", "archive": name not in WITHOUT_ARCHIVE}
        for name, machine in MACHINES.items()
    }
    inventory = folder / "machines.yml"
    inventory.write_text(yaml.safe_dump({"all": {"vars": common, "hosts": hosts}}))
    done = subprocess.run(
        [BIN / "ansible-playbook", "-i", inventory, REPO / "tests" / "site" / "prepare.yml"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def verdict(site: Site, host: str) -> dict[str, object]:
    """What the doctor says on a host."""
    return dict(json.loads(site.on(host, "vllm-doctor diagnose --format json || true")))


__all__ = ["Run", "Site", "verdict"]

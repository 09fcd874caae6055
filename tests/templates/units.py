"""The units that templates render: composed as the role composes them (roles/vllm/filter_plugins/vllm_units.py)."""

from functools import cache
from itertools import pairwise
from pathlib import Path

import jinja2

from tests.roles.vllm.plugins import load
from vllm_doctor.launch.unit_text import read_unit

ROOT = Path(__file__).resolve().parents[2]
BEHAVIOURS = sorted(p.name.removesuffix(".service.j2") for p in (ROOT / "templates/gpu").glob("*.service.j2"))
NVIDIA = [c for c in BEHAVIOURS if c != "cpu"]
# 0.11.0: V1 alone, attention backend by variable. 0.19.1: V100's last, CUDA 12. 0.33.0: the newest that was read.
VERSIONS = ("0.11.0", "0.19.1", "0.33.0")
known = load("plugins/filter/vllm_units.py").known
PLANNED = {
    "host": "127.0.0.1",
    "port": 8000,
    "max-model-len": 8192,
    "max-num-seqs": 128,
    "max-num-batched-tokens": 8192,
    "gpu-memory-utilization": 0.9,
}


def unit(card: str, version: str, gpus: tuple[str, ...] = (), **changes: object) -> dict[str, object]:
    """The variable `unit` of templates/README.md, with the plan's numbers filled in."""
    return {
        "instance": "main",
        "name": "vllm@main",
        "template": card,
        "version": version,
        "release": f"{version}+cu130-0123abcd",
        "user": "vllm",
        "group": "vllm",
        "state_directory": "vllm/main",
        "executable": "/opt/vllm/current/bin/vllm",
        "model": "/var/lib/models/llama",
        "offline": True,
        "gpus": list(gpus),
        "cuda_home": "",
        "cuda_compat": "",
        "numa_nodes": [],
        "arguments": PLANNED,
        "environment": {},
        "loopback": True,
        "secrets_file": "",
        "guard": None,
        "accepted_open": False,
        "credentials": {},
        "restart_sec": 10,
        "timeout_stop_sec": 60,
        "start_limit_burst": 3,
        "start_limit_interval": 2100,
        "memory_max": "",
        **changes,
    }


def render(card: str, version: str, gpus: tuple[str, ...] = (), **changes: object) -> str:
    """The unit's text, rendered as Ansible renders it."""
    return _template().render(unit=known(unit(card, version, gpus, **changes)))


@cache
def _template() -> jinja2.Template:
    loader = jinja2.FileSystemLoader(ROOT / "templates")
    strict = jinja2.StrictUndefined
    env = jinja2.Environment(loader=loader, trim_blocks=True, keep_trailing_newline=True, undefined=strict)  # noqa: S701
    return env.get_template("unit.service.j2")


def command(text: str) -> list[str]:
    """ExecStart's words, as a service without variables gets them."""
    return [word.replace("$$", "$") for word in read_unit(text).words]


def arguments(text: str) -> dict[str, str]:
    """Flags of ExecStart with their value; empty for a switch."""
    words = [*command(text), "--"]
    return {
        word[2:]: "" if after.startswith("--") else after
        for word, after in pairwise(words)
        if word.startswith("--") and word != "--"
    }


def environment(text: str) -> dict[str, str]:
    """The variables that Environment= lines set."""
    return read_unit(text).env

"""The example inventory on machines that no test host can be: an ARM server by its answers alone."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from tests.playbook import play

REPOSITORY = Path(__file__).resolve().parents[2]
# What the judge says of hosts that nobody has: their answers are given, everything else is site.yml's own way.
PLAY: list[dict[str, object]] = [
    {
        "hosts": "vllm",
        "gather_facts": False,
        "tasks": [
            {"set_fact": {"preflight_host": "{{ {'facts': by_facts, 'run': by_run} }}"}},
            {"include_role": {"name": "vllm_doctor.hosts.preflight", "tasks_from": "variables"}},
            {"vllm_doctor.hosts.preflight_judge": {"stage": "facts"}, "run_once": True},
        ],
    }
]
GH200: dict[str, object] = {
    "root": True,
    "gpus": ["2342"],
    "gpu_addresses": ["0009:01:00.0"],
    "switches": [],
    "kernel": {
        "running": "6.8.0-1024-nvidia-64k",
        "default": "6.8.0-1024-nvidia-64k",
        "installed": ["6.8.0-1024-nvidia-64k"],
        "headers": {"6.8.0-1024-nvidia-64k": "installed"},
    },
    "secure_boot": {"enabled": False, "key_enrolled": None},
    "driver": {"loaded": None, "flavour": None, "on_disk": None, "library": None, "nouveau": False},
    "repositories": [],
    "packages": [],
    "fabric_manager_candidates": None,
    "disk": [
        {"path": "/opt/vllm", "free_gib": 900.0, "filesystem": "1"},
        {"path": "/var/lib/vllm-models", "free_gib": 900.0, "filesystem": "1"},
    ],
    "memory_gib": 480.0,
    "listening": [],
    "models": {},
    "platform": "ubuntu-24.04",
    "machine": "aarch64",
    "glibc": "2.39",
    "python": "3.12.3",
}


@cache
def vault() -> str:
    """The example's vault with a key, under a password of ours."""
    with TemporaryDirectory() as folder:
        path, password = Path(folder) / "vault.yml", Path(folder) / "password"
        path.write_text("vault_vllm_api_key: a-long-random-key\n")
        password.write_text("of-the-vault")
        encrypt = [Path(sys.executable).with_name("ansible-vault"), "encrypt", "--vault-password-file", password, path]
        subprocess.run(encrypt, check=True, capture_output=True)
        return path.read_text()


def judged(
    folder: Path,
    facts: dict[str, object],
    *names: str,
    others: dict[str, dict[str, object]] | None = None,
    run: dict[str, object] | None = None,
    words: tuple[str, ...] = (),
) -> str:
    """What a person sees of the example inventory, with this one host, or its names, in a group of its own.

    `others` are more hosts, by what they say; `run` is what the host says of other runs, `words` are more words of the
    command line.
    """
    shutil.copytree(REPOSITORY / "inventories" / "example", folder / "mine")
    for name in ("host_vars/gpu04.example.net.yml", "group_vars/h100.yml", "group_vars/l4.yml"):
        (folder / "mine" / name).unlink()
    hosts = {
        "vllm": {
            "vars": {"site_reports": ""},
            "children": {
                "gh200": {
                    "hosts": {
                        name: {"by_facts": told, "by_run": run or {}}
                        for name, told in {**dict.fromkeys(names or ("grace01",), facts), **(others or {})}.items()
                    }
                }
            },
        }
    }
    (folder / "mine" / "hosts.yml").write_text(yaml.safe_dump(hosts))
    own = {"preflight_gpus": ["NVIDIA GH200 480GB"], "vllm_unit_template": "gh200", "vllm_max_model_len": 32768}
    (folder / "mine" / "group_vars" / "gh200.yml").write_text(yaml.safe_dump(own))
    password = folder / "password"
    password.write_text("of-the-vault")
    (folder / "mine" / "group_vars" / "vllm" / "vault.yml").write_text(vault())
    (folder / "play.yml").write_text(yaml.safe_dump(PLAY))
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg")}
    given = ["-i", folder / "mine", folder / "play.yml", "--vault-password-file", password, "-v", *words]
    done = play(given, env=environment)
    return done.stdout + done.stderr


def test_an_arm_server_passes_with_the_example_inventory(tmp_path: Path) -> None:
    said = judged(tmp_path, GH200)
    assert "1 hosts judged, none refused." in said, said


def test_an_arm_server_that_cannot_is_refused(tmp_path: Path) -> None:
    told = judged(tmp_path, GH200, others={"user": GH200 | {"root": False}, "riscv": GH200 | {"machine": "riscv64"}})
    said = " ".join(told.split())
    assert "2 of 3 hosts refused" in said, said
    assert "set ansible_become: true" in said
    assert "riscv64" in said


def test_two_names_of_one_machine_are_refused(tmp_path: Path) -> None:
    said = " ".join(judged(tmp_path, GH200 | {"boot": "0123456789abcdef"}, "grace01", "grace02").split())
    assert "1 of 2 hosts refused" in said, said
    assert "grace02 leads to the machine that grace01 is" in said


def test_what_cannot_tell_its_boot_is_no_second_name(tmp_path: Path) -> None:
    assert "2 hosts judged, none refused." in judged(tmp_path, GH200 | {"boot": None}, "grace01", "grace02")

"""The variables stage of the role, run by ansible-playbook itself, on hosts that do not exist."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
PLAY = """
- hosts: all
  gather_facts: false
  vars:
    preflight_today: "2026-11-21"
  tasks:
    - ansible.builtin.import_role: {name: preflight, tasks_from: variables.yml}
"""

# host: (its variables, the check that must refuse it, a part of what it says)
BAD: dict[str, tuple[dict[str, object], str, str]] = {
    "typo": ({"nvidia_driver_verison": "580.105.08"}, "variable name", "write nvidia_driver_version"),
    "boolean": ({"nvidia_driver_enabled": "yes"}, "variable type", "write true without quotes"),
    "choice": ({"nvidia_driver_flavour": "opne"}, "variable type", "write open"),
    "no-release": (
        {"vllm_version": "0.33.9", "vllm_variant": "auto"},
        "wheel's CUDA x driver",
        "0.33.9 does not exist",
    ),
    "old-driver": (
        {"vllm_version": "0.33.0", "vllm_variant": "auto", "nvidia_driver_version": "570.124.06"},
        "wheel's CUDA x driver",
        "driver 580.65.06 or newer",
    ),
    "no-version": ({"nvidia_driver_version": "580"}, "driver version", "an exact version"),
    "two-branches": ({"nvidia_driver_branch": "595"}, "contradictory pins", "one branch"),
    "gpu-name": ({"preflight_gpus": ["NVIDIA H100 80GB HBM"]}, "GPU name", "NVIDIA H100 80GB HBM3"),
    "volta": (
        {"preflight_gpus": ["Tesla V100-SXM2-32GB"], "nvidia_driver_version": "595.71.05"},
        "driver branch x GPU",
        "branch 580 or older",
    ),
    "shadow": ({"vllm_extra_args": {"max-model-len": 4096}}, "extra argument", "set vllm_max_model_len instead"),
    "secret": ({"vllm_api_key": "not-in-a-vault"}, "secret in plain text", "ansible-vault"),
}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("inventory")
    (folder / "play.yml").write_text(PLAY)
    (folder / "host_vars").mkdir()
    fine = {"nvidia_driver_enabled": True, "vllm_version": "0.33.0", "vllm_variant": "auto"}
    hosts = {"fine": fine, **{name: {**fine, **case[0]} for name, case in BAD.items()}}
    for name, values in hosts.items():
        (folder / "host_vars" / f"{name}.yml").write_text(yaml.safe_dump(values))
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": dict.fromkeys(hosts, None)}}))
    playbook = shutil.which("ansible-playbook", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert playbook is not None
    done = subprocess.run(
        [playbook, "-i", folder / "hosts.yml", folder / "play.yml"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "ANSIBLE_ROLES_PATH": str(REPOSITORY / "roles"),
            "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
        },
    )
    answer = json.loads(done.stdout)
    results = [host for task in answer["plays"][0]["tasks"] for host in task["hosts"].values() if "rows" in host]
    assert len(results) == 1, "one table, one failure"
    return {"result": results[0], "text": done.stdout, "stats": answer["stats"]}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(verdicts: dict[str, object], name: str) -> None:
    _, check, says = BAD[name]
    rows = [row for row in verdicts["result"]["rows"] if row["host"] == name and row["verdict"] == "fail"]  # type: ignore[index]
    assert rows[0]["check"] == check
    assert says in f"{rows[0]['found']} {rows[0]['needed']} {rows[0]['action']}"


@pytest.mark.parametrize("name", ["typo", "boolean", "choice", "shadow", "secret"])
def test_the_line_to_change_is_named(verdicts: dict[str, object], name: str) -> None:
    (row,) = [row for row in verdicts["result"]["rows"] if row["host"] == name and row["verdict"] == "fail"]  # type: ignore[index]
    variable = next(iter(BAD[name][0]))
    lines = yaml.safe_dump(
        {"nvidia_driver_enabled": True, "vllm_version": "0.33.0", "vllm_variant": "auto", **BAD[name][0]}
    )
    number = next(i for i, line in enumerate(lines.splitlines(), 1) if line.startswith(variable))
    assert row["action"].startswith(f"host_vars/{name}.yml:{number}: ")


def test_a_good_host_beside_them_has_no_complaint(verdicts: dict[str, object]) -> None:
    rows = [row for row in verdicts["result"]["rows"] if row["host"] == "fine"]  # type: ignore[index]
    assert [row for row in rows if row["verdict"] == "fail"] == []


def test_one_table_counts_the_hosts(verdicts: dict[str, object]) -> None:
    message = verdicts["result"]["msg"]  # type: ignore[index]
    assert f"{len(BAD)} of {len(BAD) + 1} hosts refused; nothing was changed on any host." in message


def test_the_secret_is_not_shown(verdicts: dict[str, object]) -> None:
    assert "not-in-a-vault" not in str(verdicts["text"])

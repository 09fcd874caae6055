"""The variables stage of the role, run by ansible-playbook itself, on hosts that do not exist."""

import json
import os
from pathlib import Path

import pytest
import yaml

from tests.plan.models import LLAMA_8B
from tests.playbook import play

REPOSITORY = Path(__file__).resolve().parents[2]
PLAY = """
- hosts: all
  gather_facts: false
  vars:
    preflight_today: "2026-11-21"
  tasks:
    - ansible.builtin.import_role: {name: vllm_doctor.hosts.preflight, tasks_from: variables.yml}
"""

FINE = {"nvidia_driver_enabled": True, "vllm_version": "0.32.0", "vllm_variant": "auto"}
# host: (its variables, the check that must refuse it, a part of what it says)
BAD: dict[str, tuple[dict[str, object], str, str]] = {
    "typo": ({"nvidia_driver_verison": "580.105.08"}, "variable name", "write nvidia_driver_version"),
    "boolean": ({"nvidia_driver_enabled": "yes"}, "variable type", "write true without quotes"),
    "choice": ({"nvidia_driver_flavour": "opne"}, "variable type", "write open"),
    "no-release": (
        {"vllm_version": "0.31.9", "vllm_variant": "auto"},
        "vLLM release",
        "0.31.9 does not exist",
    ),
    "no-cpu-release": (
        {"vllm_version": "0.31.9", "vllm_variant": "cpu", "nvidia_driver_enabled": False},
        "vLLM release",
        "set vllm_version: 0.31.0",
    ),
    "no-driver": (
        {"nvidia_driver_version": "580.105.80"},
        "driver version",
        "set nvidia_driver_version: 580.105.08",
    ),
    "old-driver": (
        {"vllm_version": "0.32.0", "vllm_variant": "auto", "nvidia_driver_version": "570.124.06"},
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
    "no-branch": ({"nvidia_driver_version": "582.10.01"}, "driver branch alive", "no such branch is known"),
    "no-toolkit": (
        {"cuda_toolkit_enabled": True, "cuda_toolkit_version": "12.7.1"},
        "CUDA toolkit",
        "a published version, such as 12.6.3 or 12.8.0",
    ),
    "toolkit-driver": (
        {"cuda_toolkit_enabled": True, "nvidia_driver_version": "570.124.06", "vllm_version": "0.19.1"},
        "contradictory pins",
        "nvidia_driver_version: 580.105.08",
    ),
    "two-owners": (
        {"cuda_toolkit_enabled": True, "cuda_toolkit_extra_packages": ["cuda-drivers"]},
        "two owners of a package",
        "it installs another driver",
    ),
    "slices": (
        {"preflight_gpus": ["NVIDIA L4"], "host_settings_mig": {"0": ["1g.10gb"]}},
        "MIG layout",
        "a card that can be sliced",
    ),
    "too-long": (
        {
            "preflight_gpus": ["NVIDIA L4"],
            "preflight_gpu_count": 1,
            "preflight_model_configs": {"/srv/models/llama": "llama.json"},
            "vllm_model": "/srv/models/llama",
            "vllm_max_model_len": 131072,
        },
        "model fits",
        "for one request of 131072 tokens",
    ),
    "words-for-a-version": ({"nvidia_driver_version": "latest"}, "driver version", "an exact version"),
    "empty": ({"nvidia_driver_version": None}, "variable type", "take the line out"),
    "list-for-text": ({"vllm_variant": ["cu130"]}, "variable type", "write text"),
    "entries": ({"vllm_instances": ["main"]}, "variable type", "in each entry write a mapping"),
    "entry-type": ({"vllm_instances": [{"name": "a", "gpus": "0"}]}, "variable type", "gpus of a: '0' a list"),
    "layout-text": ({"host_settings_mig": {"0": "3g.40gb"}}, "MIG layout", 'host_settings_mig: {"0": [3g.40gb]}'),
    "no-config": (
        {"preflight_model_configs": {"/srv/models/llama": "nowhere.json"}},
        "model configuration",
        "nowhere.json of /srv/models/llama is not on the controller",
    ),
    "no-such-count": ({"preflight_gpu_count": -1}, "number of GPUs", "0 or more"),
    "two-repositories": (
        {"nvidia_driver_repository": "distribution", "nvidia_driver_repository_url": "https://mirror/x"},
        "contradictory pins",
        "remove nvidia_driver_repository_url",
    ),
    "reference": ({"vllm_max_model_len": "{{ nowhere }}"}, "reference", "refers to nowhere"),
    "lookup": (
        {"vllm_hub_token": "{{ lookup('file', '/nowhere/token') }}"},
        "lookup",
        "vllm_hub_token: The lookup plugin 'file' failed: Unable to access the file '/nowhere/token'",
    ),
    "cpu-build": (
        {"vllm_variant": "cpu", "preflight_gpus": ["NVIDIA L4"]},
        "contradictory pins",
        "set vllm_variant: auto, or remove preflight_gpus",
    ),
    "old-toolkit": (
        {"cuda_toolkit_enabled": True, "cuda_toolkit_version": "12.8.1", "vllm_variant": "cu130"},
        "contradictory pins",
        "cuda_toolkit_version: 13.0.3",
    ),
    "nested-secret": ({"vllm_secrets": {"ANY": "not-in-a-vault"}}, "secret in plain text", "ANY (value not shown)"),
    "secret": ({"vllm_api_key": "not-in-a-vault"}, "secret in plain text", "ansible-vault"),
}

# What a bad inventory may hold, and the hosts above that hold it.
DEMANDED = {
    "a typo": ["typo"],
    "a version that does not exist": [
        "no-release",
        "no-cpu-release",
        "no-driver",
        "no-version",
        "no-branch",
        "no-toolkit",
        "words-for-a-version",
    ],
    "a string for a boolean": ["boolean"],
    "two owners of a package": ["two-owners"],
    "an unknown GPU": ["gpu-name"],
    "contradictory pins": [
        "two-branches",
        "toolkit-driver",
        "old-driver",
        "old-toolkit",
        "volta",
        "cpu-build",
        "two-repositories",
    ],
    "an extra argument that shadows a variable": ["shadow"],
    "a secret in plain group_vars": ["secret", "nested-secret"],
    "a value of another type, or none": ["empty", "list-for-text", "entries", "entry-type", "reference", "lookup"],
    "a value that is no choice": ["choice", "no-such-count", "no-config"],
    "a launch or a layout that the cards cannot hold": ["too-long", "slices", "layout-text"],
}


def test_every_kind_of_bad_input_has_a_host() -> None:
    assert sorted(name for names in DEMANDED.values() for name in names) == sorted(BAD)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("inventory")
    (folder / "play.yml").write_text(PLAY)
    (folder / "llama.json").write_text(json.dumps(LLAMA_8B))
    (folder / "host_vars").mkdir()
    hosts = {"fine": FINE, **{name: {**FINE, **case[0]} for name, case in BAD.items()}}
    for name, values in hosts.items():
        (folder / "host_vars" / f"{name}.yml").write_text(yaml.safe_dump(values))
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": dict.fromkeys(hosts, None)}}))
    done = play(
        ["-i", folder / "hosts.yml", folder / "play.yml", "-v"],
        cwd=folder,
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "collections"),
            "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
        },
    )
    answer = json.loads(done.stdout[done.stdout.index("{") :])  # -v says which configuration it reads
    results = [host for task in answer["plays"][0]["tasks"] for host in task["hosts"].values() if "rows" in host]
    assert len(results) == 1, "one table, one failure"
    return {"result": results[0], "text": done.stdout, "stats": answer["stats"]}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(verdicts: dict[str, object], name: str) -> None:
    _, check, says = BAD[name]
    rows = [row for row in verdicts["result"]["rows"] if row["host"] == name and row["verdict"] == "fail"]  # type: ignore[index]
    assert rows[0]["check"] == check
    assert says in f"{rows[0]['found']} {rows[0]['needed']} {rows[0]['action']}"


@pytest.mark.parametrize("name", BAD)
def test_the_line_to_change_is_named(verdicts: dict[str, object], name: str) -> None:
    rows = [row for row in verdicts["result"]["rows"] if row["host"] == name and row["verdict"] == "fail"]  # type: ignore[index]
    lines = yaml.safe_dump({**FINE, **BAD[name][0]}).splitlines()
    places = {f"host_vars/{name}.yml:{number}: ": line for number, line in enumerate(lines, 1)}
    line = next(line for place, line in places.items() if rows[0]["action"].startswith(place))
    assert repr(line.partition(":")[0].strip()) in repr(BAD[name][0])


def test_a_good_host_beside_them_has_no_complaint(verdicts: dict[str, object]) -> None:
    rows = [row for row in verdicts["result"]["rows"] if row["host"] == "fine"]  # type: ignore[index]
    assert [row for row in rows if row["verdict"] == "fail"] == []


def test_one_table_counts_the_hosts(verdicts: dict[str, object]) -> None:
    message = verdicts["result"]["msg"]  # type: ignore[index]
    assert f"{len(BAD)} of {len(BAD) + 1} hosts refused; nothing was changed on any host." in message


def test_the_secret_is_not_shown(verdicts: dict[str, object]) -> None:
    assert "not-in-a-vault" not in str(verdicts["text"])

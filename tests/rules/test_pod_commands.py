"""A change of a pod as kubectl takes it, put to the real kubectl on a Deployment in a file."""

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from vllm_doctor.records.container import Container
from vllm_doctor.rules.remedies.pod import limits, patch

OF_A_DEPLOYMENT = Container(name="llm/vllm-7d9f-x2x4z/vllm", runtime="kubernetes", owner="deployment/vllm")
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "vllm", "namespace": "llm"},
    "spec": {
        "selector": {"matchLabels": {"app": "vllm"}},
        "template": {
            "metadata": {"labels": {"app": "vllm"}},
            "spec": {
                "initContainers": [{"name": "fetch-model", "image": "fetch:1"}],
                "containers": [
                    {"name": "sidecar", "image": "proxy:1"},
                    {
                        "name": "vllm",
                        "image": "vllm/vllm-openai:v0.11.0",
                        "command": ["--model"],
                        "resources": {"limits": {"nvidia.com/gpu": "4", "memory": "64Gi"}},
                        "livenessProbe": {"tcpSocket": {"port": 8000}, "failureThreshold": 3},
                    },
                ],
            },
        },
    },
}


def patched(command: str | None, folder: Path) -> dict[str, Any]:
    """The pods' template after the command, which here works on a file and asks no server."""
    assert command is not None
    (folder / "deployment.json").write_text(json.dumps(DEPLOYMENT))
    words = shlex.split(command)
    assert words[:5] == ["kubectl", "patch", "-n", "llm", "deployment/vllm"]
    local = ["kubectl", "patch", "--local", "-f", str(folder / "deployment.json"), "-o", "json", *words[5:]]
    done = subprocess.run(
        local, capture_output=True, text=True, check=True, env={"HOME": str(folder), "PATH": "/usr/bin"}
    )
    spec: dict[str, Any] = json.loads(done.stdout)["spec"]["template"]["spec"]
    return spec


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
class TestKubectl:
    def test_a_limit_changes_and_the_others_stay(self, tmp_path: Path) -> None:
        sidecar, vllm = patched(limits(OF_A_DEPLOYMENT, "memory", "96Gi"), tmp_path)["containers"]
        assert vllm["resources"]["limits"] == {"nvidia.com/gpu": "4", "memory": "96Gi"}
        assert sidecar == {"name": "sidecar", "image": "proxy:1", "resources": {}} or "resources" not in sidecar

    def test_a_probe_of_another_kind_takes_the_place_of_the_one_that_is_there(self, tmp_path: Path) -> None:
        fields = {"livenessProbe": {"httpGet": {"path": "/health", "port": 8000}, "tcpSocket": None}}
        _, vllm = patched(patch(OF_A_DEPLOYMENT, fields), tmp_path)["containers"]
        assert vllm["livenessProbe"] == {"httpGet": {"path": "/health", "port": 8000}, "failureThreshold": 3}

    def test_shared_memory_is_a_volume_and_its_mount(self, tmp_path: Path) -> None:
        mount: dict[str, object] = {"volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}
        volume: dict[str, object] = {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]}
        spec = patched(patch(OF_A_DEPLOYMENT, mount, volume), tmp_path)
        assert spec["volumes"] == [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
        assert spec["containers"][1]["volumeMounts"] == [{"name": "shm", "mountPath": "/dev/shm"}]

    def test_what_replaces_the_entry_point_goes(self, tmp_path: Path) -> None:
        _, vllm = patched(patch(OF_A_DEPLOYMENT, {"command": None}), tmp_path)["containers"]
        assert "command" not in vllm

    def test_an_init_container_is_changed_by_its_name(self, tmp_path: Path) -> None:
        fields = {"resources": {"limits": {"memory": "3Gi"}}}
        spec = patched(patch(OF_A_DEPLOYMENT, fields, of="fetch-model", kind="initContainers"), tmp_path)
        assert spec["initContainers"][0]["resources"] == {"limits": {"memory": "3Gi"}}


@pytest.mark.parametrize("owner", ["", "job/fetch", "raycluster/llm"])
def test_what_cannot_be_patched_has_no_command(owner: str) -> None:
    bare = Container(name="llm/vllm-0/vllm", runtime="kubernetes", owner=owner)
    assert patch(bare, {"command": None}) is None

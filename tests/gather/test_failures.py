"""Failures of containers and pods from end to end: the command as typed, the programs that tell of them, the answer.

Pods are asked with the real kubectl, of a small API server; docker is a program that prints what Docker prints.
"""

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from tests.gather.api_server import DISCOVERY, serve
from tests.gather.test_containers import INSPECT, POD, answered, docker
from vllm_doctor.cli.exit_codes import Exit

Put: TypeAlias = Callable[[str, str], None]
Pod: TypeAlias = dict[str, Any]

BEGUN = "2026-03-01T10:00:00Z"
HEAD = (
    "2026-03-01T10:00:12Z (APIServer pid=1) INFO 03-01 10:00:12 [api_server.py:1839] vLLM API server version 0.11.0\n"
    "2026-03-01T10:00:13Z (APIServer pid=1) INFO 03-01 10:00:13 [utils.py:233] non-default args: {'model': 'org/m'}\n"
)
LOADING = (
    HEAD + "2026-03-01T10:00:58Z Loading safetensors checkpoint shards:  20% Completed | 6/30 [00:40<02:40,  6.7s/it]\n"
)
SERVED = HEAD + (
    "2026-03-01T10:04:00Z (APIServer pid=1) INFO:     Application startup complete.\n"
    '2026-03-01T10:05:00Z (APIServer pid=1) INFO:     10.0.0.1:40000 - "POST /v1/completions HTTP/1.1" 200 OK\n'
)
NO_GPU = HEAD + (
    "2026-03-01T10:00:20Z (APIServer pid=1) RuntimeError: Failed to infer device type, please set the environment "
    "variable `VLLM_LOGGING_LEVEL=DEBUG` to turn on verbose logging to help debug the issue.\n"
)


class Case(msgspec.Struct, frozen=True):
    """A failure: what the pod says of the server's container, what happened, what it wrote; and the answer to it."""

    code: str
    title: str
    change: str
    status: dict[str, Any]
    events: tuple[tuple[str, str], ...] = ()
    log: str = ""
    spec: dict[str, Any] = {}
    pod: dict[str, Any] = {}
    init: dict[str, Any] = {}
    beside: dict[str, Any] = {}
    tail: str = ""
    exit: int = Exit.FINDINGS


def waiting(reason: str, message: str = "", last: dict[str, Any] | None = None, restarts: int = 0) -> dict[str, Any]:
    told: dict[str, Any] = {"restartCount": restarts, "state": {"waiting": {"reason": reason, "message": message}}}
    return told | ({"lastState": {"terminated": last}} if last else {})


def ended(code: int, reason: str = "Error", seconds: int = 60) -> dict[str, Any]:
    finished = f"2026-03-01T10:{seconds // 60:02}:{seconds % 60:02}Z"
    return {"exitCode": code, "reason": reason, "startedAt": BEGUN, "finishedAt": finished}


RUNNING = {"restartCount": 0, "ready": True, "state": {"running": {"startedAt": BEGUN}}}
LIVENESS = {"livenessProbe": {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 10, "failureThreshold": 3}}
LIVENESS_ENDED = ("Killing", "Container vllm failed liveness probe, will be restarted")
STARTUP_ENDED = ("Killing", "Container vllm failed startup probe, will be restarted")
PODS = {
    "start-up probe shorter than the loading": Case(
        "VD002", "The startup probe ended the server while it was starting",
        'kubectl patch -n llm statefulset/vllm -p \'{"spec": {"template": {"spec": {"containers": [{"name": "vllm", '
        '"startupProbe": {"periodSeconds": 10, "failureThreshold": 63}}]}}}}\'',
        waiting("CrashLoopBackOff", last=ended(137), restarts=6), (STARTUP_ENDED,), LOADING,
    ),
    "liveness probe ends a busy server": Case(
        "VD002", "The liveness probe ended a server that had become ready",
        '"livenessProbe": {"timeoutSeconds": 10, "failureThreshold": 6}',
        waiting("CrashLoopBackOff", last=ended(137, seconds=600), restarts=1), (LIVENESS_ENDED,), SERVED, LIVENESS,
    ),
    "readiness probe of another port": Case(
        "VD002", "The readiness probe fails, so the Service sends no requests",
        '"readinessProbe": {"httpGet": {"path": "/health", "port": 8000}}', {**RUNNING, "ready": False},
        (("Unhealthy", 'Readiness probe failed: Get "http://10.1.2.3:8080/": dial tcp: connect: refused'),),
        SERVED, {"readinessProbe": {"httpGet": {"path": "/", "port": 8080}}},
    ),
    "killed at the memory limit": Case(
        "VD003", "The container was killed at its memory limit of 64.0 GiB",
        '"resources": {"limits": {"memory": "96Gi"}}',
        waiting("CrashLoopBackOff", last=ended(137, "OOMKilled"), restarts=2), log=HEAD,
    ),
    "evicted, as the node's disk was full": Case(
        "VD004", "The pod was evicted: its node was short of ephemeral-storage", "kubectl describe pod -n llm vllm-0",
        {}, pod={"phase": "Failed", "reason": "Evicted", "message":
                 "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 8Gi."},
    ),
    "no node has free GPUs": Case(
        "VD001", "No node has the GPUs that the pod asks for", "kubectl get nodes", {},
        pod={"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                             "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}]},
    ),
    "the image's name is wrong": Case(
        "VD001", "The image could not be pulled", "crictl pull vllm/vllm-openai:v0.11.99",
        waiting("ImagePullBackOff", 'Back-off pulling image "vllm/vllm-openai:v0.11.99"'),
    ),
    "a secret is missing": Case(
        "VD001", "A secret or configuration that the pod names does not exist", "kubectl get secrets",
        waiting("CreateContainerConfigError", 'secret "hf-token" not found'),
    ),
    "a volume is missing": Case(
        "VD001", "A volume of the pod could not be attached", "kubectl describe pod -n llm vllm-0",
        waiting("ContainerCreating"), (("FailedMount", 'MountVolume.SetUp failed for volume "models" : exit 32'),),
    ),
    "an init container fails": Case(
        "VD007", "The init container fetch-model fails, so vLLM never starts",
        "kubectl logs -n llm vllm-0 -c fetch-model --tail=50 --previous", waiting("PodInitializing"),
        init=waiting("CrashLoopBackOff", last=ended(1), restarts=4), tail="403: token hf_abcdefghijklmnopqrst\n",
    ),
    "an init container still runs": Case(
        "", "the init container fetch-model still runs, and vLLM starts after it: "
        "kubectl logs -n llm vllm-0 -c fetch-model", "", waiting("PodInitializing"), init=RUNNING, exit=Exit.INCOMPLETE,
    ),
    "a proxy beside it fails": Case(
        "VD007", "The pod gets no requests: its container sidecar fails", "kubectl logs -n llm vllm-0 -c sidecar",
        RUNNING, log=SERVED, beside=waiting("CrashLoopBackOff", last=ended(1), restarts=9),
    ),
    "64 MiB of shared memory for four ranks": Case(
        "VD006", "The container has 64 MiB of shared memory for 4 ranks",
        '"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]',
        RUNNING, log=SERVED, spec={"volumeMounts": []},
    ),
    "no GPU asked for": Case(
        "VD005", "The container was started without a GPU", '"resources": {"limits": {"nvidia.com/gpu": "4"}}',
        waiting("CrashLoopBackOff", last=ended(1, seconds=20), restarts=3), log=NO_GPU, spec={"resources": {}},
    ),
}  # fmt: skip


def described(case: Case) -> Pod:
    """The pod of this case, as the API server has it."""
    pod = copy.deepcopy(POD)
    spec = pod["spec"]["containers"][1]
    if "startup probe" not in str(case.events):
        del spec["startupProbe"]
    spec.update(case.spec)
    own = [{"name": "vllm", **case.status}] if case.status else []
    side = [{"name": "sidecar", **(case.beside or RUNNING)}]
    pod["status"] = {"containerStatuses": own + side, **case.pod}
    if case.init:
        pod["spec"]["initContainers"] = [{"name": "fetch-model", "image": "fetch:1", "args": ["org/m"]}]
        pod["status"]["initContainerStatuses"] = [{"name": "fetch-model", **case.init}]
    return pod


class Cluster:
    """An API server with one pod; what it has is set by the test."""

    def __init__(self, folder: Path) -> None:
        self.case = Case("", "", "", {})
        self.config = folder / "kubeconfig"
        self.server = serve(self.answer, self.config)

    def answer(self, path: str, query: str) -> object:
        happened = [
            {"apiVersion": "v1", "kind": "Event", "metadata": {"name": f"e{n}", "namespace": "llm"},
             "involvedObject": {"kind": "Pod", "name": "vllm-0"}, "reason": reason, "message": text,
             "lastTimestamp": "2026-03-01T10:01:00Z", "count": 3}
            for n, (reason, text) in enumerate(self.case.events)
        ]  # fmt: skip
        node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "gpu-1"}, "status": {"allocatable": {}}}
        found: dict[str, object] = {
            **DISCOVERY,
            "/api/v1/namespaces/llm/pods/vllm-0": described(self.case),
            "/api/v1/namespaces/llm/pods/vllm-0/log": self.case.log if "container=vllm" in query else self.case.tail,
            "/api/v1/namespaces/llm/events": {
                "kind": "EventList",
                "apiVersion": "v1",
                "metadata": {},
                "items": happened,
            },
            "/api/v1/nodes/gpu-1": node,
        }
        return found.get(path)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One server for all cases."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.server.shutdown()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("name", PODS)
def test_what_fails_in_a_pod_is_found_with_its_change(
    name: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = cluster.case = PODS[name]
    monkeypatch.setenv("KUBECONFIG", str(cluster.config))
    code, told = answered(capsys, "pod/llm/vllm-0")
    assert code == case.exit, told
    if not case.code:
        assert case.title in told["path"][-1]["because"]
        return
    first = told["findings"][0]
    assert (first["code"], first["title"]) == (case.code, case.title)
    typed = [first["changes"][0][part] or "" for part in ("command", "to")]
    assert any(case.change in str(one) for one in typed), typed
    assert "hf_abcdefghijklmnopqrst" not in json.dumps(told)


def failed(state: dict[str, Any] | None = None, host: dict[str, Any] | None = None) -> dict[str, Any]:
    """A container that its runtime did not start, or that ended."""
    created = {"Status": "created", "OOMKilled": False, "ExitCode": 128, "Error": "", "Pid": 0, **(state or {})}
    return {**INSPECT, "State": created, "HostConfig": {**INSPECT["HostConfig"], **(host or {})}}


GONE = {"Status": "exited", "ExitCode": 1, "StartedAt": BEGUN, "FinishedAt": "2999-03-01T10:02:00Z"}
DOCKER = {
    "no NVIDIA runtime": (
        failed({"Error": 'could not select device driver "" with capabilities: [[gpu]]'}), "",
        "VD001", "The container runtime cannot give GPUs to containers", "nvidia-ctk runtime configure"),
    "the image wants a newer driver": (
        failed({"Error": "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.9: unknown"}), "",
        "VD001", "The image asks for a newer driver than the host has", "cuda>=12.9"),
    "the host's port is taken": (
        failed({"Error": "driver failed: Bind for 0.0.0.0:8000 failed: port is already allocated"}), "",
        "VD001", "The host's port belongs to another container or process", "ss -ltnp 'sport = :8000'"),
    "no GPU given": (
        failed(GONE, {"DeviceRequests": None}), NO_GPU,
        "VD005", "The container was started without a GPU", "--gpus all"),
    "killed at the memory limit": (
        failed({**GONE, "OOMKilled": True, "ExitCode": 137}), HEAD,
        "VD003", "The container was killed at its memory limit of 16.0 GiB", "docker update --memory 24g llm"),
}  # fmt: skip


@pytest.mark.parametrize("name", DOCKER)
def test_what_fails_in_a_container_is_found_with_its_change(
    name: str, on_path: Put, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shown, log, code, title, change = DOCKER[name]
    docker(on_path, tmp_path, shown, out=log.rstrip("\n"))
    rc, told = answered(capsys, "docker:llm")
    first = told["findings"][0]
    assert (rc, first["code"], first["title"]) == (Exit.FINDINGS, code, title)
    assert change in json.dumps(first["changes"], ensure_ascii=False)


def test_of_two_servers_in_one_log_the_failed_one_is_named(
    on_path: Put, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = HEAD.replace("pid=1)", "pid=7)").replace("org/m", "org/other")
    port = "2026-03-01T10:06:00Z (APIServer pid=7) OSError: [Errno 98] Address already in use\n"
    docker(
        on_path, tmp_path, failed({**GONE, "Status": "running", "FinishedAt": ""}), out=SERVED + other + port.rstrip()
    )
    rc, told = answered(capsys, "--no-canary", "docker:llm")
    assert (rc, told["findings"][0]["code"]) == (Exit.FINDINGS, "VD510")

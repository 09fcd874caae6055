"""`kubectl describe pod` in a file: what the real kubectl prints of each failing pod is judged as the pod itself is."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gather.test_containers import answered
from tests.gather.test_failures import PODS, Case, Cluster
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.gather import described, pod
from vllm_doctor.records.container import Check, End

TEXT = """\
Name:             llm-6c9d7d5c4-abcde
Namespace:        inference
Node:             gpu-7/10.0.3.7
Labels:           app=llm
                  pod-template-hash=6c9d7d5c4
Status:           Running
Controlled By:    ReplicaSet/llm-6c9d7d5c4
Containers:
  vllm:
    Image:         vllm/vllm-openai:v0.10.1
    Command:
      sh
      -c
    Args:
      export A=1
      exec vllm serve org/m --max-model-len 8192
    State:          Waiting
      Reason:       CrashLoopBackOff
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Started:      Tue, 25 Nov 2025 09:00:00 +0000
      Finished:     Tue, 25 Nov 2025 09:01:10 +0000
    Ready:          False
    Restart Count:  7
    Limits:
      memory:          12Gi
      nvidia.com/gpu:  2
    Liveness:   http-get http://:http/health delay=60s timeout=1s period=10s #success=1 #failure=3
    Environment:
      VLLM_LOGGING_LEVEL:  DEBUG
      HF_TOKEN:            <set to the key 'token' in secret 'hf'>  Optional: false
    Mounts:
      /dev/shm from shm (rw)
Volumes:
  shm:
    Type:       EmptyDir (a temporary directory that shares a pod's lifetime)
    Medium:     Memory
    SizeLimit:  8Gi
Events:
  Type     Reason   Age                From     Message
  ----     ------   ----               ----     -------
  Warning  BackOff  2m (x31 over 11m)  kubelet  Back-off restarting failed container vllm in pod llm
"""


def test_a_pod_is_read_with_its_state_limits_probes_and_owner() -> None:
    (told,) = described.pods(TEXT)
    (seen,) = pod.containers(told)
    container = seen.container

    assert (container.name, container.owner) == ("inference/llm-6c9d7d5c4-abcde/vllm", "deployment/llm")
    assert container.end == End(137, "OOMKilled", True, "2025-11-25T09:00:00+00:00", "2025-11-25T09:01:10+00:00")
    assert (container.memory_limit, container.gpus, container.shm_bytes) == (12 << 30, 2, 8 << 30)
    assert container.checks == (Check("liveness", 60, 10, 1, 3, "GET /health", "http"),)
    assert seen.argv[-4:] == ("serve", "org/m", "--max-model-len", "8192")
    assert seen.env == {"VLLM_LOGGING_LEVEL": "DEBUG"}
    (event,) = pod.events(described.events(TEXT))
    assert (event.reason, event.count) == ("BackOff", 31)


def test_a_description_with_a_log_behind_it_is_read_as_a_log() -> None:
    assert described.holds("\n" + TEXT)
    assert not described.holds("  " + TEXT)
    assert not described.holds(TEXT + "INFO 11-25 20:00:00 [api_server.py:1839] vLLM API server version 0.10.1\n")


@given(st.lists(st.tuples(st.integers(0, 60), st.text(max_size=40)), min_size=1, max_size=12), st.data())
def test_a_description_that_somebody_changed_breaks_nothing(put: list[tuple[int, str]], data: st.DataObject) -> None:
    lines = TEXT.split("\n")
    for at, words in put:
        place = at % len(lines)
        kept = data.draw(st.integers(0, len(lines[place])))
        lines[place] = lines[place][:kept] + words
    text = "\n".join(lines)
    for told in described.pods(text):
        pod.containers(told)
    pod.events(described.events(text))


@pytest.mark.parametrize(
    "moment", ["Tue, 25 Nov 2025 09:00:00 +99999999999999999999", "Tue, 99 Nov 99999 09:00:00", "x"]
)
def test_a_moment_that_is_none_is_not_known(moment: str) -> None:
    (told,) = described.pods(TEXT.replace("Tue, 25 Nov 2025 09:00:00 +0000", moment))
    (seen,) = pod.containers(told)
    assert seen.container.end is not None
    assert seen.container.end.started_at is None


def told_by_events(case: Case) -> Case:
    """What the state says in a sentence, `describe` leaves out: the kubelet and the scheduler say it in an event."""
    waits = case.status.get("state", {}).get("waiting", {})
    said = [("Failed", waits["message"])] if waits.get("message") else []
    said += [("FailedScheduling", one["message"]) for one in case.pod.get("conditions", ())]
    return msgspec.structs.replace(case, events=(*case.events, *said))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.server.shutdown()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("name", [name for name, case in PODS.items() if case.code])
def test_what_kubectl_describes_is_judged_as_the_pod_is(
    name: str, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = cluster.case = told_by_events(PODS[name])
    asked = ["kubectl", "--kubeconfig", str(cluster.config), "describe", "pod", "-n", "llm", "vllm-0"]
    (tmp_path / "pod.txt").write_text(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
    (tmp_path / "server.log").write_text(case.log or "nothing\n")

    code, told = answered(capsys, str(tmp_path / "pod.txt"), *([str(tmp_path / "server.log")] if case.log else []))

    first = told["findings"][0]
    assert (code, first["code"], first["title"]) == (Exit.FINDINGS, case.code, case.title)

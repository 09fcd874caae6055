"""Containers and pods, live by their own programs and offline by what these print; both are untrusted."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gather.api_server import DISCOVERY, serve
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.main import run
from vllm_doctor.gather import containers, inspected, kubectl, pod
from vllm_doctor.gather.containers import in_order
from vllm_doctor.gather.target import Target, target
from vllm_doctor.knowledge.images import release_of
from vllm_doctor.records.container import Container, End
from vllm_doctor.records.reading import Absent, Known, Reading, Unknown

Put = Callable[[str, str], None]
GIB = 1 << 30
ID = "4f" * 32
IMAGE = "registry.example.net/vllm/vllm-openai:v0.11.0"
INSPECT: dict[str, Any] = {
    "Id": ID,
    "Name": "/llm",
    "Path": "vllm",
    "Args": ["serve", "--model", "org/m", "--tensor-parallel-size", "2", "--api-key", "sk-very-secret-1"],
    "RestartCount": 4,
    "State": {
        "Status": "exited",
        "OOMKilled": True,
        "ExitCode": 137,
        "Error": "",
        "Pid": 0,
        "StartedAt": "2026-03-01T10:00:00Z",
        "FinishedAt": "2999-03-01T10:02:00Z",
    },
    "Config": {"Image": IMAGE, "Env": ["HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz", "VLLM_USE_V1=1"]},
    "HostConfig": {
        "Memory": 16 * GIB,
        "ShmSize": 64 << 20,
        "IpcMode": "private",
        "Runtime": "runc",
        "DeviceRequests": [{"Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]]}],
    },
    "NetworkSettings": {"IPAddress": "172.17.0.2", "Ports": {"8000/tcp": [{"HostPort": "18000"}]}},
}
SERVING = "2026-03-01T10:00:01Z (APIServer pid=1) INFO 03-01 10:00:01 [api_server.py:1] vLLM API server version 0.11.0"
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "vllm-0",
        "namespace": "llm",
        "uid": "u-1",
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "vllm", "controller": True}],
    },
    "spec": {
        "nodeName": "gpu-1",
        "containers": [
            {"name": "sidecar", "image": "envoy:v1"},
            {
                "name": "vllm",
                "image": "vllm/vllm-openai:v0.11.0",
                "args": ["--model", "org/m", "--tensor-parallel-size", "4"],
                "resources": {"limits": {"nvidia.com/gpu": "4", "memory": "64Gi"}},
                "volumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}],
                "startupProbe": {"httpGet": {"path": "/health"}, "failureThreshold": 6},
            },
        ],
        "volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}],
    },
    "status": {
        "containerStatuses": [
            {
                "name": "vllm",
                "restartCount": 3,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                "lastState": {
                    "terminated": {
                        "exitCode": 137,
                        "reason": "Error",
                        "startedAt": "2026-03-01T10:00:00Z",
                        "finishedAt": "2026-03-01T10:01:00Z",
                    }
                },
            }
        ]
    },
}
EVENTS = {
    "kind": "List",
    "items": [
        {
            "apiVersion": "v1",
            "kind": "Event",
            "involvedObject": {"kind": "Pod", "name": "vllm-0"},
            "reason": "Killing",
            "message": "Container vllm failed startup probe, will be restarted",
            "count": 3,
            "lastTimestamp": "2026-03-01T10:01:00Z",
        }
    ],
}


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = run(["diagnose", "--format", "json", *words])
    told = capsys.readouterr()
    return code, json.loads(told.out) if told.out.startswith("{") else {"err": told.err}


def docker(put: Put, tmp_path: Path, shown: object, out: str = SERVING, err: str = "") -> None:
    """A docker that has one container, and its two streams."""
    (tmp_path / "inspect.json").write_text(json.dumps([shown]))
    (tmp_path / "out").write_text(f"{out}\n")
    (tmp_path / "err").write_text(err)
    put(
        "docker",
        f"""case "$1 $4" in
ps*) printf '%s\\t%s\\t%s\\t%s\\n' {ID} {IMAGE} '"vllm serve"' llm ;;
"inspect {ID}"|"inspect llm") cat {tmp_path}/inspect.json ;;
inspect*) echo '[]'; echo "Error: No such container: $4" >&2; exit 1 ;;
logs*) cat {tmp_path}/out; cat {tmp_path}/err >&2 ;;
esac""",
    )


def test_inspect_tells_the_state_the_limits_the_gpus_and_the_launch() -> None:
    read = inspected.read(json.dumps([INSPECT]).encode(), "inspect")
    assert isinstance(read, Known)
    (seen,) = read.value
    one = seen.container
    assert (one.name, one.state, one.restarts, one.memory_limit, one.shm_bytes) == (
        "llm",
        "exited",
        4,
        16 * GIB,
        64 << 20,
    )
    assert one.end is not None
    assert (one.end.exit_code, one.end.oom_killed) == (137, True)
    assert (one.gpus, one.shares_shm, seen.ports, one.address) == (-1, False, {8000: 18000}, "172.17.0.2")
    assert seen.argv[:4] == ("vllm", "serve", "--model", "org/m")
    assert release_of(one.image) == "0.11.0"


@pytest.mark.parametrize(
    ("host", "gpus"),
    [
        ({"DeviceRequests": None, "Runtime": "runc"}, 0),
        ({"Devices": [], "Runtime": "crun"}, 0),
        ({"DeviceRequests": None, "Runtime": "nvidia"}, None),
        ({"Devices": [{"PathOnHost": "/dev/kfd"}], "Runtime": "runc"}, None),
        ({"Devices": [{"PathOnHost": "/dev/nvidia0"}, {"PathOnHost": "/dev/nvidiactl"}]}, 1),
        ({"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]}, 1),
        ({"DeviceRequests": None, "Privileged": True}, None),
        ({}, None),
    ],
)
def test_no_gpu_is_said_only_where_the_runtime_lists_its_devices(host: dict[str, object], gpus: int | None) -> None:
    assert inspected.seen({**INSPECT, "HostConfig": host}, "docker").container.gpus == gpus


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.11.0", "0.11.0"),
        ("mirror:5000/vllm/vllm-openai:v0.10.2-cu126", "0.10.2"),
        ("vllm/vllm-openai:v0.11.0@sha256:00", "0.11.0"),
        ("vllm/vllm-openai:latest", None),
        ("lmcache/vllm-openai:v0.3.1", None),
        ("mine/vllm:v0.11.0", None),
    ],
)
def test_only_the_tag_of_vllms_own_image_is_a_release(image: str, version: str | None) -> None:
    assert release_of(image) == version


def test_a_pod_tells_its_probes_its_last_end_and_its_shared_memory() -> None:
    (seen,) = pod.containers(POD)
    one = seen.container
    assert (one.name, one.state, one.reason, one.node) == ("llm/vllm-0/vllm", "waiting", "CrashLoopBackOff", "gpu-1")
    assert (one.gpus, one.memory_limit, one.shm_bytes) == (4, 64 * GIB, 2 * GIB)
    assert one.end is not None
    assert (one.end.exit_code, one.end.reason) == (137, "Error")
    assert [(c.kind, c.patience_s, c.asks) for c in one.checks] == [("startup", 60.0, "GET /health")]
    assert seen.argv == ("vllm", "serve", "--model", "org/m", "--tensor-parallel-size", "4")


@pytest.mark.parametrize(("last", "told"), [("StartError", 'exec: "vllm": not found'), ("Error", "back-off")])
def test_what_the_runtime_said_of_the_last_try_is_why_a_pod_waits(last: str, told: str) -> None:
    ended = {"terminated": {"exitCode": 128, "reason": last, "message": 'exec: "vllm": not found'}}
    waits = POD["status"]["containerStatuses"][0] | {"lastState": ended}  # type: ignore[index]
    (seen,) = pod.containers(POD | {"status": {"containerStatuses": [waits]}})
    assert seen.container.error == told


def test_both_streams_stand_in_the_order_of_their_stamps() -> None:
    out = b"2026-03-01T10:00:01.1Z first\n2026-03-01T10:00:03.0Z third\n"
    err = b"2026-03-01T10:00:02.0Z second\n  of it\n"
    assert [line[-6:].strip() for line in in_order(out, err)] == ["first", "second", "of it", "third"]


def test_a_container_by_its_name_is_judged_and_its_secrets_stay(
    on_path: Put, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    docker(on_path, tmp_path, INSPECT, err="2026-03-01T10:00:02Z the key is sk-very-secret-1\n")
    code, told = answered(capsys, "docker:llm")
    assert (code, told["findings"][0]["code"], told["subject"]["place"]) == (Exit.FINDINGS, "VD003", "docker:llm")
    assert told["findings"][0]["title"] == "The container was killed at its memory limit of 16.0 GiB"
    change = told["findings"][0]["changes"][0]
    assert (change["to"], change["command"]) == ("24g", "docker update --memory 24g llm   # then start")
    assert told["facts"]["vllm_version"] == "0.11.0"
    assert "sk-very-secret-1" not in json.dumps(told)
    assert "hf_abcdef" not in json.dumps(told)


def test_a_host_full_of_containers_is_judged_without_being_told(
    on_path: Put, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path("systemctl", "echo 'System has not been booted with systemd as init system' >&2; exit 1")
    docker(on_path, tmp_path, INSPECT)
    monkeypatch.setattr(containers, "_is_used", lambda runtime: runtime == "docker")
    code, told = answered(capsys)
    assert (code, told["findings"][0]["code"], told["subject"]["place"]) == (Exit.FINDINGS, "VD003", "docker:llm")
    assert told["others"] == []


def test_a_name_that_no_container_has_is_a_usage_error(
    on_path: Put, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    docker(on_path, tmp_path, INSPECT)
    code, told = answered(capsys, "docker:lm")
    assert (code, told["err"].strip()) == (Exit.USAGE, "vllm-doctor: docker has no container lm")


def test_a_runtime_that_may_not_be_asked_is_named_with_what_to_do(
    on_path: Put, capsys: pytest.CaptureFixture[str]
) -> None:
    on_path("docker", "echo 'permission denied while trying to connect to the Docker daemon socket' >&2; exit 1")
    code, told = answered(capsys, "docker:llm")
    assert code == Exit.USAGE
    assert "run as root, or as a member of the group docker" in told["err"]


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("docker:llm", Target("docker", "llm")),
        ("pod/vllm-0", Target("pod", "vllm-0")),
        ("pod/llm/vllm-0", Target("pod", "vllm-0", "llm")),
        ("pid:4242", Target("pid", "4242")),
        ("http://h:8000/v1/models", Target("url", "http://h:8000")),
        ("server.log", None),
        ("./docker:llm", None),
    ],
)
def test_what_names_a_place_and_what_a_file(word: str, wanted: Target | None) -> None:
    assert target(word) == wanted


@pytest.mark.parametrize(
    "word",
    ["docker:-v", "docker:a b", "podman:$(id)", "pod/--kubeconfig=x", "pod/a/b/c/d", "pid:0", "pid:x", "http://u:p@h"],
)
def test_a_name_that_a_program_would_take_for_an_option_is_refused(word: str) -> None:
    assert isinstance(target(word), str)
    assert run(["diagnose", word]) == Exit.USAGE


def test_the_same_is_said_of_the_files_that_the_programs_print(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    names = {"inspect.json": [INSPECT], "pod.json": POD, "events.json": EVENTS}
    for name, value in names.items():
        (tmp_path / name).write_text(json.dumps(value))
    (tmp_path / "log.txt").write_text(f"{SERVING}\n")
    code, told = answered(capsys, str(tmp_path / "inspect.json"), str(tmp_path / "log.txt"))
    assert (code, told["findings"][0]["code"], told["facts"]["lines_read"]) == (Exit.FINDINGS, "VD003", 1)
    code, told = answered(capsys, *(str(tmp_path / name) for name in ("pod.json", "events.json", "log.txt")))
    assert (code, told["findings"][0]["code"], told["medium"]) == (Exit.FINDINGS, "VD002", "pod")
    import yaml

    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(POD, sort_keys=False))
    assert answered(capsys, str(tmp_path / "pod.yaml"))[1]["subject"]["place"] == "pod/llm/vllm-0/vllm"


def test_a_container_that_ended_for_no_known_reason_is_unknown_and_never_ok(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ended = {**INSPECT, "State": {**INSPECT["State"], "OOMKilled": False, "ExitCode": 1}}
    (tmp_path / "inspect.json").write_text(json.dumps(ended))
    code, told = answered(capsys, str(tmp_path / "inspect.json"))
    assert (code, told["verdict"]) == (Exit.INCOMPLETE, "unknown")
    assert "exit code 1" in told["path"][-1]["because"]


def test_a_change_of_a_container_keeps_the_options_that_it_was_made_with(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ended = {**INSPECT, "State": {**INSPECT["State"], "OOMKilled": False, "ExitCode": 2}}
    ended["Args"] = ["serve", "org/m", "--max-modle-len", "8"]
    (tmp_path / "inspect.json").write_text(json.dumps(ended))
    (tmp_path / "log").write_text("2026-03-01T10:00:02Z vllm: error: unrecognized arguments: --max-modle-len 8\n")
    assert run(["diagnose", str(tmp_path / "inspect.json"), str(tmp_path / "log")]) == Exit.FINDINGS
    told = capsys.readouterr().out
    assert "why   vllm: error: unrecognized arguments: --max-modle-len 8" in told
    assert "docker run" not in told


_LEAVES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=20)
_ANY = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@given(
    st.sampled_from(["State", "Config", "HostConfig", "NetworkSettings", "Name", "Path", "Args", "Id", "Mounts"]), _ANY
)
def test_a_description_with_anything_in_it_is_read_or_left_out(name: str, value: object) -> None:
    inspected.read(json.dumps([{**INSPECT, name: value}]).encode(), "inspect")


@given(
    st.sampled_from(["metadata", "spec", "status"]),
    st.sampled_from([None, "containers", "containerStatuses", "volumes"]),
    _ANY,
)
def test_a_pod_with_anything_in_it_is_read_or_left_out(part: str, inner: str | None, value: object) -> None:
    broken = {**POD, part: value if inner is None else {**POD[part], inner: value}}
    pod.read(json.dumps(broken).encode(), "pod")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[str]:
    """A small API server with one pod, its events and its logs; the real kubectl asks it."""
    base = "/api/v1/namespaces/llm"
    log = "2026-03-01T10:00:01Z INFO 03-01 10:00:01 [api_server.py:1] vLLM API server version 0.11.0\n"
    answers: dict[str, object] = {
        **DISCOVERY,
        f"{base}/pods/vllm-0": POD,
        f"{base}/pods/vllm-0/log": log,
        f"{base}/events": {**EVENTS, "kind": "EventList", "apiVersion": "v1", "metadata": {}},
        "/api/v1/nodes/gpu-1": {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "gpu-1"},
                                "status": {"allocatable": {"memory": "500Gi"}}},
    }  # fmt: skip

    config = tmp_path / "kubeconfig"
    server = serve(lambda path, _: answers.get(path), config)
    yield str(config)
    server.shutdown()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_a_pod_through_the_real_kubectl(
    api: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", api)
    assert subprocess.run(["kubectl", "version", "--client"], check=False, capture_output=True).returncode == 0
    code, told = answered(capsys, "pod/llm/vllm-0")
    assert (code, told["findings"][0]["code"]) == (Exit.FINDINGS, "VD002")
    assert told["findings"][0]["title"] == "The startup probe ended the server while it was starting"
    assert told["subject"] == {"host": "gpu-1", "unit": None, "gpu": None, "place": "pod/llm/vllm-0/vllm"}
    assert [one["reason"] for one in told["unknown"] if "events" in one["reason"]] == []
    assert answered(capsys, "pod/llm/vllm-1")[0] == Exit.USAGE


def test_events_that_this_user_may_not_read_are_named(on_path: Put, capsys: pytest.CaptureFixture[str]) -> None:
    ready = {**POD, "status": {"containerStatuses": [{"name": "vllm", "state": {"running": {}}}]}}
    shown = f"cat <<'EOF'\n{json.dumps(ready)}\nEOF"
    on_path("kubectl", f"""case "$2" in\npod) {shown}\n;;\nevents) echo 'Error (Forbidden)' >&2; exit 1;;\nesac""")
    told = answered(capsys, "pod/llm/vllm-0")[1]
    (row,) = [one for one in told["unknown"] if "events" in one["reason"]]
    assert row["reason"] == "kubectl get events: Error (Forbidden)"


def test_settings_that_others_can_write_are_handed_to_no_runtime(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    settings = folder / "containers.conf"
    settings.touch()
    monkeypatch.setenv("CONTAINERS_CONF", str(settings))
    assert containers.environment()["CONTAINERS_CONF"] == str(settings)
    folder.chmod(0o777)
    assert "CONTAINERS_CONF" not in containers.environment()


def test_a_cluster_s_file_that_others_can_write_is_said_and_no_other_cluster_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, on_path: Put
) -> None:
    on_path("kubectl", f"touch {tmp_path}/asked")
    settings = tmp_path / "kubeconfig"
    settings.touch()
    settings.chmod(0o666)
    monkeypatch.setenv("KUBECONFIG", str(settings))
    told = kubectl.read("llm-0", None, 30)
    assert isinstance(told, Unknown)
    assert told.reason == f"KUBECONFIG is not used: {settings} can be written by others (mode 666)"
    assert not (tmp_path / "asked").exists()


def _box(name: str, state: str = "running", *, own: str = "", ended: str | None = None) -> inspected.Inspected:
    end = End(1, "", oom_killed=False, started_at=None, finished_at=ended) if ended else None
    return inspected.Inspected(Container(name, own or "docker", state=state, end=end), name, ("vllm", "serve", "m"), {})


OTHER = inspected.Inspected(Container("web", "docker", state="running"), "web", ("nginx",), {})
STATES = ("dead", "running", "paused", "created", "exited", "restarting")


@pytest.mark.parametrize(
    ("listed", "seen", "order"),
    [
        # Those in trouble stand first; of the same trouble the names decide.
        (
            {"docker": [_box(f"{n}{state}", state) for n, state in enumerate(STATES)]},
            [],
            ["5restarting", "3created", "4exited", "2paused", "1running", "0dead"],
        ),
        ({"docker": [_box("b"), _box("a"), OTHER]}, [], ["a", "b"]),
        (
            {"docker": [_box("a", "exited", ended="1999-01-01T00:00:00Z"), _box("b", "exited", ended="never")]},
            [],
            ["b"],
        ),
        ({"docker": [_box("a", own="docker")], "podman": [_box("a", own="podman")]}, [], ["a"]),
        ({"docker": Unknown("denied", "x"), "podman": [_box("a")]}, ["denied"], ["a"]),
        ({"docker": [], "podman": []}, [], []),
        ({}, [], []),
    ],
)
def test_the_containers_of_both_runtimes_are_told_once_those_in_trouble_first(
    monkeypatch: pytest.MonkeyPatch,
    listed: dict[str, list[inspected.Inspected] | Unknown],
    seen: list[str],
    order: list[str],
) -> None:
    def ids(runtime: str, deadline_s: float) -> list[str] | Unknown:
        told = listed[runtime]
        assert deadline_s == 5.0
        return told if isinstance(told, Unknown) else [one.id for one in told]

    def inspect(runtime: str, names: list[str], _: float) -> Reading[tuple[inspected.Inspected, ...]]:
        told = listed[runtime]
        assert not isinstance(told, Unknown)
        assert names == [one.id for one in told]
        return Known(tuple(told), runtime)

    monkeypatch.setattr(containers, "_is_used", lambda runtime: runtime in listed)
    monkeypatch.setattr(containers, "_listed", ids)
    monkeypatch.setattr(containers, "inspect", inspect)
    found, problems = containers.find(5.0)
    assert [one.container.name for one in found] == order
    assert [one.reason for one in problems] == seen
    if "podman" in listed and listed["docker"]:
        assert {one.container.runtime for one in found} == {"docker"}


@pytest.mark.parametrize(
    ("told", "problems"), [(Absent("gone meanwhile"), []), (Unknown("it hangs", "x"), [Unknown("it hangs", "x")])]
)
def test_a_container_that_went_meanwhile_is_no_problem(
    monkeypatch: pytest.MonkeyPatch, told: Absent | Unknown, problems: list[Unknown]
) -> None:
    monkeypatch.setattr(containers, "_is_used", lambda runtime: runtime == "docker")
    monkeypatch.setattr(containers, "_listed", lambda *_: ["a"])
    monkeypatch.setattr(containers, "inspect", lambda *_: told)
    assert containers.find(5.0) == ((), tuple(problems))

"""How a container was made, out of its description: the same container again, and no secret in the line."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.gather.test_containers import IMAGE, INSPECT
from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.main import run
from vllm_doctor.gather import inspected
from vllm_doctor.gather.made import _written
from vllm_doctor.launch import container
from vllm_doctor.records.container import Made

SECRET = "hf_abcdefghijklmnopqrstuvwxyz"  # noqa: S105 - of nobody
# As Docker 27 describes a container that was started with
# docker run -d --name llm --gpus all --ipc host -p 127.0.0.1:18000:8000 -v /srv/models:/models:ro
#   --restart unless-stopped --memory 64g --ulimit memlock=-1
#   -e HF_TOKEN -e VLLM_USE_V1=1 vllm/vllm-openai:v0.11.0 --model /models/m …
WHOLE: dict[str, Any] = {
    "Binds": ["/srv/models:/models:ro"],
    "ContainerIDFile": "",
    "LogConfig": {"Type": "json-file", "Config": {}},
    "NetworkMode": "bridge",
    "PortBindings": {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "18000"}]},
    "RestartPolicy": {"Name": "unless-stopped", "MaximumRetryCount": 0},
    "AutoRemove": False,
    "ConsoleSize": [0, 0],
    "CapAdd": None,
    "CgroupnsMode": "private",
    "Dns": [],
    "IpcMode": "host",
    "OomScoreAdj": 0,
    "Privileged": False,
    "SecurityOpt": None,
    "ShmSize": 64 << 20,
    "Runtime": "runc",
    "Memory": 64 << 30,
    "MemorySwap": 128 << 30,
    "DeviceRequests": [{"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}}],
    "PidsLimit": None,
    "Ulimits": [{"Name": "memlock", "Hard": -1, "Soft": -1}],
    "MaskedPaths": ["/proc/acpi"],
}
ENV = [
    f"HF_TOKEN={SECRET}",
    "VLLM_USE_V1=1",
    "PATH=/usr/local/cuda/bin:/usr/bin:/bin",
    "NV_CUDA_LIB_VERSION=12.8.1-1",
    "NVIDIA_VISIBLE_DEVICES=all",
]


def described(host: dict[str, Any] | None = None, **config: object) -> dict[str, Any]:
    return {
        **INSPECT,
        "Args": ["serve", "/models/m", "--tensor-parallel-size", "2"],
        "Config": {**INSPECT["Config"], "Env": ENV, **config},
        "HostConfig": {**WHOLE, **(host or {})},
    }


def made(told: dict[str, Any], runtime: str = "docker") -> Made | None:
    return inspected.seen(told, runtime).container.made


def words(host: dict[str, Any]) -> str:
    found = made(described(host))
    assert found is not None
    return shlex.join(found.words)


def test_all_that_was_given_is_in_the_line_and_no_value_of_a_secret() -> None:
    found = made(described())
    assert found is not None
    assert found.left == ()
    assert shlex.join(found.words) == (
        "docker run -d --name llm -v /srv/models:/models:ro -p 127.0.0.1:18000:8000 --restart unless-stopped "
        "--ipc host --memory 68719476736 --gpus all --ulimit memlock=-1:-1 -e HF_TOKEN -e VLLM_USE_V1=1 "
        f"--entrypoint vllm {IMAGE}"
    )


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        ({"DeviceRequests": [{"Count": 2, "Capabilities": [["gpu"]]}]}, "--gpus 2 "),
        ({"DeviceRequests": [{"DeviceIDs": ["0", "3"], "Capabilities": [["gpu"]]}]}, "--gpus '\"device=0,3\"' "),
        ({"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=1"]}]}, "--device nvidia.com/gpu=1 "),
        ({"IpcMode": "private", "ShmSize": 8 << 30}, "--shm-size 8589934592 "),
        ({"PortBindings": {"8000/tcp": [{"HostIp": "::1", "HostPort": "1"}]}}, "-p '[::1]:1:8000' "),
        ({"RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 3}}, "--restart on-failure:3 "),
        ({"NetworkMode": "host"}, "--network host "),
        ({"Mounts": [{"Type": "bind", "Source": "/a", "Target": "/b", "ReadOnly": True}]},
         "--mount type=bind,source=/a,target=/b,readonly "),
        ({"Devices": [{"PathOnHost": "/dev/a", "PathInContainer": "/dev/b", "CgroupPermissions": "rwm"}]},
         "--device /dev/a:/dev/b "),
        ({"NanoCpus": 1500000000}, "--cpus 1.5 "),
        ({"Tmpfs": {"/tmp": ""}}, "--tmpfs /tmp "),
        ({"MemorySwap": -1}, "--memory-swap -1 "),
        ({"Privileged": True}, "--privileged "),
    ],
)  # fmt: skip
def test_each_setting_is_the_option_that_made_it(host: dict[str, Any], wanted: str) -> None:
    assert wanted in words(host)


def test_a_setting_that_is_not_written_is_named() -> None:
    found = made(described({"BlkioWeight": 300, "Mounts": [{"Type": "bind", "Target": "/b", "BindOptions": {}}]}))
    assert found is not None
    assert found.left == ("BlkioWeight", "Mounts")


@pytest.mark.parametrize(
    "told",
    [
        INSPECT,  # a description without its ports, volumes and restarts
        described(Labels={"com.docker.compose.project": "llm"}),
        described() | {"Path": "sh", "Args": ["-c", "pip install x; vllm serve /models/m"]},
        described({"LogConfig": {"Type": "splunk", "Config": {"splunk-token": "0123456789abcdef0123456789abcdef"}}}),
    ],
)
def test_no_line_where_it_would_be_another_container_or_show_a_secret(told: dict[str, Any]) -> None:
    assert made(told) is None


def test_podman_keeps_the_command_itself() -> None:
    command = ["/usr/bin/podman", "run", "-d", "--name=llm", f"--env=HF_TOKEN={SECRET}", "-eVLLM_USE_V1=1", "--device"]
    command += ["nvidia.com/gpu=all", "vllm/vllm-openai:v0.11.0", "--model", "/models/m"]
    found = made(described(CreateCommand=command), "podman")
    assert found is not None
    assert shlex.join(found.words) == (
        "/usr/bin/podman run -d --name=llm -e HF_TOKEN -e VLLM_USE_V1=1 --device nvidia.com/gpu=all --entrypoint vllm "
        "vllm/vllm-openai:v0.11.0"
    )


def test_a_variable_is_set_replaced_and_taken_away() -> None:
    kept = ("docker", "run", "-e", "A=1", "--env=B=2", "-d", "image")
    assert container.assigned(kept, "A", "3") == ("docker", "run", "-e", "A=3", "--env=B=2", "-d", "image")
    assert container.assigned(kept, "B", None) == ("docker", "run", "-e", "A=1", "-d", "image")


def test_the_answer_has_the_whole_line_with_the_changed_argument(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    told = described()
    told["State"] = {**INSPECT["State"], "OOMKilled": False, "ExitCode": 1}
    told["Args"] = ["serve", "/models/m", "--max-model-len", "131072"]
    (tmp_path / "inspect.json").write_text(json.dumps([told]))
    (tmp_path / "log").write_text(LOG)
    assert run(["diagnose", str(tmp_path / "inspect.json"), str(tmp_path / "log")]) == Exit.FINDINGS
    shown = capsys.readouterr().out
    pasted = shown[shown.index("  docker stop llm") :]
    assert pasted.startswith("  docker stop llm && docker rename llm llm-before\n  # HF_TOKEN: its value is not shown;")
    line = shlex.split(pasted[pasted.index("docker run") :].split("\n\n")[0].replace("\\\n", " "))
    assert line[:5] == ["docker", "run", "-d", "--name", "llm"]
    assert line[line.index("--entrypoint") :][:5] == [
        "--entrypoint",
        "vllm",
        IMAGE,
        "serve",
        "/models/m",
    ]
    assert line[line.index("--max-model-len") + 1] == "32768"
    assert SECRET not in shown


LOG = (
    "ValueError: User-specified max_model_len (131072) is greater than the derived max_model_len "
    "(max_position_embeddings=32768 or model_max_length=None in model's config.json). To allow overriding this "
    "maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1\n"
)


@pytest.mark.parametrize(("most", "option"), [(-1, False), (0, False), (None, False), (1, True), (4096, True)])
def test_a_limit_of_processes_is_written_where_there_is_one(most: int | None, option: bool) -> None:
    """-1 is Docker's word for none; 1 is one."""
    written = _written("PidsLimit", most, {})
    assert written == (["--pids-limit", str(most)] if option else [])

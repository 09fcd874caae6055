"""What a person's file is, told by what is in it: a log, a launch, or what describes a container, a pod, a job."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vllm_doctor.gather import bounded, documents
from vllm_doctor.records.reading import Unknown

BOX = {"Id": "a" * 64, "Name": "/llm", "State": {"Status": "running"}, "Config": {"Image": "vllm/vllm-openai:v0.11.0"}}
POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"},
    "spec": {"containers": [{"name": "llm", "image": "vllm/vllm-openai:v0.11.0"}]}, "status": {"phase": "Running"},
}  # fmt: skip
EVENT = {"kind": "Event", "reason": "BackOff", "message": "m", "involvedObject": {"kind": "Pod"}}
LIST = {"apiVersion": "v1", "kind": "List"}
YAML = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\nstatus: {}\n"
SERVICES = "services:\n  llm:\n    image: vllm/vllm-openai:v0.11.0\n    command: --model org/m\n"
WORKLOAD = (
    "apiVersion: apps/v1\nkind: {kind}\nmetadata:\n  name: llm\nspec:\n  template:\n    spec:\n      containers:\n"
    "        - name: llm\n          image: vllm/vllm-openai:v0.11.0\n          args: [--model, org/m]\n"
)
JOB = "JobId=7 JobName=llm\n   JobState=RUNNING Reason=None\n"
TOLD = (
    "Name:             p\nNamespace:        n\nStatus:           Running\nContainers:\n  llm:\n"
    "    Image:          vllm/vllm-openai:v0.11.0\n    State:          Running\n"
)


@pytest.mark.parametrize(
    ("name", "text", "held"),
    [
        ("a", "INFO 05-21 10:00:00 [x.py:1] a log\n", "log"),
        ("a", "", "log"),
        ("a", '{"Id": 1, "level": "info"}\n', "log"),  # a log of JSON lines
        ("a", "[]", "log"),
        ("a", "[1, 2]", "log"),
        ("a", '{"Id": ', "log"),
        ("a", "kind: [", "log"),
        ("a", "kind: Service\n", "log"),
        ("a", "vllm serve org/m\n", "log"),
        ("a", "#!/bin/sh\nvllm serve org/m\n", "launch"),
        ("a", "#!/bin/sh\necho hello\n", "log"),
        *((f"run{kind}", "vllm serve org/m\n", "launch") for kind in (".sh", ".bash", ".slurm", ".sbatch")),
        ("run.py", "from vllm import LLM\nllm = LLM(model='org/m')\n", "launch"),
        ("run.txt", "vllm serve org/m\n", "log"),
        ("a", SERVICES, "launch"),
        ("a", f"# ours\n\n  # mine\n{SERVICES}", "launch"),
        ("a", f"name: llm\n{SERVICES}", "launch"),
        ("a", f"x-gpu: {{}}\n{SERVICES}", "launch"),
        *(("a", WORKLOAD.format(kind=kind), "launch") for kind in ("Deployment", "StatefulSet", "DaemonSet", "Job")),
        ("a", json.dumps(BOX), "docker:llm"),
        ("a", json.dumps([BOX]), "docker:llm"),
        ("a", f"\n  {json.dumps([BOX])}", "docker:llm"),
        ("a", json.dumps([BOX, {}, 7]), "docker:llm"),
        ("a", json.dumps(POD), "kubernetes:n/p/llm"),
        ("a", json.dumps({**LIST, "items": [POD]}), "kubernetes:n/p/llm"),
        ("a", YAML, "kubernetes:default/p/c"),
        ("a", f"\n{YAML}", "kubernetes:default/p/c"),
        ("a", json.dumps(EVENT), "event"),
        ("a", json.dumps({**LIST, "items": [EVENT]}), "event"),
        ("a", JOB, "slurm:7"),
        ("a", "JobId=7 JobName=llm\n", "log"),
        ("a", TOLD, "kubernetes:n/p/llm"),
        ("a", TOLD.replace("\n", "\r\n"), "kubernetes:n/p/llm"),
        ("a", "Name: of a log\n", "log"),
    ],
)
def test_a_file_is_what_it_holds(tmp_path: Path, name: str, text: str, held: str) -> None:
    file = tmp_path / name
    file.write_bytes(text.encode())
    found = documents.sort([str(file)])
    boxes = [f"{one.container.runtime}:{one.container.name}" for one in found.containers]
    told = ["log"] * len(found.logs) + ["launch"] * len(found.launches) + ["event"] * len(found.events) + boxes
    assert told == [held]
    assert (*found.logs, *found.launches) == ((str(file),) if held in {"log", "launch"} else ())


def test_each_of_several_files_is_told_and_events_are_the_pod_s(tmp_path: Path) -> None:
    """What is no plain file is left to the reader of logs, which says what it is."""
    for name, text in (
        ("log", "x\n"),
        ("run.sh", "vllm serve m\n"),
        ("pod", json.dumps(POD)),
        ("event", json.dumps(EVENT)),
    ):
        (tmp_path / name).write_text(text)
    names = [f"{tmp_path}/{name}" for name in ("event", "run.sh", "log", "none", "pod")]
    found = documents.sort([*names, str(tmp_path)])
    assert found.logs == (names[2], names[3], str(tmp_path))
    assert found.launches == (names[1],)
    assert [one.reason for one in found.events] == ["BackOff"]
    assert [one.container.events for one in found.containers] == [found.events]


@pytest.mark.parametrize(
    ("blocks", "taken"),
    [
        ([json.dumps([BOX]).encode()], True),
        ([b'[{"Id": "' + b"a" * 64, json.dumps([BOX]).encode()[9 + 64 :]], True),
        ([b'{"Id": 1}\n'], False),
        ([b"INFO a log\n", b"and more\n"], False),
        ([], False),
        ([b"Unknown"], False),
        ([json.dumps([BOX]).encode(), OSError()], False),
        ([b'[{"Id": "x"', b" " * (4 << 20), b"}]"], False),
    ],
)
def test_a_description_may_be_piped_and_a_log_is_read_as_it_comes(
    monkeypatch: pytest.MonkeyPatch, blocks: list[bytes | Exception], *, taken: bool
) -> None:
    left, ahead = list(blocks), bytearray()

    class Pipe:
        def read1(self, _: int) -> bytes:
            block = left.pop(0) if left else b""
            if isinstance(block, Exception):
                raise block
            return block

    @contextmanager
    def piped(name: str) -> Iterator[object]:
        yield Unknown("a directory", "x") if blocks == [b"Unknown"] else Pipe()

    monkeypatch.setattr(documents, "opened", piped)
    monkeypatch.setattr(bounded, "_AHEAD", ahead)
    found = documents.sort(["-"])
    assert [one.container.name for one in found.containers] == (["llm"] if taken else [])
    assert found.logs == (() if taken else ("-",))
    whole = b"".join(block for block in blocks if isinstance(block, bytes) and block != b"Unknown")
    assert bytes(ahead) + b"".join(block for block in left if isinstance(block, bytes)) in {whole, b"Unknown"} or taken
    assert not (taken and ahead)

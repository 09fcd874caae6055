"""Programs beside vLLM: each is told by a line of its own, and none by a line of another."""

import pytest

from vllm_doctor.knowledge.programs import forms, program_of, programs
from vllm_doctor.log.match import catalogue, read

LINES = {
    "triton": 'E0314 09:26:59.624700 1 model_lifecycle.cc:654] "failed to load"',
    "kubelet": 'E0314 09:26:59.624700 1412 pod_workers.go:1300] "Error syncing pod, skipping"',
    "kubernetes": 'E0314 09:26:59.624700 1 leaderelection.go:332] "lease lost"',
    "cpp": "E0314 09:26:59.624700 1 transfer_engine.cc:12] no such room",
    "ray-head": "[2026-03-14 09:27:20,002 E 209 223] (raylet) node_manager.cc:1: no such room",
    "containerd": 'time="2026-03-14T09:27:01Z" level=error msg="RunPodSandbox failed"',
    "compose": "dependency failed to start: container room-chat-1 is unhealthy",
    "router": "[2026-03-14 09:11:00,583] WARNING: room/door at http://192.0.2.7:8000 not healthy! (x.py:1:y)",
    "docker": "docker: Error response from daemon: no such room",
    "podman": "Error: statfs /srv/room: no such file or directory",
    "helm": "Error: INSTALLATION FAILED: cannot re-use a name that is still in use",
    "go": "panic: no such room",
    "ray-serve": "controller 71 -- Didn't receive health check response for replica Replica(id='a1') after 10.0s",
    "envoy-answer": "no healthy upstream",
    "json": '{"level":"error","msg":"no such room"}',
    "systemd": "room.service: Failed to set up mount namespacing: /srv/room: No such file or directory",
    "nginx": "nginx: [emerg] no such room",
    "envoy": "[2026-03-14 09:30:00.100][12][critical][main] [source/server/server.cc:131] no such room",
    "argparse": "room: error: argument command: invalid choice: 'open' (choose from 'lock', 'shut')",
    "pip": "ERROR: No matching distribution found for room==9",
    "pip-uv": "  × No solution found when resolving dependencies:",
    "conda": "EnvironmentNameNotFound: Could not find conda environment: room",
    "no-installer": "/start.sh: line 4: pip: command not found",
    "apt": "E: Unable to locate package room",
    "shell": "/start.sh: line 4: ROOM: unbound variable",
    "exec": "exec /usr/local/bin/room: exec format error",
    "rust": "thread 'main' panicked at src/main.rs:12:5:",
    "java": 'Exception in thread "main" java.lang.IllegalStateException: no such room',
    "node": "Error: connect ECONNREFUSED 127.0.0.1:8000",
    "grpc": '\tdetails = "no such room"',
    "enroot": "slurmstepd: error: pyxis:     [ERROR] Command not found: room",
    "haproxy": "[ALERT]    (1) : config : no such room",
    "slurm": "slurmstepd: error: no such room",
    "apptainer": "FATAL:   no such room",
    "any": "10:21AM ERR no such room",
}


def test_each_has_a_line() -> None:
    assert list(LINES) == [one.id for one in programs()]


# What the text around the line tells.
BESIDE = {"apptainer": "$ apptainer exec room.sif"}


@pytest.mark.parametrize("name", LINES)
def test_it_is_told_by_its_line(name: str) -> None:
    line, around = LINES[name], BESIDE.get(name, "")
    told = (program_of(form, line, around) for form in forms() if read(form, line) is not None)
    assert next(one.id for one in told if one is not None) == name


def test_each_form_is_a_row_that_reads_what_was_said() -> None:
    assert all("what" in catalogue()[form].fields for form in forms())


def test_a_word_that_any_script_may_write_tells_no_program() -> None:
    assert program_of("form-error", "Error: no such room") is None
    found = program_of("form-error", "Error: no such room", "podman run room")
    assert found is not None
    assert found.id == "podman"

"""After a start the doctor compares plan and log on the host: told once, kept, and never in the way of a play."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import tests.doctor
from tests import playbook
from tests.plan.models import LLAMA_8B
from tests.roles.vllm.test_plan import SIM

REPO = Path(__file__).parents[3]
PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  vars:
    __vllm_units: [{name: vllm@main, instance: main}]
    __vllm_started: [main]
    __vllm_found: {doctor: "{{ program }}"}
  tasks:
    - ansible.builtin.include_role: {name: vllm_doctor.hosts.vllm, tasks_from: learn}
"""
START = """\
INFO 11-21 [gpu_model_runner.py:1] Model loading took 15.10 GiB memory and 9 s
INFO 11-21 [gpu_worker.py:2] Available KV cache memory: 53.00 GiB"""


def executable(path, text):
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def play(tmp_path):
    """Run the role's task over the real doctor, on a host with two H100s; systemd and journal are told by files."""
    subprocess.run([sys.executable, SIM / "build.py", tmp_path], check=True)
    (tmp_path / "nvml-sim").symlink_to(SIM / "profiles/h100x2.txt")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    release, tools = tmp_path / "release", tmp_path / "bin"
    tools.mkdir()

    def run(start=START, version="0.32.0"):
        (release / f"lib/python3.12/site-packages/vllm-{version}.dist-info").mkdir(parents=True, exist_ok=True)
        argv = f"{release}/bin/vllm serve {tmp_path} --max-model-len 8192"
        executable(
            tools / "systemctl",
            "#!/bin/sh\nprintf '%s\\n' Id=vllm@main.service LoadState=loaded ActiveState=active SubState=running "
            f"InvocationID=abc 'ExecStart={{ path=x ; argv[]={argv} ; ignore_errors=no }}'\n",
        )
        rows = "\n".join(json.dumps({"MESSAGE": line, "__CURSOR": str(n)}) for n, line in enumerate(start.splitlines()))
        (tmp_path / "journal").write_text(rows + "\n")
        executable(tools / "journalctl", f"#!/bin/sh\ncat {tmp_path}/journal\n")
        doctor = shlex.join(tests.doctor.command(tools))
        executable(tmp_path / "vllm-doctor", f'#!/bin/sh\nexec {doctor} "$@"\n')
        (tmp_path / "play.yml").write_text(PLAY)
        env = {
            **os.environ,
            "LD_LIBRARY_PATH": str(tmp_path),
            "VLLM_DOCTOR_STATE": str(tmp_path / "state"),
            "ANSIBLE_COLLECTIONS_PATH": str(REPO / "collections"),
        }
        given = f"program={tmp_path}/vllm-doctor site_reports="
        done = playbook.play([tmp_path / "play.yml", "-i", "localhost,", "-e", given], env=env)
        return done.returncode, done.stdout + done.stderr

    return run


def test_the_difference_is_said_once_and_kept(play, tmp_path):
    code, said = play()
    assert code == 0, said
    assert "KV cache" in said
    assert "53.0 GiB logged" in " ".join(said.split())
    assert "changed=1" in said
    assert (tmp_path / "state/starts.json").exists()
    again = play()[1]
    assert "changed=0" in again
    assert "GiB logged" not in " ".join(again.split())


@pytest.mark.parametrize("start", ["", "a journal that was rotated away"])
def test_a_start_that_cannot_be_read_does_not_end_the_play(play, start):
    code, said = play(start)
    assert code == 0, said
    assert "changed=0" in said


def test_the_cpu_build_has_nothing_to_compare(play):
    code, said = play(version="0.32.0+cpu")
    assert code == 0, said
    assert "changed=0" in said

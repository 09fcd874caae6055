"""The plan between inventory and units: asked on the host as it is, put under the inventory, and able to refuse."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plan.models import LLAMA_8B
from tests.playbook import play
from tests.roles.vllm.plugins import load
from vllm_doctor.knowledge import gpus

plan = load("plugins/filter/vllm_plan.py")
module = load("plugins/modules/vllm_plan.py")
SIM = Path(__file__).parents[2] / "nvml_sim"


def unit(model, **changes):
    return {
        "name": "vllm@main",
        "template": "auto",
        "version": "0.32.0",
        "model": str(model),
        "gpus": ["GPU-11111111-2222-3333-4444-000000000000"],
        "arguments": {"host": "127.0.0.1", "port": 8000, "max-model-len": 8192},
        "environment": {},
    } | changes


@pytest.fixture(scope="session")
def host(tmp_path_factory):
    """A function that runs the doctor as on a host with two H100s: the real program over a simulated driver."""
    folder = tmp_path_factory.mktemp("nvml")
    subprocess.run([sys.executable, SIM / "build.py", folder], check=True)
    (folder / "nvml-sim").symlink_to(SIM / "profiles/h100x2.txt")
    env = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    env["VLLM_DOCTOR_STATE"] = str(folder)

    def run(command):
        program = [sys.executable, "-c", "from vllm_doctor.cli.main import entry; entry()"]
        done = subprocess.run(
            [*program, *command[1:]], env=env, capture_output=True, text=True, timeout=300, check=False
        )
        return {"rc": done.returncode, "stdout": done.stdout, "stderr": done.stderr}

    run.env = env
    return run


def asked(host, one):
    """What the module answers about one service, with the doctor of `host`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ask", host)
        return module.plan(one, "vllm-doctor", "/r")


def test_what_the_plan_adds_nothing_to_is_not_asked_twice(model):
    calls = []

    def doctor(command):
        calls.append(command)
        told = {"predicted": {"outcome": "ok"}, "recommended": {"launch": {"max-num-seqs": 9}}, "card": {}}
        return {"rc": 0, "stdout": json.dumps(told), "stderr": ""}

    given = unit(model, arguments={"max-num-seqs": 9})
    assert asked(doctor, given)["judged"]["rc"] == 0
    assert len(calls) == 1
    assert asked(doctor, unit(model))["planned"]["arguments"]["max-num-seqs"] == 9
    assert [words[-4:] for words in calls[2:]] == [["--max-num-seqs", "9", "--max-model-len", "8192"]]


@pytest.fixture
def model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    return tmp_path


def test_the_card_that_the_host_has_gives_numbers_and_template(host, model):
    one = unit(model)
    answer = host(module.command(one, "vllm-doctor", "/opt/vllm/releases/x"))
    assert answer["rc"] == 0, answer["stderr"]
    made = module.planned(one, answer["stdout"])
    assert made["template"] == gpus.template_for("NVIDIA H100 80GB HBM3") == "h100-sxm"
    assert made["arguments"]["max-num-batched-tokens"] >= 8192
    assert made["arguments"]["port"] == 8000


def test_the_inventory_goes_before_the_plan(host, model):
    one = unit(model, template="generic", arguments={"max-model-len": 8192, "max-num-seqs": 7})
    made = asked(host, one)["planned"]
    assert made["arguments"]["max-num-seqs"] == 7
    assert made["template"] == "generic"


def test_what_fits_is_not_refused(host, model):
    one = unit(model)
    assert plan.refused([asked(host, one)]) == []


def test_an_override_that_cannot_fit_is_refused_with_the_sum(host, model):
    one = unit(model, arguments={"max-model-len": 131072, "gpu-memory-utilization": 0.25})
    row = plan.refused([asked(host, one)])[0]
    assert "kv-too-small on 1 x NVIDIA H100 80GB HBM3" in row["found"]
    assert "weights" in row["found"]
    assert row["needed"].startswith("8.0 GiB of KV cache")
    assert row["do"].startswith("vllm_max_model_len: ")


def test_a_plan_that_cannot_be_made_is_said_and_not_passed_over(host, tmp_path):
    one = unit(tmp_path / "nothing")
    row = plan.refused([asked(host, one)])[0]
    assert "config" in row["found"]
    assert "vllm_plan_on_host" in row["do"]


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo \"ModuleNotFoundError: No module named 'msgspec'\" >&2; exit 1", "No module named 'msgspec'"),
        ("echo '[]'", "vllm-doctor: exit code 0 without an answer in JSON"),
        ("echo half; exit 3", "vllm-doctor: exit code 3 without an answer in JSON"),
    ],
)
def test_an_exit_code_of_an_answer_without_one_is_refused_with_what_the_program_said(model, tmp_path, script, found):
    """1 is the doctor's answer, and what Python itself ends with where a module is gone."""
    program = tmp_path / "vllm-doctor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    told = module.plan(unit(model), str(program), "/r")
    assert told["judged"]["rc"] == 127
    row = plan.refused([told])[0]
    assert row["found"].endswith(found)
    assert "vllm_plan_on_host" in row["do"]


def test_the_plan_is_asked_only_what_is_memory(model):
    one = unit(model, arguments={"api-key": "secret", "host": "::", "enforce-eager": True, "trust-remote-code": False})
    words = module.command(one | {"environment": {"HF_TOKEN": "secret", "VLLM_USE_V1": "1"}}, "d", "/r")
    assert "secret" not in " ".join(words)
    assert words[-4:] == ["serve", str(model), "--enforce-eager", "--no-trust-remote-code"]
    assert "VLLM_USE_V1=1" in words


PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  vars:
    __vllm_found: {doctor: "{{ program }}"}
  tasks:
    - ansible.builtin.include_role: {name: vllm_doctor.hosts.vllm, tasks_from: preflight}
    - ansible.builtin.include_role: {name: vllm_doctor.hosts.vllm, tasks_from: plan}
    - ansible.builtin.include_role: {name: vllm_doctor.hosts.vllm, tasks_from: render}
      vars: {__vllm_to_render: "{{ __vllm_planned }}"}
    - ansible.builtin.copy: {content: "{{ __vllm_rendered['main'] }}", dest: "{{ out }}", mode: "0644"}
"""


@pytest.fixture
def role(tmp_path, host, model):
    """A function that runs the role's own tasks here, as on a host with two H100s; its exit code, output and unit."""
    program = tmp_path / "vllm-doctor"
    main = "from vllm_doctor.cli.main import entry; entry()"
    program.write_text(
        f"#!/bin/sh\nLD_LIBRARY_PATH={host.env['LD_LIBRARY_PATH']} exec {sys.executable} -c '{main}' \"$@\"\n"
    )
    program.chmod(0o755)
    (tmp_path / "play.yml").write_text(PLAY)

    def run(**variables):
        given = {
            "out": str(tmp_path / "unit"),
            "program": str(program),
            "vllm_model": str(model),
            "vllm_variant": "cu130",
            "vllm_unit_template": "h100-sxm",
            "vllm_gpus": ["GPU-11111111-2222-3333-4444-000000000000"],
            "site_reports": "",
        } | variables
        done = play(
            [tmp_path / "play.yml", "-i", "localhost,", "-e", json.dumps(given)],
            env=host.env | {"ANSIBLE_COLLECTIONS_PATH": str(Path(__file__).parents[3] / "collections")},
        )
        rendered = (tmp_path / "unit").read_text() if done.returncode == 0 else ""
        return done.returncode, done.stdout + done.stderr, rendered

    return run


def test_the_role_renders_the_units_from_the_plan(role):
    code, said, rendered = role(vllm_max_model_len=8192, vllm_max_num_seqs=7)
    assert code == 0, said
    assert "--max-num-batched-tokens 16384" in rendered
    assert "--max-num-seqs 7" in rendered
    assert "DeviceAllow=char-nvidia" in rendered


def test_the_role_refuses_an_override_that_cannot_fit(role):
    code, said, _ = role(vllm_max_model_len=131072, vllm_gpu_memory_utilization=0.25)
    assert code != 0
    assert "kv-too-small on 1 x" in said
    assert "vllm_max_model_len: " in said


def test_the_role_does_not_launch_unplanned(role):
    code, said, _ = role(program="")
    assert code != 0
    assert "role vllm_doctor before this one" in said.replace("\\n", " ").replace("\n", " ")


def test_without_a_card_the_template_is_found_without_asking():
    units = load("plugins/filter/vllm_units.py")
    assert units._template("auto", "cpu") == "cpu"
    assert units._template("auto", "default") == "auto"
    assert units._template("l4", "cpu") == "l4"
    assert units.known(unit("/m"))["template"] == "generic"


def test_what_the_plan_chose_is_said_beside_what_the_inventory_sets(host, model):
    one = unit(model, arguments={"max-model-len": 8192, "max-num-seqs": 24})
    said = plan.chosen(asked(host, one))
    assert said.startswith("vllm@main on 1 x NVIDIA H100 80GB HBM3: --")
    assert "--gpu-memory-utilization" in said
    assert "--max-num-seqs" not in said


def test_a_launch_of_which_the_plan_is_not_sure_goes_on_and_that_is_said(model):
    predicted = {"outcome": "kv-too-small", "verdict": "uncertain", "odds": 0.74}
    told = {"predicted": predicted, "card": {"gpus": 1, "name": "NVIDIA A10"}, "recommended": {}}
    answer = asked(lambda _: {"rc": 3, "stdout": json.dumps(told), "stderr": ""}, unit(model))
    assert plan.refused([answer]) == []
    assert plan.chosen(answer).endswith("; whether it starts is uncertain, in about 75 of 100 such cases")


def test_a_launch_that_nobody_can_tell_is_refused_with_what_to_read(model):
    told = {"predicted": {"outcome": "unknown", "verdict": "unknown"}, "card": {"gpus": 1, "name": "NVIDIA A10"}}
    row = plan.refused([asked(lambda _: {"rc": 3, "stdout": json.dumps(told), "stderr": ""}, unit(model))])[0]
    assert "is unknown" in row["found"]
    assert "vllm-doctor plan --explain -- vllm serve" in row["do"]
    assert "None" not in " ".join(row.values())

"""Two hosts go from one release to the next, in vain and then for good, and one of them back.

Each test finds what the one before left; the playbooks are played as an operator does.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
import testinfra

REPO = Path(__file__).resolve().parents[5]
BODY = json.dumps({"model": "tiny", "prompt": "Hello", "max_tokens": 2, "ignore_eos": True})


@pytest.fixture(scope="module")
def other():
    """The second host."""
    return testinfra.get_host(f"podman://{os.environ['TEST_HOSTS']}-{os.environ['MOLECULE_SCENARIO_NAME']}-other")


def play(playbook, *options, **variables):
    """Play a playbook over the scenario's inventory; (exit code, output)."""
    inventory = os.environ["MOLECULE_INVENTORY_FILE"]
    done = subprocess.run(
        ["ansible-playbook", f"playbooks/{playbook}.yml", "-i", inventory, *options, "-e", json.dumps(variables)],
        cwd=REPO,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(REPO / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_FORCE_COLOR": "0",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, " ".join(done.stdout.split())  # Ansible wraps long messages


def serves(host):
    """The version that completes a prompt."""
    header = "Content-Type: application/json"
    answer = host.check_output(f"curl -sf -H '{header}' -d '{BODY}' http://127.0.0.1:8000/v1/completions")
    assert json.loads(answer)["usage"]["completion_tokens"] == 2
    return json.loads(host.check_output("curl -sf http://127.0.0.1:8000/version"))["version"].partition("+")[0]


def releases(host):
    return [name.partition("+")[0] for name in host.check_output("ls /opt/vllm/releases").split()]


def pid(host):
    return host.check_output("systemctl show vllm@main -p MainPID --value")


def test_the_first_release_serves(host, other):
    assert [serves(one) for one in (host, other)] == ["0.31.0", "0.31.0"]


def test_a_release_that_does_not_answer_is_put_back_explained_and_the_next_host_is_left_alone(host, other):
    before = pid(host), pid(other)

    code, output = play("upgrade", vllm_max_model_len=100000)

    assert code != 0
    assert output.count("0.31.0+cpu-") >= 2, "from which release"
    assert output.count(" -> 0.32.0+cpu") == 2, "to which"
    assert "VD121" in output
    assert "KV cache" in output
    assert "vllm@main: what served before is back and answers (0.31.0+cpu-" in output
    assert (serves(host), serves(other)) == ("0.31.0", "0.31.0")
    assert pid(host) != before[0]
    assert pid(other) == before[1], "the second host was touched"
    assert releases(other) == ["0.31.0", "0.32.0"], "all hosts are prepared before the first is drained"
    assert "other" not in output.partition("PLAY [Serve")[2].partition("PLAY RECAP")[0]


def test_a_release_that_answers_serves_on_one_host_after_the_other_and_old_ones_go(host, other):
    """Two more releases lie on the host: nothing needs one of them, a process runs from the other."""
    folder = "/opt/vllm/releases"
    host.check_output(
        f"mkdir -p {folder}/0.29.0+cpu-used/bin {folder}/0.30.0+cpu-spare"
        f" && touch {folder}/0.29.0+cpu-used/.complete {folder}/0.30.0+cpu-spare/.complete"
        f" && cp /usr/bin/sleep {folder}/0.29.0+cpu-used/bin/"
        f" && systemd-run --quiet --unit=test-trial {folder}/0.29.0+cpu-used/bin/sleep infinity"
    )

    code, output = play("upgrade", vllm_keep_releases=1)

    assert code == 0, output
    assert (serves(host), serves(other)) == ("0.32.0", "0.32.0")
    served = output.partition("PLAY [Serve")[2]
    assert served.index("changed: [host]") < served.index("changed: [other]")
    assert releases(host) == ["0.29.0", "0.31.0", "0.32.0"]
    assert releases(other) == ["0.31.0", "0.32.0"]


def test_rollback_of_one_host_goes_back_and_keeps_the_way_forward(host, other):
    untouched = pid(other)
    code, output = play("rollback", "--limit", "host")
    assert code == 0, output
    assert "The inventory still says vllm_version: 0.32.0" in output
    assert (serves(host), serves(other)) == ("0.31.0", "0.32.0")
    assert pid(other) == untouched
    assert {"0.31.0", "0.32.0"} <= set(releases(host))
    assert "0.31.0" in host.check_output("cat /opt/vllm/served/main/now/release")
    assert "0.32.0" in host.check_output("cat /opt/vllm/served/main/before/release")
    assert "vLLM 0.31.0" in host.check_output("systemctl show vllm@main -p Description --value")
    assert host.service("vllm@main").is_enabled

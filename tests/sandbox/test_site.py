"""site.yml against the sandbox: what cannot work is refused, or undone and explained, and the old service answers."""

import json
import re
from pathlib import Path

import pytest

from tests.sandbox.conftest import Host, site


class Inventory:
    """The sandbox's inventory with one line laid over it, as an operator edits a line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "group_vars" / "vllm.yml"
        self.file.parent.mkdir()
        (folder / "hosts.yml").write_text("vllm:\n  hosts:\n    sandbox:\n")

    def says(self, line: str) -> None:
        self.file.write_text(f"---\n{line}\n")


def served_length(host: Host) -> int:
    """The context that the service which answers was started with; it must complete a prompt to count.

    Its weights are random and its tokens are drawn: one of them may end the text, unless the end is ignored.
    """
    body = json.dumps({"model": "tiny", "prompt": "Hello", "max_tokens": 2, "ignore_eos": True})
    header = "Content-Type: application/json"
    answer = json.loads(host.run(f"curl -sf -H '{header}' -d '{body}' http://127.0.0.1:8000/v1/completions"))
    assert answer["usage"]["completion_tokens"] == 2
    models = json.loads(host.run("curl -sf http://127.0.0.1:8000/v1/models"))
    return int(models["data"][0]["max_model_len"])


@pytest.fixture(autouse=True)
def served(host: Host) -> None:
    """Nothing is about to end what serves."""
    host.ready()


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    return Inventory(tmp_path)


def test_a_flag_that_the_release_does_not_know_is_refused_before_the_host_is_asked(
    host: Host, inventory: Inventory
) -> None:
    inventory.says("vllm_extra_args: {disable-log-requests: true}")
    pid, unit = host.main_pid(), host.run(f"sha256sum {host.file}")

    refused = site("-i", str(inventory.folder))

    assert refused.returncode != 0
    assert "--disable-log-requests" in refused.stdout
    assert "a flag that vLLM 0.32.0 knows" in refused.stdout
    assert "Gathering Facts" not in refused.stdout
    assert "changed=0" in refused.stdout
    assert (host.main_pid(), host.run(f"sha256sum {host.file}")) == (pid, unit)


def stopped_by_hand_is_no_fault(host: Host) -> None:
    host.run(f"systemctl stop {host.unit}")
    code, verdict = host.diagnose()
    assert (code, verdict["verdict"], verdict["findings"]) == (0, "ok", [])
    assert "stopped" in verdict["path"][-1]["because"]


def test_a_context_that_does_not_fit_is_undone_and_explained_and_the_line_it_names_works(
    host: Host, inventory: Inventory
) -> None:
    """Between the two somebody stops what serves, so each start of the model is asked for all that it can show."""
    length = served_length(host)
    inventory.says("vllm_max_model_len: 100000")

    failed = site("-i", str(inventory.folder))

    assert failed.returncode != 0
    assert "VD121 The KV cache cannot hold one request of 100000 tokens" in failed.stdout, failed.stdout
    assert "1.53 GiB" in failed.stdout, failed.stdout
    assert re.search(r"sum: +available = 1(\.0)? GiB", failed.stdout), failed.stdout
    assert f"in {inventory.file}:2" in failed.stdout, failed.stdout
    assert "what served before is back and answers" in failed.stdout
    assert served_length(host) == length

    line = re.search(r"change: (vllm_max_model_len: (\d+))", failed.stdout)
    assert line
    assert length < int(line[2]) < 100000
    stopped_by_hand_is_no_fault(host)
    inventory.says(line[1])

    served = site("-i", str(inventory.folder))

    assert served.returncode == 0, served.stdout
    assert served_length(host) == int(line[2])

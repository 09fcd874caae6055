"""What is served from a folder that a hub filled, and where its token is not."""

import json
import shlex

import pytest

UNIT, ADAPTERS = "vllm@main.service", "vllm@adapters.service"
STORE = "/var/lib/vllm-models"
FOLDER = f"{STORE}/acme--tiny/0123456789abcdef0123456789abcdef01234567"
ADAPTER = f"{STORE}/acme--tiny-sql/fedcba9876543210fedcba9876543210fedcba98"
TOKEN = "molecule-hub-t0ken"  # noqa: S105


def main_pid(host, unit=UNIT):
    return host.check_output(f"systemctl show {unit} -p MainPID --value")


def arguments(host, unit=UNIT):
    return host.check_output(f"tr '\\0' '\\n' < /proc/{main_pid(host, unit)}/cmdline").splitlines()


def environment(host):
    lines = host.check_output(f"tr '\\0' '\\n' < /proc/{main_pid(host)}/environ").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


@pytest.mark.parametrize(("name", "port"), [("acme/tiny", 8000), ("acme/tiny", 8001), ("sql", 8001)])
def test_model_and_adapter_answer_by_the_names_that_the_inventory_has(host, name, port):
    body = json.dumps({"model": name, "prompt": "Hello", "max_tokens": 2, "ignore_eos": True})
    asked = (
        f"curl -sf -H 'Content-Type: application/json' -d {shlex.quote(body)} http://127.0.0.1:{port}/v1/completions"
    )
    assert json.loads(host.check_output(asked))["usage"]["completion_tokens"] == 2


def test_the_service_runs_offline_from_the_folder(host):
    words = arguments(host)
    assert words[words.index("serve") + 1] == FOLDER
    assert "--revision" not in words
    assert environment(host)["HF_HUB_OFFLINE"] == "1"


def test_the_service_can_only_read_the_model(host):
    inside = f"nsenter --target {main_pid(host)} --mount --"
    assert host.run(f"{inside} test -r {FOLDER}/config.json").rc == 0
    assert host.run(f"{inside} touch {FOLDER}/x").rc != 0
    for place in (STORE, FOLDER, f"{FOLDER}/model.safetensors"):
        assert (host.file(place).user, host.file(place).mode & 0o022) == ("root", 0), place


def test_weights_are_there_once_and_the_marker_has_every_file(host):
    there = set(host.check_output(f"cd {FOLDER} && find . -type f -printf '%P\\n'").split())
    marker = json.loads(host.file(f"{FOLDER}/.complete.json").content_string)
    assert marker["complete"] is True
    assert there == {*marker["files"], ".complete.json"}
    assert "model.safetensors" in there
    assert not {"pytorch_model.bin", "original/consolidated.00.pth"} & there


def test_the_adapter_came_whole_and_can_only_be_read(host):
    words = arguments(host, ADAPTERS)
    assert words[words.index("--lora-modules") + 1] == f"sql={ADAPTER}"
    marker = json.loads(host.file(f"{ADAPTER}/.complete.json").content_string)
    assert (marker["complete"], sorted(marker["files"])) == (True, ["adapter_config.json", "adapter_model.safetensors"])
    assert host.run(f"nsenter --target {main_pid(host, ADAPTERS)} --mount -- touch {ADAPTER}/x").rc != 0


def test_a_killed_download_left_nothing_behind(host):
    assert host.run("find /srv/second -name .partial").stdout == ""
    assert host.check_output("systemctl list-units --all --no-legend 'vllm-fetch-*'") == ""


def test_the_token_lies_encrypted_where_root_alone_can_read_it(host):
    assert host.check_output("ls -A /etc/vllm").split() == ["hub-token.encrypted"]
    file = host.file("/etc/vllm/hub-token.encrypted")
    assert (file.user, file.mode) == ("root", 0o600)
    assert TOKEN not in file.content_string
    assert host.check_output("systemd-creds decrypt --name=hub-token /etc/vllm/hub-token.encrypted -") == TOKEN
    assert host.run("runuser -u vllm -- cat /etc/vllm/hub-token.encrypted").rc != 0


def test_the_token_is_in_no_unit_process_list_journal_environment_or_readable_file(host):
    for command in (
        f"systemctl cat {UNIT}",
        f"systemctl show {UNIT}",
        "ps axwwe -o args",
        "journalctl --no-pager -o verbose",
        "cat /proc/[0-9]*/environ | tr '\\0' '\\n'",
        "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'",
    ):
        assert TOKEN not in host.run(command).stdout, command
    assert "LoadCredential" not in host.check_output(f"systemctl cat {UNIT}")
    # The hub itself knows its token; nothing else that is on the disk has it.
    places = "/etc /opt/vllm /var/lib /var/log /var/cache/vllm /tmp /var/tmp /root /run"
    assert host.run(f"grep -rlsIF --exclude-dir=vllm-doctor-uv {TOKEN} {places}").stdout == ""

"""playbooks/export_monitoring.yml on the example inventory: no host is asked."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.debian import program

BIN = Path(sys.executable).parent
REPO = Path(__file__).parents[2]
WATCHER = Path(__file__).with_name("watcher.yml")


def watched(*words: str) -> str:
    """What a person sees of playbooks/monitoring.yml with a host that watches beside the example; none is reached."""
    inventory = ["-i", "inventories/example", "-i", WATCHER]
    hosts = {"ansible_host": "127.0.0.1", "ansible_port": 1, "site_reports": "", "vault_vllm_api_key": "of-a-test"}
    command = [BIN / "ansible-playbook", *inventory, "playbooks/monitoring.yml", "-e", json.dumps(hosts), *words]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return " ".join((done.stdout + done.stderr).split())


def test_a_limit_with_the_watcher_and_without_a_server_is_refused_since_nobody_would_watch_it() -> None:
    told = watched("-e", "monitoring_allow_open=true", "--limit", "gpu01.example.net,watch.example.net")
    assert "--limit gpu01.example.net,watch.example.net has watch.example.net of the group monitoring" in told
    assert "leaves out gpu02.example.net, gpu03.example.net, gpu04.example.net, edge01.example.net" in told
    assert "UNREACHABLE" not in told


@pytest.mark.parametrize("words", [("--limit", "gpu01.example.net"), ()])
def test_a_limit_to_servers_alone_and_a_run_without_one_get_as_far_as_the_hosts(words: tuple[str, ...]) -> None:
    assert "UNREACHABLE" in watched("-e", "monitoring_allow_open=true", *words)


def test_the_watcher_is_not_held_up_by_a_host_that_is_to_be_without_vllm(tmp_path: Path) -> None:
    absent = tmp_path / "absent.yml"
    absent.write_text("vllm: {hosts: {gpu02.example.net: {site_state: absent}}}\n")
    told = watched("-e", "monitoring_allow_open=true", "-i", str(absent), "--limit", "all:!gpu02.example.net")
    assert "UNREACHABLE" in told
    told = watched("-e", "monitoring_allow_open=true", "-i", str(absent))
    assert "fatal: [gpu01.example.net]: UNREACHABLE" in told
    assert "fatal: [gpu02.example.net]: UNREACHABLE" not in told


def test_a_host_that_is_no_longer_watched_is_left_to_the_last_play(tmp_path: Path) -> None:
    """Its listener is not judged, no exporter is put on it, and the watcher may be played without it."""
    absent = tmp_path / "absent.yml"
    absent.write_text("vllm: {hosts: {gpu02.example.net: {monitoring_state: absent}}}\n")
    told = watched("-i", str(absent), "--limit", "gpu02.example.net")
    assert "node-exporter would listen" not in told
    assert "fatal: [gpu02.example.net]: UNREACHABLE" in told
    assert told.index("PLAY [Remove what watches from hosts with monitoring_state absent]") < told.index("UNREACHABLE")
    told = watched("-e", "monitoring_allow_open=true", "-i", str(absent), "--limit", "all:!gpu02.example.net")
    assert "leaves out" not in told
    assert "fatal: [gpu01.example.net]: UNREACHABLE" in told


def test_exporters_that_are_open_on_many_hosts_are_one_refusal() -> None:
    told = watched("--limit", "gpu01.example.net,gpu02.example.net")
    assert "gpu01.example.net, gpu02.example.net: node-exporter would listen on 0.0.0.0, which others reach" in told
    assert told.count("which others reach") == 1


def play(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    named = ["-i", "inventories/example", "playbooks/export_monitoring.yml", "-e", f"monitoring_export={folder}"]
    more = ["-e", '{"site_reports": ""}', "-e", "vault_vllm_api_key=not-in-the-files", *words]
    command = [BIN / "ansible-playbook", *named, *more]
    return subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)


def test_a_site_with_a_prometheus_takes_the_files(tmp_path: Path) -> None:
    done = play(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    dashboards = {"dashboards/fleet.json", "dashboards/host.json"}
    assert names == {"rules/vllm.rules.yml", "targets/vllm.json", "targets/node.json", "scrape.yml"} | dashboards
    targets = json.loads((tmp_path / "targets/vllm.json").read_text())
    assert len(targets) == 13  # gpu04 has two services
    (code,) = [one for one in targets if one["labels"]["unit"] == "vllm@code.service"]
    assert code["targets"] == ["gpu04.example.net:8001"]
    assert code["labels"]["model"] == "qwen-coder"
    assert code["labels"]["card"] == "NVIDIA H100 80GB HBM3"
    checked = subprocess.run(
        [program("promtool"), "check", "config", "scrape.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and "not-in-the-files" in path.read_text()]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-e", "vllm_host=127.0.0.1"), "set vllm_host to an address"),
        (("-e", '{"monitoring_numbers": {"kv_hihg": 1}}'), "no number of the alerts is called"),
    ],
)
def test_what_cannot_be_watched_is_refused_by_name(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    done = play(tmp_path, *words)
    assert done.returncode != 0
    assert told in " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize("state", ["site_state", "monitoring_state"])
def test_a_host_that_is_to_be_without_vllm_or_its_exporter_is_no_target(tmp_path: Path, state: str) -> None:
    absent = tmp_path / "absent.yml"
    absent.write_text(f"vllm: {{hosts: {{gpu02.example.net: {{{state}: absent}}}}}}\n")
    done = play(tmp_path / "out", "-i", str(absent))
    assert done.returncode == 0, done.stdout + done.stderr
    for name, count in (("vllm", 12), ("node", 11)):
        hosts = [one["labels"]["host"] for one in json.loads((tmp_path / f"out/targets/{name}.json").read_text())]
        assert len(hosts) == count
        assert "gpu02.example.net" not in hosts


def test_files_without_some_hosts_are_refused(tmp_path: Path) -> None:
    done = play(tmp_path, "--limit", "h100,localhost")
    assert done.returncode != 0
    assert "--limit h100,localhost: the files have the targets and rules of all hosts" in " ".join(done.stdout.split())
    assert list(tmp_path.iterdir()) == []


def test_each_value_that_has_the_wrong_shape_is_named_in_one_run(tmp_path: Path) -> None:
    receivers = [{"name": "a", "type": "webhook", "channl": "b"}, {"type": "slack"}, {"name": "c", "type": "pager"}]
    wrong = {
        "monitoring_numbers": ["kv_high"],
        "monitoring_labels": ["site"],
        "monitoring_receivers": receivers,
        "monitoring_keep_days": "many",
    }
    done = play(tmp_path, "-e", json.dumps(wrong))
    assert done.returncode != 0
    told = " ".join(done.stdout.split())
    for words in (
        "argument 'monitoring_keep_days' is of type str",
        "argument 'monitoring_numbers' is of type list",
        "argument 'monitoring_labels' is of type list",
        "missing required arguments: name found in monitoring_receivers",
        "must be one of: email, slack, pagerduty, webhook, got: pager found in monitoring_receivers",
        "monitoring_receivers.channl. Supported parameters include",
    ):
        assert words in told


def test_the_report_of_a_play_that_failed_on_the_controller_has_no_secret_of_a_host(tmp_path: Path) -> None:
    """A play that failed leaves the inventory cut to its own hosts; what is hidden are the secrets of all."""
    wrong = {"monitoring_numbers": {"s3cr3t-of-gpu01": 1}, "site_reports": str(tmp_path / "reports")}
    done = play(tmp_path, "-e", json.dumps(wrong), "-e", "vault_vllm_api_key=s3cr3t-of-gpu01")
    assert "no number of the alerts is called" in " ".join(done.stdout.split())
    (text,), (file,) = (sorted((tmp_path / "reports").glob(f"*.{kind}")) for kind in ("txt", "json"))
    assert "no number of the alerts is called" in text.read_text()
    assert "s3cr3t" not in text.read_text() + file.read_text()

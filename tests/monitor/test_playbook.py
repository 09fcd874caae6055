"""playbooks/export_monitoring.yml on the example inventory: no host is asked."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.debian import program

BIN = Path(sys.executable).parent
REPO = Path(__file__).parents[2]
WATCHER = Path(__file__).with_name("watcher.yml")
EXAMPLE = REPO / "inventories/example"
HOSTS = ("gpu01", "gpu02", "gpu03", "edge01", "watch")


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with four of its twelve hosts: each host of a run is composed, which is half of what a run takes."""
    folder = tmp_path_factory.mktemp("inventories") / "few"
    shutil.copytree(REPO / "inventories/example", folder)
    hosts = (folder / "hosts.yml").read_text()
    for many, kept in (("gpu[01:04]", "gpu[01:03]"), ("edge[01:08]", "edge[01:01]")):
        assert many in hosts
        hosts = hosts.replace(many, kept)
    (folder / "hosts.yml").write_text(hosts)
    (folder / "host_vars/gpu04.example.net.yml").unlink()
    return folder


def absent(folder: Path, **states: str) -> Path:
    """Beside an inventory: hosts that one of the two states takes away, by the state."""
    file = folder / "absent.yml"
    hosts = {f"{host}.example.net": {state: "absent"} for state, host in states.items()}
    file.write_text(json.dumps({"vllm": {"hosts": hosts}}))
    return file


def watched(inventory: Path, *words: str) -> str:
    """What a person sees of playbooks/monitoring.yml with a host that watches beside the example; none is reached."""
    hosts = {"ansible_host": "127.0.0.1", "ansible_port": 1, "site_reports": "", "vault_vllm_api_key": "of-a-test"}
    named = ["-i", str(inventory), "-i", str(WATCHER), "playbooks/monitoring.yml", "-e", json.dumps(hosts)]
    command = [str(BIN / "ansible-playbook"), *named, *words]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return " ".join((done.stdout + done.stderr).split())


def test_a_limit_with_the_watcher_and_without_a_server_is_refused_since_nobody_would_watch_it(few: Path) -> None:
    told = watched(few, "-e", "monitoring_allow_open=true", "--limit", "gpu01.example.net,watch.example.net")
    assert "--limit gpu01.example.net,watch.example.net has watch.example.net of the group monitoring" in told
    assert "leaves out gpu02.example.net, gpu03.example.net, edge01.example.net, whose" in told
    assert "UNREACHABLE" not in told


def test_a_limit_to_servers_alone_gets_as_far_as_the_hosts(few: Path) -> None:
    told = watched(few, "-e", "monitoring_allow_open=true", "--limit", "gpu01.example.net")
    assert "fatal: [gpu01.example.net]: UNREACHABLE" in told


def test_without_a_limit_all_hosts_are_asked_but_those_without_vllm_and_those_that_are_no_longer_watched(
    few: Path, tmp_path: Path
) -> None:
    gone = absent(tmp_path, site_state="gpu02", monitoring_state="gpu03")
    told = watched(few, "-e", "monitoring_allow_open=true", "-i", str(gone))
    asked = {host for host in HOSTS if f"fatal: [{host}.example.net]: UNREACHABLE" in told}
    assert asked == {"gpu01", "edge01"}


def test_the_watcher_is_not_held_up_by_hosts_that_are_to_be_without_vllm_or_are_no_longer_watched(
    few: Path, tmp_path: Path
) -> None:
    """Neither is one that Prometheus would no longer ask."""
    gone = absent(tmp_path, site_state="gpu02", monitoring_state="gpu03")
    limit = "all:!gpu02.example.net:!gpu03.example.net"
    told = watched(few, "-e", "monitoring_allow_open=true", "-i", str(gone), "--limit", limit)
    assert "leaves out" not in told
    assert "fatal: [gpu01.example.net]: UNREACHABLE" in told


def test_a_host_that_is_no_longer_watched_is_left_to_the_last_play(few: Path, tmp_path: Path) -> None:
    """Its listener is not judged, and no exporter is put on it."""
    told = watched(few, "-i", str(absent(tmp_path, monitoring_state="gpu02")), "--limit", "gpu02.example.net")
    assert "node-exporter would listen" not in told
    assert "fatal: [gpu02.example.net]: UNREACHABLE" in told
    assert told.index("PLAY [Remove what watches from hosts with monitoring_state absent]") < told.index("UNREACHABLE")


def test_exporters_that_are_open_on_many_hosts_are_one_refusal(few: Path) -> None:
    told = watched(few, "--limit", "gpu01.example.net,gpu02.example.net")
    assert "gpu01.example.net, gpu02.example.net: node-exporter would listen on 0.0.0.0, which others reach" in told
    assert told.count("which others reach") == 1


def play(inventory: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    named = ["-i", str(inventory), "playbooks/export_monitoring.yml", "-e", f"monitoring_export={folder}"]
    more = ["-e", '{"site_reports": ""}', "-e", "vault_vllm_api_key=not-in-the-files", *words]
    command = [str(BIN / "ansible-playbook"), *named, *more]
    return subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the whole example, of which one host is to be without vLLM and one without its exporter."""
    folder = tmp_path_factory.mktemp("exported")
    gone = absent(folder, site_state="gpu02", monitoring_state="gpu03")
    done = play(EXAMPLE, folder / "out", "-i", str(gone))
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "out"


def test_a_site_with_a_prometheus_takes_the_files(exported: Path) -> None:
    names = {str(path.relative_to(exported)) for path in exported.rglob("*") if path.is_file()}
    dashboards = {"dashboards/fleet.json", "dashboards/host.json"}
    assert names == {"rules/vllm.rules.yml", "targets/vllm.json", "targets/node.json", "scrape.yml"} | dashboards
    targets = json.loads((exported / "targets/vllm.json").read_text())
    (code,) = [one for one in targets if one["labels"]["unit"] == "vllm@code.service"]
    assert code["targets"] == ["gpu04.example.net:8001"]
    assert code["labels"]["model"] == "qwen-coder"
    assert code["labels"]["card"] == "NVIDIA H100 80GB HBM3"
    checked = subprocess.run(
        [program("promtool"), "check", "config", "scrape.yml"],
        cwd=exported,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    assert not [path for path in exported.rglob("*") if path.is_file() and "not-in-the-files" in path.read_text()]


def test_a_host_that_is_to_be_without_vllm_or_its_exporter_is_no_target(exported: Path) -> None:
    left = ["gpu01", "gpu04", *(f"edge0{at}" for at in range(1, 9))]
    for name, expected in (("node", left), ("vllm", [*left, "gpu04"])):  # gpu04 has two services
        targets = json.loads((exported / f"targets/{name}.json").read_text())
        hosts = [one["labels"]["host"] for one in targets]
        assert sorted(hosts) == sorted(f"{host}.example.net" for host in expected)


def test_a_server_that_nobody_else_reaches_is_refused_by_name(few: Path, tmp_path: Path) -> None:
    done = play(few, tmp_path, "-e", "vllm_host=127.0.0.1")
    assert done.returncode != 0
    assert "set vllm_host to an address" in " ".join((done.stdout + done.stderr).split())


def test_files_without_some_hosts_are_refused(tmp_path: Path) -> None:
    done = play(EXAMPLE, tmp_path, "--limit", "h100,localhost")
    assert done.returncode != 0
    assert "--limit h100,localhost: the files have the targets and rules of all hosts" in " ".join(done.stdout.split())
    assert list(tmp_path.iterdir()) == []


def test_each_value_that_has_the_wrong_shape_is_named_in_one_run(few: Path, tmp_path: Path) -> None:
    receivers = [{"name": "a", "type": "webhook", "channl": "b"}, {"type": "slack"}, {"name": "c", "type": "pager"}]
    wrong = {
        "monitoring_numbers": ["kv_high"],
        "monitoring_labels": ["site"],
        "monitoring_receivers": receivers,
        "monitoring_keep_days": "many",
    }
    done = play(few, tmp_path, "-e", json.dumps(wrong))
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


def test_an_unknown_number_is_refused_by_name_and_the_report_has_no_secret_of_a_host(few: Path, tmp_path: Path) -> None:
    """A play that failed leaves the inventory cut to its own hosts; what is hidden are the secrets of all."""
    wrong = {"monitoring_numbers": {"s3cr3t-of-gpu01": 1}, "site_reports": str(tmp_path / "reports")}
    done = play(few, tmp_path, "-e", json.dumps(wrong), "-e", "vault_vllm_api_key=s3cr3t-of-gpu01")
    assert done.returncode != 0
    assert "no number of the alerts is called" in " ".join(done.stdout.split())
    (text,), (file,) = (sorted((tmp_path / "reports").glob(f"*.{kind}")) for kind in ("txt", "json"))
    assert "no number of the alerts is called" in text.read_text()
    assert "s3cr3t" not in text.read_text() + file.read_text()

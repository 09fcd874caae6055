"""Prometheus' own tools on the settings that role monitoring renders, on loopback and behind TLS."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.debian import program

BIN = Path(sys.executable).parent
REPO = Path(__file__).parents[2]
HASH = "$2y$05$" + "a" * 53
OPEN = {
    "monitoring_listen": "10.0.8.7",
    "monitoring_exporter_listen": "10.0.8.7",
    "monitoring_tls_certfile": "/etc/ssl/site.pem",
    "monitoring_tls_keyfile": "/etc/ssl/site.key",
    "monitoring_tls_ca": "/etc/ssl/ca.pem",
    "monitoring_user": "ops",
    "monitoring_password": "x",
    "monitoring_password_hash": HASH,
}


# A host each of one play, by what it sets.
SET: dict[str, dict[str, Any]] = {
    "loopback": {},
    "tls": OPEN,
    "watch": {**OPEN, "monitoring_listen": "127.0.0.1", "monitoring_exporter_listen": "127.0.0.1"},
    "labelled": {"monitoring_labels": {"site": "fra1", "row": 7}},
    "six": {"monitoring_listen": "::1", "monitoring_exporter_listen": "::1"},
}
ROLE = REPO / "roles/monitoring"
TEXTS = f"""{{{{ {{
  'prometheus': lookup('ansible.builtin.template', '{ROLE}/templates/prometheus.yml.j2'),
  'web': __monitoring_web | to_nice_yaml if __monitoring_guarded else '',
  'commands': __monitoring_commands,
}} | to_json }}}}"""


class Made(NamedTuple):
    """What the role renders for a host: Prometheus' configuration, as text too, the doors' one, and command lines."""

    text: str
    prometheus: dict[str, Any]
    web: dict[str, Any] | None
    commands: dict[str, list[str]]

    def jobs(self) -> dict[str, dict[str, Any]]:
        return {job["job_name"]: job for job in self.prometheus["scrape_configs"]}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    folder = tmp_path_factory.mktemp("settings")
    for name, variables in SET.items():
        (folder / f"{name}.set.json").write_text(json.dumps(variables))
    read = (ROLE / "defaults/main.yml", ROLE / "vars/main.yml", folder / "{{ inventory_hostname }}.set.json")
    written = {"content": TEXTS, "dest": str(folder / "{{ inventory_hostname }}.json"), "mode": "0600"}
    play = {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        "tasks": [*({"ansible.builtin.include_vars": str(path)} for path in read), {"ansible.builtin.copy": written}],
        "vars": {"ansible_python_interpreter": sys.executable},
    }
    (folder / "play.yml").write_text(json.dumps([play]))
    words = ["-i", ",".join(SET), str(folder / "play.yml"), "-e", '{"site_reports": ""}']
    done = subprocess.run([BIN / "ansible-playbook", *words], cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = {name: json.loads((folder / f"{name}.json").read_text()) for name in SET}
    return {
        name: Made(one["prometheus"], yaml.safe_load(one["prometheus"]), yaml.safe_load(one["web"]), one["commands"])
        for name, one in told.items()
    }


@pytest.mark.parametrize("name", ["loopback", "tls"])
def test_promtool_takes_the_settings(made: dict[str, Made], tmp_path: Path, name: str) -> None:
    told = made[name]
    (tmp_path / "prometheus.yml").write_text(told.text)
    checked = subprocess.run(
        [program("promtool"), "check", "config", "--syntax-only", str(tmp_path / "prometheus.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    jobs = told.jobs()
    doors = {one: any("web.yml" in word for word in words) for one, words in told.commands.items()}
    assert set(doors.values()) == {name == "tls"}
    assert ("basic_auth" in jobs["monitoring"]) == (name == "tls")
    assert "basic_auth" not in jobs["vllm"]
    if name == "tls":
        assert jobs["node"]["basic_auth"]["username"] == "ops"
        assert jobs["node"]["tls_config"] == {"ca_file": "/etc/ssl/ca.pem"}
        assert told.web is not None
        assert told.web["basic_auth_users"] == {"ops": HASH}
        assert told.web["tls_server_config"] == {"cert_file": "/etc/ssl/site.pem", "key_file": "/etc/ssl/site.key"}


def test_the_password_goes_to_exporters_behind_tls_alone(made: dict[str, Made]) -> None:
    jobs = made["watch"].jobs()
    asked = {name: job["relabel_configs"][0]["regex"] for name, job in jobs.items() if "relabel_configs" in job}
    assert asked == {"node": "https", "node-plain": "http"}
    assert "basic_auth" not in jobs["node-plain"]
    assert {"target_label": "job", "replacement": "node"} in jobs["node-plain"]["relabel_configs"]


def test_every_series_has_the_labels_of_the_site(made: dict[str, Made]) -> None:
    """The dashboards ask for the site that is chosen, of Prometheus' own series, too."""
    job = made["labelled"].jobs()["monitoring"]
    assert job["static_configs"][0]["labels"] == {"host": "labelled", "site": "fra1", "row": "7"}


def test_an_address_with_colons_stands_in_brackets(made: dict[str, Made]) -> None:
    told = made["six"]
    listeners = {
        word.partition("listen-address=")[2]
        for words in told.commands.values()
        for word in words
        if word.startswith("--web.listen-address=")
    }
    assert listeners == {"[::1]:9090", "[::1]:9093", "[::1]:9100"}
    assert told.prometheus["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] == ["[::1]:9093"]


def test_a_receiver_that_cannot_be_is_refused_by_name_and_without_its_secret(tmp_path: Path) -> None:
    unit = {"name": "vllm", "listens": "127.0.0.1", "port": 8000, "version": "0.32.0", "tls": False, "model": "m"}
    told = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "__vllm_units": [{**unit, "arguments": {}}],
        "monitoring_receivers": [
            {"name": "own", "type": "webhook", "url": "http://127.0.0.1/t0ken"},
            {"name": "duty", "type": "pagerduty", "secret": "s3cret", "severities": ["panic"]},
        ],
    }
    (tmp_path / "hosts.json").write_text(json.dumps({"vllm": {"hosts": {"localhost": told}}}))
    task = {"ansible.builtin.include_role": {"name": "vllm_doctor.hosts.monitoring", "tasks_from": "validate"}}
    (tmp_path / "play.yml").write_text(json.dumps([{"hosts": "vllm", "gather_facts": False, "tasks": [task]}]))
    words = ["-v", "-i", str(tmp_path / "hosts.json"), str(tmp_path / "play.yml"), "-e", '{"site_reports": ""}']
    done = subprocess.run([BIN / "ansible-playbook", *words], cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "duty: severities are of critical, warning, info" in " ".join(done.stdout.split())
    assert "s3cret" not in done.stdout + done.stderr
    assert "t0ken" not in done.stdout + done.stderr

"""Prometheus' own tools on the settings that role monitoring renders, on loopback and behind TLS."""

import json
import subprocess
import sys
from pathlib import Path

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


WATCH = {**OPEN, "monitoring_listen": "127.0.0.1", "monitoring_exporter_listen": "127.0.0.1"}
SIX = {"monitoring_listen": "::1", "monitoring_exporter_listen": "::1"}


def rendered(folder: Path, variables: dict[str, object]) -> dict[str, object]:
    task = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.include_vars": str(REPO / "roles/monitoring/defaults/main.yml")},
            {"ansible.builtin.include_vars": str(REPO / "roles/monitoring/vars/main.yml")},
            {
                "ansible.builtin.template": {
                    "src": str(REPO / "roles/monitoring/templates/prometheus.yml.j2"),
                    "dest": str(folder / "prometheus.yml"),
                    "mode": "0600",
                }
            },
            {
                "ansible.builtin.copy": {
                    "content": "{{ __monitoring_web | to_nice_yaml }}",
                    "dest": str(folder / "web.yml"),
                    "mode": "0600",
                },
                "when": "__monitoring_guarded",
            },
            {
                "ansible.builtin.copy": {
                    "content": "{{ __monitoring_commands | to_json }}",
                    "dest": str(folder / "commands.json"),
                    "mode": "0600",
                }
            },
        ],
        "vars": {"ansible_python_interpreter": sys.executable},
    }
    (folder / "play.yml").write_text(json.dumps([task]))
    words = ["-i", "localhost,", str(folder / "play.yml"), "-e", json.dumps({**variables, "site_reports": ""})]
    done = subprocess.run([BIN / "ansible-playbook", *words], cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(yaml.safe_load((folder / "prometheus.yml").read_text()))


@pytest.mark.parametrize("variables", [{}, OPEN], ids=["loopback", "tls"])
def test_promtool_takes_the_settings(tmp_path: Path, variables: dict[str, object]) -> None:
    made = rendered(tmp_path, variables)
    checked = subprocess.run(
        [program("promtool"), "check", "config", "--syntax-only", str(tmp_path / "prometheus.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    jobs = {job["job_name"]: job for job in made["scrape_configs"]}  # type: ignore[attr-defined]
    commands = json.loads((tmp_path / "commands.json").read_text())
    doors = {name: any("web.yml" in word for word in words) for name, words in commands.items()}
    assert set(doors.values()) == {variables is OPEN}
    assert ("basic_auth" in jobs["monitoring"]) == (variables is OPEN)
    assert "basic_auth" not in jobs["vllm"]
    if "monitoring_tls_certfile" in variables:
        assert jobs["node"]["basic_auth"]["username"] == "ops"
        assert jobs["node"]["tls_config"] == {"ca_file": "/etc/ssl/ca.pem"}
        web = yaml.safe_load((tmp_path / "web.yml").read_text())
        assert web["basic_auth_users"] == {"ops": HASH}
        assert web["tls_server_config"] == {"cert_file": "/etc/ssl/site.pem", "key_file": "/etc/ssl/site.key"}


def test_the_password_goes_to_exporters_behind_tls_alone(tmp_path: Path) -> None:
    jobs = {job["job_name"]: job for job in rendered(tmp_path, WATCH)["scrape_configs"]}  # type: ignore[attr-defined]
    asked = {name: job["relabel_configs"][0]["regex"] for name, job in jobs.items() if "relabel_configs" in job}
    assert asked == {"node": "https", "node-plain": "http"}
    assert "basic_auth" not in jobs["node-plain"]
    assert {"target_label": "job", "replacement": "node"} in jobs["node-plain"]["relabel_configs"]


def test_every_series_has_the_labels_of_the_site(tmp_path: Path) -> None:
    """The dashboards ask for the site that is chosen, of Prometheus' own series, too."""
    (job,) = [
        one
        for one in rendered(tmp_path, {"monitoring_labels": {"site": "fra1", "row": 7}})["scrape_configs"]  # type: ignore[attr-defined]
        if one["job_name"] == "monitoring"
    ]
    assert job["static_configs"][0]["labels"] == {"host": "localhost", "site": "fra1", "row": "7"}


def test_an_address_with_colons_stands_in_brackets(tmp_path: Path) -> None:
    made = rendered(tmp_path, SIX)
    listeners = {
        word.partition("listen-address=")[2]
        for words in json.loads((tmp_path / "commands.json").read_text()).values()
        for word in words
        if word.startswith("--web.listen-address=")
    }
    assert listeners == {"[::1]:9090", "[::1]:9093", "[::1]:9100"}
    assert made["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] == ["[::1]:9093"]  # type: ignore[index]


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

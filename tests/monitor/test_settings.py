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
    words = ["-i", "localhost,", str(folder / "play.yml"), "-e", json.dumps(variables), "-e", "site_reports=''"]
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
    assert set(doors.values()) == {bool(variables)}
    assert ("basic_auth" in jobs["node"], "basic_auth" in jobs["monitoring"]) == (bool(variables),) * 2
    assert "basic_auth" not in jobs["vllm"]
    if variables:
        assert jobs["node"]["scheme"] == "https"
        assert jobs["node"]["tls_config"] == {"ca_file": "/etc/ssl/ca.pem"}
        web = yaml.safe_load((tmp_path / "web.yml").read_text())
        assert web["basic_auth_users"] == {"ops": HASH}
        assert web["tls_server_config"] == {"cert_file": "/etc/ssl/site.pem", "key_file": "/etc/ssl/site.key"}

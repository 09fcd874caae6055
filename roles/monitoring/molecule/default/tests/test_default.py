"""What the role leaves on a host that is watched and watches."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[5]
ETC = "/etc/prometheus/vllm-doctor"
DOORS = {9090: "Prometheus", 9093: "Alertmanager", 9100: "node-exporter"}
ASK = "curl --silent --max-time 10 --cacert /etc/ssl/site/cert.pem"
MODEL = 'a"} or vector(1) # {{ 7*7 }}'


def asked(host, path, port=9090):
    got = host.run(f"{ASK} --fail --user ops:molecule-secret-four 'https://host:{port}{path}'")
    assert got.rc == 0, got.stderr
    return json.loads(got.stdout)


def waited(question, seconds=90):
    """The first true answer; the deadline is for a busy machine."""
    end = time.monotonic() + seconds
    while True:
        answer = question()
        if answer or time.monotonic() > end:
            return answer
        time.sleep(1)


def query(host, text):
    quoted = "".join(f"%{byte:02x}" for byte in text.encode())
    return asked(host, f"/api/v1/query?query={quoted}")["data"]["result"]


def test_every_rule_is_loaded_and_none_fails(host):
    groups = asked(host, "/api/v1/rules")["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) > 60
    assert not [rule for rule in rules if rule.get("lastError")]
    assert any("> 0.85" in rule["query"] for rule in rules if rule["name"] == "VllmKvCacheHigh")


def test_services_are_asked_under_their_names_whatever_they_hold(host):
    found = waited(lambda: query(host, 'up{job="vllm"}'))
    assert sorted(one["metric"]["unit"] for one in found) == ["vllm@chat.service", "vllm@code.service"]
    assert {one["metric"]["model"] for one in found} == {MODEL}
    assert {(one["metric"]["host"], one["metric"]["release"], one["metric"]["card"]) for one in found} == {
        ("host", "0.32.0", "NVIDIA L4")
    }
    assert waited(lambda: query(host, 'ALERTS{alertname="VllmDown"}'))


def test_the_text_file_of_the_doctor_is_served(host):
    assert host.service("vllm-doctor-textfile.timer").is_enabled
    assert waited(lambda: query(host, "vllm_doctor_last_run_timestamp_seconds or node_textfile_mtime_seconds"))
    assert waited(lambda: query(host, "node_textfile_scrape_error == 0"))


def test_alertmanager_has_the_receivers_and_no_secret(host):
    told = asked(host, "/api/v2/status", 9093)
    assert all(name in told["config"]["original"] for name in ("chat-ops", "duty", "mail", "own"))
    assert "molecule-secret" not in told["config"]["original"]
    everything = host.run("grep -rl 'molecule-secre[t]' /etc /var/log /run 2>/dev/null").stdout.split()
    assert sorted(everything) == [
        "/etc/grafana/provisioning/datasources/vllm-doctor.yml",
        f"{ETC}/grafana-password",
        *(f"{ETC}/secrets/{name}" for name in (".scrape-password", "chat-ops", "duty", "mail")),
    ]


@pytest.mark.parametrize("name", ["chat-ops", "duty", "mail"])
def test_only_alertmanager_reads_a_secret(host, name):
    file = host.file(f"{ETC}/secrets/{name}")
    assert (file.user, file.group, file.mode) == ("root", "prometheus", 0o640)


@pytest.mark.parametrize("port", DOORS, ids=DOORS.values())
@pytest.mark.parametrize(
    ("user", "url", "status"),
    [
        ("", "https://host", "401"),
        ("--user ops:wrong", "https://host", "401"),
        ("--user ops:molecule-secret-four", "https://host", "200"),
        ("--user ops:molecule-secret-four", "http://host", "400"),
    ],
    ids=["no-password", "wrong-password", "password", "no-tls"],
)
def test_a_listener_answers_over_tls_to_the_password_alone(host, port, user, url, status):
    code = "--output /dev/null --write-out '%{http_code}'"
    assert host.run(f"{ASK} {code} {user} {url}:{port}/metrics").stdout == status


def test_the_doctor_draws_its_page_with_the_file_of_the_role(host):
    waited(lambda: query(host, 'up{job="vllm"}'))
    done = host.run(
        f"vllm-doctor report --since 9m --prometheus https://host:9090 --http-config {ETC}/client.yml -o /root/p.html"
    )
    assert (done.rc, done.stderr) == (0, "")
    assert "molecule-secret" not in host.file("/root/p.html").content_string


def test_prometheus_scrapes_exporter_and_itself_over_tls_with_the_password(host):
    up = waited(lambda: len(found := query(host, 'up{job=~"node|monitoring"} == 1')) == 3 and found)
    assert sorted((one["metric"]["job"], one["metric"]["instance"]) for one in up) == [
        ("monitoring", "127.0.0.1:9090"),
        ("monitoring", "127.0.0.1:9093"),
        ("node", "host:9100"),
    ]


def test_no_listener_beside_these(host):
    listening = host.run("ss --no-header --tcp --listening --numeric").stdout
    assert ":9094" not in listening  # no cluster of Alertmanagers


def test_disk_and_time_are_bounded(host):
    words = host.run("systemctl show prometheus --property=ExecStart").stdout
    assert "--storage.tsdb.retention.time=30d" in words
    assert "--storage.tsdb.retention.size=20GB" in words


def test_grafana_answers_on_loopback_to_the_administrator_of_the_inventory(host):
    code = "curl --silent --max-time 10 --output /dev/null --write-out '%{http_code}'"
    assert host.run(f"{code} --user admin:molecule-secret-five http://127.0.0.1:3000/api/search").stdout == "200"
    assert host.run(f"{code} --user admin:admin http://127.0.0.1:3000/api/search").stdout == "401"
    assert not host.socket("tcp://0.0.0.0:3000").is_listening


def test_grafana_reads_the_dashboards_and_where_prometheus_is(host):
    ask = "curl --silent --max-time 10 --user admin:molecule-secret-five http://127.0.0.1:3000/api/"
    assert len(json.loads(host.run(ask + "search").stdout)) == 2
    (given,) = [one for one in json.loads(host.run(ask + "datasources").stdout) if one]
    assert "url: https://127.0.0.1:9090" in given
    assert "basicAuthPassword: molecule-secret-four" in given


@pytest.mark.parametrize("name", ["datasources/vllm-doctor.yml", "dashboards/vllm-doctor.yml"])
def test_what_grafana_is_given_is_for_its_user_alone(host, name):
    file = host.file(f"/etc/grafana/provisioning/{name}")
    assert (file.user, file.group, file.mode) == ("root", "grafana", 0o640)


def test_grafanas_packages_are_signed_with_its_own_key(host):
    source = host.file("/etc/apt/sources.list.d/grafana.sources").content_string
    assert "Signed-By: /etc/apt/keyrings/grafana" in source
    assert "trusted" not in source.lower()


def no_longer_watched():
    """Play monitoring.yml with the line that takes what watches off the host; (exit code, its recap)."""
    words = ["-i", os.environ["MOLECULE_INVENTORY_FILE"], "-e", "monitoring_state=absent"]
    done = subprocess.run(
        ["ansible-playbook", "playbooks/monitoring.yml", *words],
        cwd=REPO,
        env={**os.environ, "ANSIBLE_CONFIG": str(REPO / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.partition("PLAY RECAP")[2]


def test_the_last_one_takes_what_watches_off_and_leaves_what_was_collected(host):
    """Last of this file: it ends what the others ask."""
    timer = "vllm-doctor-textfile.timer"
    assert host.service(timer).is_running
    status, recap = no_longer_watched()
    assert status == 0, recap
    for service in ("prometheus", "prometheus-alertmanager", "prometheus-node-exporter", "grafana-server", timer):
        assert not host.service(service).is_running, service
    assert not host.file(ETC).exists
    assert not host.file("/var/lib/prometheus/node-exporter/vllm_doctor.prom").exists
    assert host.file("/var/lib/prometheus/metrics2").is_directory
    assert host.run("vllm-doctor --version").rc == 0
    status, recap = no_longer_watched()
    assert (status, "changed=0" in recap) == (0, True), recap

"""Where Prometheus asks servers and exporters, and how: with a host of its own, on a GPU host, behind TLS."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).parents[2]
FILTERS = REPO / "plugins/filter/monitoring.py"
PROGRAM = f"""
import importlib.util, json, sys
sys.path.insert(0, {str(REPO)!r})
at = importlib.util.spec_from_file_location("monitoring", {str(FILTERS)!r})
made = importlib.util.module_from_spec(at)
at.loader.exec_module(made)
name, *words = json.loads(sys.argv[1])
print(json.dumps(made.FilterModule().filters()[name](*words)))
"""
EVERY = "0.0.0.0"  # noqa: S104 - nothing binds here
TLS = {"monitoring_tls_certfile": "/etc/ssl/site.pem"}


def given(name: str, *words: object) -> Any:
    """What a filter answers."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([name, *words])], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def asked(name: str, *words: object) -> dict[str, str]:
    """Each host's target, as scheme://address."""
    return {
        one["labels"]["host"]: f"{one['labels']['__scheme__']}://{one['targets'][0]}" for one in given(name, *words)
    }


def unit(listens: str, *, tls: bool = False) -> dict[str, Any]:
    told = {"name": "vllm", "listens": listens, "port": 8000, "version": "0.32.0", "tls": tls, "model": "m"}
    return {"__vllm_units": [{**told, "arguments": {}}]}


def test_a_grave_alert_silences_a_lighter_one_of_the_same_thing_alone() -> None:
    """A card that fell off the bus says nothing of a program's fault on another card of the host."""
    (one,) = [rule for rule in given("monitoring_alertmanager", [], "/x")["inhibit_rules"] if "critical" in str(rule)]
    assert {"alertname", "host", "unit", "code", "gpu", "pci"} <= set(one["equal"])


def test_a_host_of_its_own_asks_the_exporters_behind_tls_and_itself_on_loopback() -> None:
    told = asked("monitoring_exporters", {"gpu01": TLS, "watch": TLS}, ["gpu01", "watch"], "watch", "127.0.0.1")
    assert told == {"gpu01": "https://gpu01:9100", "watch": "http://127.0.0.1:9100"}


def test_the_own_exporter_behind_tls_is_asked_under_the_name_of_its_certificate() -> None:
    told = asked("monitoring_exporters", {"gpu01": TLS, "watch": TLS}, ["gpu01", "watch"], "watch", EVERY)
    assert told == {"gpu01": "https://gpu01:9100", "watch": "https://watch:9100"}


def test_exporters_without_tls_are_asked_in_plain_http() -> None:
    told = asked("monitoring_exporters", {"gpu01": {}, "watch": {}}, ["gpu01", "watch"], "watch", "10.0.0.5")
    assert told == {"gpu01": "http://gpu01:9100", "watch": "http://10.0.0.5:9100"}


def test_files_for_another_prometheus_ask_as_the_exporters_listen() -> None:
    """gpu02's exporter has loopback alone, so the role gives it no TLS."""
    hosts = {"gpu01": TLS, "gpu02": {**TLS, "monitoring_exporter_listen": "127.0.0.1"}}
    told = asked("monitoring_exporters", hosts, ["gpu01", "gpu02"], "")
    assert told == {"gpu01": "https://gpu01:9100", "gpu02": "http://gpu02:9100"}


@pytest.mark.parametrize(
    ("listens", "tls", "target"),
    [
        ("127.0.0.1", False, "http://127.0.0.1:8000"),
        ("::1", False, "http://[::1]:8000"),
        (EVERY, False, "http://127.0.0.1:8000"),
        ("::", False, "http://127.0.0.1:8000"),
        ("10.0.0.5", False, "http://10.0.0.5:8000"),
        ("fd00::5", False, "http://[fd00::5]:8000"),
        (EVERY, True, "https://gpu01:8000"),
    ],
)
def test_a_server_on_the_monitoring_host_is_asked_where_it_listens(listens: str, tls: bool, target: str) -> None:
    assert asked("monitoring_servers", {"gpu01": unit(listens, tls=tls)}, ["gpu01"], "gpu01") == {"gpu01": target}

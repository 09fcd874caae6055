"""Keys, open paths, networks and TLS: what the inventory makes of the unit, and what is refused on the controller."""

from pathlib import Path
from typing import Any

import pytest

from tests.roles.vllm.plugins import load, said
from tests.roles.vllm.test_units import judged as composed

ROOT = Path(__file__).parents[3]
doors = load("plugins/filter/vllm_door_problems.py")
FINE = {
    "api_key": True,
    "api_key_fits": True,
    "api_key_is_example": False,
    "secret_names": [],
    "guard": "/opt/vllm/guard/0123abcd",
}
TLS = {"ssl_certfile": "/etc/ssl/site/vllm.pem", "ssl_keyfile": "/etc/ssl/site/vllm.key"}


def judged(**inventory: Any) -> tuple[dict[str, Any], str]:
    """The first unit, and the complaints about its doors."""
    variables = {**FINE, "open_routes": ["/health", "/metrics"], "metrics_networks": [], **inventory}
    units, _ = composed(**variables)
    rows = doors.problems(units, variables)
    return units[0], said(rows)


def test_a_key_brings_the_guard() -> None:
    unit, complaints = judged()
    assert complaints == ""
    assert unit["guard"] == {
        "folder": "/opt/vllm/guard/0123abcd",
        "python_path": "/opt/vllm/guard/0123abcd",
        "open": ["/health", "/metrics"],
        "metrics_from": [],
    }
    assert judged(api_key=False)[0]["guard"] is None
    assert judged(api_key=False, metrics_networks=["10.8.0.0/16"])[0]["guard"]["metrics_from"] == ["10.8.0.0/16"]


def test_modules_of_the_site_stand_behind_the_guards() -> None:
    unit, complaints = judged(environment={"PYTHONPATH": "/srv/ours"}, extra_args={"middleware": "ours.Log"})
    assert complaints == ""
    assert unit["guard"]["python_path"] == "/opt/vllm/guard/0123abcd:/srv/ours"
    assert "PYTHONPATH" not in unit["environment"]


@pytest.mark.parametrize(
    ("inventory", "do"),
    [
        ({"api_key_fits": False}, "vllm_api_key: what `openssl rand -hex 32` prints, in the vault"),
        ({"api_key_is_example": True}, "vllm_api_key: what `openssl rand -hex 32` prints, in the vault"),
        ({"secret_names": ["VLLM_API_KEY"]}, "vllm_secrets: take VLLM_API_KEY out, and set vllm_api_key"),
        ({"open_routes": ["/v1/models"]}, "vllm_open_routes: take /v1/models out"),
        ({"open_routes": ["/docs*"]}, "vllm_open_routes: [/health, /metrics]"),
        ({"open_routes": ["health"]}, "vllm_open_routes: [/health, /metrics]"),
        ({"metrics_networks": ["10.8.1.2/16"]}, "vllm_metrics_networks: [10.8.0.0/16]"),
        ({"metrics_networks": ["prometheus.example"]}, "vllm_metrics_networks: [10.0.8.0/24]"),
        ({"extra_args": {"grpc": True}}, "vllm_extra_args: take grpc out"),
        ({"environment": {"VLLM_USE_RUST_FRONTEND": "1"}}, "vllm_environment: take VLLM_USE_RUST_FRONTEND out"),
        ({"environment": {"API_GUARD_OPEN": "[]"}}, "take API_GUARD_OPEN out, and set vllm_open_routes"),
        ({"version": "0.2.7"}, 'vllm_version: "0.32.0"'),
        ({"ssl_certfile": "/etc/ssl/a.pem"}, "vllm_ssl_keyfile: /etc/ssl/…"),
        ({"ssl_keyfile": "/etc/ssl/a.key"}, "vllm_ssl_certfile: /etc/ssl/…"),
        ({"ssl_ca_certs": "/etc/ssl/ca.pem"}, "vllm_ssl_certfile: /etc/ssl/…"),
        ({**TLS, "ssl_certfile": "vllm.pem"}, "vllm_ssl_certfile: /etc/ssl/…"),
        ({"extra_args": {"ssl-certfile": "/a", "ssl-keyfile": "/b"}}, "and set vllm_ssl_certfile"),
        ({**TLS, "extra_args": {"ssl-cert-reqs": 2}}, "vllm_extra_args: set ssl-cert-reqs to 1"),
    ],
)
def test_what_would_leave_a_door_open_is_refused_with_the_line_to_write(inventory: dict[str, Any], do: str) -> None:
    assert do in judged(**inventory)[1]


def test_the_files_of_tls_reach_the_service_as_credentials() -> None:
    unit, complaints = judged(**TLS)
    assert complaints == ""
    assert unit["url"] == "https://127.0.0.1:8000"
    assert unit["credentials"] == {"tls-certificate": TLS["ssl_certfile"], "tls-key": TLS["ssl_keyfile"]}
    assert unit["arguments"]["ssl-keyfile"] == "/run/credentials/vllm@main.service/tls-key"
    assert "enable-ssl-refresh" not in unit["arguments"]


def test_or_by_their_own_paths_and_are_read_again() -> None:
    unit, complaints = judged(**TLS, ssl_credentials=False)
    assert complaints == ""
    assert unit["credentials"] == {}
    assert (unit["arguments"]["ssl-certfile"], unit["arguments"]["enable-ssl-refresh"]) == (TLS["ssl_certfile"], True)


def test_the_examples_key_is_the_one_that_is_refused() -> None:
    example = (ROOT / "inventories/example/group_vars/vllm/vault.yml.example").read_text(encoding="utf-8")
    key = next(line.split(": ")[1] for line in example.splitlines() if line.startswith("vault_vllm_api_key:"))
    variables = (ROOT / "roles/vllm/vars/main.yml").read_text(encoding="utf-8")
    assert f"api_key_is_example: \"{{{{ '{key}' in __vllm_keys }}}}\"" in variables

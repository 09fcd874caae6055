"""What a unit says of its doors: the guard in front of the server, credentials, and its own traffic."""

import json

import pytest

from tests.templates.units import BEHAVIOURS, VERSIONS, command, environment, render
from vllm_doctor.gather.launch import parse_argv
from vllm_doctor.rules.live.vd907_open_door import ACCEPTED

GUARD = {"folder": "/opt/vllm/guard/0123abcd", "python_path": "/opt/vllm/guard/0123abcd", "open": ["/health"],
         "metrics_from": ["10.8.0.0/16"]}  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("card", BEHAVIOURS)
def test_the_guard_is_the_outermost_middleware(card: str, version: str) -> None:
    text = render(card, version, arguments={"middleware": "ours.Log"}, guard=GUARD)
    words = command(text)
    assert [words[at + 1] for at, word in enumerate(words) if word == "--middleware"] == ["ours.Log", "api_guard.Guard"]
    assert words[-2:] == ["--middleware", "api_guard.Guard"]
    said = {name: value.replace('\\"', '"') for name, value in environment(text).items()}
    assert said["PYTHONPATH"] == "/opt/vllm/guard/0123abcd"
    assert json.loads(said["API_GUARD_OPEN"]) == ["/health"]
    assert json.loads(said["API_GUARD_METRICS_FROM"]) == ["10.8.0.0/16"]


def test_without_a_key_nothing_stands_in_front() -> None:
    text = render("h100-sxm", "0.33.0")
    assert "middleware" not in text
    assert "API_GUARD" not in text
    assert "LoadCredential" not in text


def test_credentials_are_loaded_by_name() -> None:
    text = render("h100-sxm", "0.33.0", credentials={"tls-key": "/etc/ssl/site/vllm.key"})
    assert "\nLoadCredential=tls-key:/etc/ssl/site/vllm.key\n" in text


def test_what_spans_hosts_says_itself_where_it_listens() -> None:
    inside = {"VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}
    assert inside <= environment(render("h100-sxm", "0.33.0")).keys()
    assert not inside & environment(render("h100-sxm", "0.33.0", loopback=False)).keys()
    text = render("h100-sxm", "0.33.0", environment={"GLOO_SOCKET_IFNAME": "eno2"})
    assert text.count("GLOO_SOCKET_IFNAME") == 1


def test_the_doctor_sees_that_an_open_server_is_meant() -> None:
    said = environment(render("cpu", "0.33.0", accepted_open=True))
    assert ACCEPTED[0] in parse_argv(["vllm", "serve", "x"], said).env
    assert ACCEPTED[0] not in environment(render("cpu", "0.33.0"))

"""Who could get in: keys, open paths, networks and TLS, judged before any host is asked."""

import ipaddress
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
if (REPOSITORY / "vllm_doctor").is_dir() and str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))  # a checkout needs no installed package on the controller

from vllm_doctor.knowledge import parser  # noqa: E402
from vllm_doctor.knowledge.version import is_release  # noqa: E402

PATH = re.compile(r"/[A-Za-z0-9_.~/-]*")
# What vLLM itself guards where it has a key (vllm/entrypoints/serve/middleware/authenticate.py).
GUARDED_BY_VLLM = ("/v1", "/v2", "/inference", "/cohere")
# Servers that are not the ASGI application: no middleware stands in front of them.
BESIDE = ("grpc", "grpc-port")
RUST = "VLLM_USE_RUST_FRONTEND"
OWNED = {
    "API_GUARD_METRICS_FROM": "vllm_metrics_networks",
    "API_GUARD_OPEN": "vllm_open_routes",
}
_NEW_KEY = "vllm_api_key: what `openssl rand -hex 32` prints, in the vault"
TLS = ("ssl_certfile", "ssl_keyfile", "ssl_ca_certs")


def problems(made: Iterable[Mapping[str, Any]], variables: Mapping[str, Any]) -> list[dict[str, str]]:
    """List what would leave a door open, or shut out who has the key, as {found, needed, do}."""
    found = _of_keys(variables) + _of_routes(variables) + _of_networks(variables)
    for unit in made:
        found += _of_guard(unit) + _of_tls(unit)
    return found


def _of_keys(variables: Mapping[str, Any]) -> list[dict[str, str]]:
    found = []
    if not variables["api_key_fits"]:
        needed = (
            "printable ASCII without a space at its ends, as a header carries it, and vllm_api_key beside vllm_api_keys"
        )
        found.append(_row("vllm_api_key or one of vllm_api_keys", needed, _NEW_KEY))
    if variables["api_key_is_example"]:
        found.append(_row("vllm_api_key: the key of the example", "a key that only your clients know", _NEW_KEY))
    if "VLLM_API_KEY" in variables["secret_names"]:
        needed = "vllm_api_key, which also closes the paths that vLLM leaves open"
        found.append(
            _row("vllm_secrets: VLLM_API_KEY", needed, "vllm_secrets: take VLLM_API_KEY out, and set vllm_api_key")
        )
    return found


def _of_routes(variables: Mapping[str, Any]) -> list[dict[str, str]]:
    found = []
    for path in variables["open_routes"] if variables["api_key"] else []:
        if not PATH.fullmatch(str(path)):
            needed = "a whole path, word for word: a pattern would open more than is meant"
            found.append(_row(f"vllm_open_routes: {path}", needed, "vllm_open_routes: [/health, /metrics]"))
        elif path.startswith(GUARDED_BY_VLLM):
            needed = f"no path below {', '.join(GUARDED_BY_VLLM)}: with a key vLLM itself refuses these"
            found.append(_row(f"vllm_open_routes: {path}", needed, f"vllm_open_routes: take {path} out"))
    return found


def _of_networks(variables: Mapping[str, Any]) -> list[dict[str, str]]:
    found = []
    for network in variables["metrics_networks"]:
        try:
            ipaddress.ip_network(str(network))
        except ValueError as why:
            needed = f"an address or a network ({why})"
            found.append(_row(f"vllm_metrics_networks: {network}", needed, _network_line(str(network))))
    return found


def _network_line(network: str) -> str:
    """Write the network that has this host in it, where it is one."""
    try:
        return f"vllm_metrics_networks: [{ipaddress.ip_network(network, strict=False)}]"
    except ValueError:
        return "vllm_metrics_networks: [10.0.8.0/24]"


def _of_guard(unit: Mapping[str, Any]) -> list[dict[str, str]]:
    if not unit["guard"]:
        return []
    at, version = f"vllm@{unit['instance']}: ", unit["version"]
    found = []
    if is_release(version) and "middleware" not in parser.knows(version):
        needed = "--middleware, to guard the paths that the key of vLLM leaves open (/invocations, /tokenize, …)"
        found.append(_row(f"{at}vLLM {version} has no --middleware", needed, 'vllm_version: "0.32.0"'))
    for name in BESIDE:
        if unit["arguments"].get(name) not in {None, False}:
            needed = "one server, which asks for the key: gRPC is not behind the middleware"
            found.append(_row(f"{at}--{name} with a key", needed, f"vllm_extra_args: take {name} out"))
    if str(unit["environment"].get(RUST, "0")) != "0":
        needed = "vLLM's Python front end, which asks for the key: the other one loads no middleware"
        found.append(_row(f"{at}{RUST} with a key", needed, f"vllm_environment: take {RUST} out"))
    for name, owner in OWNED.items():
        if name in unit["environment"]:
            needed = f"{owner}, which says the same"
            found.append(
                _row(f"{at}vllm_environment: {name}", needed, f"vllm_environment: take {name} out, and set {owner}")
            )
    return found


def _of_tls(unit: Mapping[str, Any]) -> list[dict[str, str]]:
    at, tls, extra = f"vllm@{unit['instance']}: ", unit["tls"], unit["arguments"]
    found = []
    for have, lack in (
        ("ssl_certfile", "ssl_keyfile"),
        ("ssl_keyfile", "ssl_certfile"),
        ("ssl_ca_certs", "ssl_certfile"),
    ):
        if have in tls and lack not in tls:
            found.append(_row(f"{at}vllm_{have} without vllm_{lack}", "both", f"vllm_{lack}: /etc/ssl/…"))
    for key, path in tls.items():
        if not re.fullmatch(r"/[^\s:%]+", str(path)):
            needed = "a file on the host, by its whole path and without spaces, colons and percent signs"
            found.append(_row(f"{at}vllm_{key}: {path}", needed, f"vllm_{key}: /etc/ssl/…"))
    for key in TLS:
        if key not in tls and key.replace("_", "-") in extra:
            out = f"vllm_extra_args: take {key.replace('_', '-')} out, and set vllm_{key}"
            found.append(_row(f"{at}--{key.replace('_', '-')}", f"vllm_{key}, which is checked", out))
    if str(extra.get("ssl-cert-reqs", 0)) == "2":
        needed = "0 or 1: the role and the doctor ask the server without a client's certificate"
        found.append(_row(f"{at}--ssl-cert-reqs 2", needed, "vllm_extra_args: set ssl-cert-reqs to 1"))
    return found


def _row(found: str, needed: str, do: str) -> dict[str, str]:
    return {"found": found, "needed": needed, "do": do}


class FilterModule:
    """The filter of doors."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Name it."""
        return {"vllm_door_problems": problems}

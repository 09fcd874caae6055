# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""Ask every path of a server without the key, in a way that nothing happens if one should be open.

OPTIONS without the headers of a browser's preflight: safe by definition (RFC 9110, 9.2.1), no route of vLLM has it, so
an open path answers 405 and does nothing; and vLLM's own key does not look at it, so a 401 is the guard's. The guard
decides before it looks at the method, hence what it refuses for OPTIONS it refuses for POST. Pages and what the server
calls a GET are also asked with GET. A path that nobody has tells whether a later release's would be closed.
"""

from __future__ import annotations

import json
import secrets

from ansible_collections.vllm_doctor.hosts.plugins.module_utils.vllm_http import ask, status

# In no OpenAPI document: pages, mounts, websockets, and routes that appear with a switch or a task.
UNLISTED = (
    "/abort_requests", "/classify", "/collective_rpc", "/detokenize", "/docs", "/docs/oauth2-redirect", "/health",
    "/invocations", "/is_paused", "/is_scaling_elastic_ep", "/is_sleeping", "/kv_event_sources", "/load", "/metrics",
    "/openapi.json", "/pause", "/ping", "/pooling", "/redoc", "/rerank", "/reset_encoder_cache", "/reset_mm_cache",
    "/reset_prefix_cache", "/resume", "/scale_elastic_ep", "/score", "/server_info", "/sleep", "/start_profile",
    "/stop_profile", "/tokenize", "/tokenizer_info", "/update_weights", "/v1/chat/completions", "/v1/completions",
    "/v1/load_lora_adapter", "/v1/models", "/v1/realtime", "/v1/unload_lora_adapter", "/version", "/wake_up",
)  # fmt: skip
PAGES = ("/docs", "/load", "/metrics", "/openapi.json", "/redoc", "/version")
REFUSED = {401, 403}
WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dmxsbS1kb2N0b3ItdmxsbQ==",
}
EACH_S = 10.0


def guard_of(environment: dict[str, str]) -> tuple[list[str], list[str]] | None:
    """The open paths and the networks of the metrics, as the running server was told; None for one without a guard."""
    if "API_GUARD_OPEN" not in environment:
        return None
    return json.loads(environment["API_GUARD_OPEN"]), json.loads(environment.get("API_GUARD_METRICS_FROM", "[]"))


def listed(url: str, key: str, certificate: str) -> dict[str, set[str]]:
    """Paths of the server's own OpenAPI document with their methods; none where it is switched off."""
    try:
        paths = ask(f"{url}/openapi.json", key, EACH_S, certificate=certificate).get("paths")
    except (OSError, ValueError):
        return {}
    found = paths.items() if isinstance(paths, dict) else ()
    return {str(path): {str(name).upper() for name in methods} for path, methods in found if isinstance(methods, dict)}


def judged(url: str, key: str, opened: list[str], networks: list[str], certificate: str) -> tuple[list[str], list[str]]:
    """Ask all; give what answers without the key as `path (status)`, and what is named open and is refused."""
    own = listed(url, key, certificate)
    nobody = f"/{secrets.token_hex(8)}"
    found, shut = [], []
    for path in (nobody, *sorted({*own, *UNLISTED, *opened})):
        shown = path.replace("{", "").replace("}", "")
        got = {
            method: status(f"{url}{shown}", method, EACH_S, {}, certificate) for method in _methods(path, own, opened)
        }
        let_in = {method: code for method, code in got.items() if code not in REFUSED}
        if path == "/metrics" and networks:
            continue  # from here they may be open or not: the address decides, and the guard's own tests hold it
        if path in opened:
            shut += [] if let_in else [f"{path} ({got['OPTIONS']})"]
        elif let_in:
            method, code = [*let_in.items()][-1]
            found.append(f"{method} {'any other path' if path == nobody else path} ({code})")
    code = status(f"{url}/v1/realtime", "GET", EACH_S, WEBSOCKET, certificate)
    found += [] if code in REFUSED else [f"websocket /v1/realtime ({code})"]
    return found, shut


def _methods(path: str, own: dict[str, set[str]], opened: list[str]) -> list[str]:
    """Which methods are safe to ask it with."""
    read = path in PAGES or ("GET" in own.get(path, set()) and path not in opened)
    return ["OPTIONS", *(["GET"] if read else [])]


def problem(unit: str, found: list[str], shut: list[str]) -> str:
    """Say it; empty where nothing is wrong."""
    if found:
        more = f" and {len(found) - 8} more" if len(found) > 8 else ""
        return (
            f"{unit}: without the key the server answers {', '.join(found[:8])}{more}; needed: 401 for every path that "
            "vllm_open_routes does not name. Does systemctl cat show --middleware api_guard.Guard as the last argument?"
        )
    if shut:
        return f"{unit}: vllm_open_routes names {', '.join(shut)}, which the server refuses; take it out there"
    return ""

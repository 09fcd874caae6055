"""Who gets past the guard. The application behind it stands for vLLM: whatever reaches it has come in."""

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from tests.roles.vllm.plugins import load

guard = load("roles/vllm/files/guard/api_guard.py")
SERVER = "10.9.0.11"
KEY, OTHER = "first-key", 'second "key" 100%'


class Behind:
    """The application behind the guard: keeps the last scope that reached it."""

    scope: MutableMapping[str, Any] | None = None

    async def __call__(self, scope: MutableMapping[str, Any], _receive: Any, _send: Any) -> None:
        self.scope = scope


def asked(
    path: str = "/invocations",
    method: str = "POST",
    *,
    key: str | None = None,
    headers: dict[str, str] | None = None,
    client: tuple[str, int] | None = ("192.0.2.7", 40000),
    kind: str = "http",
    root: str = "",
    keys: tuple[str, ...] = (KEY, OTHER),
    metrics_from: tuple[str, ...] = (),
    opened: tuple[str, ...] = ("/health",),
) -> tuple[int, Behind, list[dict[str, Any]]]:
    """Ask once; (status or 0 where it came in, what is behind, what was sent)."""
    behind, sent = Behind(), []
    environment = {
        "VLLM_API_KEY": keys[0] if keys else "",
        **{f"API_GUARD_KEY_{number}": key for number, key in enumerate(keys[1:], 1)},
        "API_GUARD_OPEN": json.dumps(opened),
        "API_GUARD_METRICS_FROM": json.dumps(metrics_from),
    }

    async def receive() -> dict[str, Any]:
        raise AssertionError("the guard must not read a body")

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    given = {**(headers or {}), **({"Authorization": f"Bearer {key}"} if key is not None else {})}
    scope: dict[str, Any] = {
        "type": kind,
        "path": path,
        "root_path": root,
        "client": client,
        "server": (SERVER, 8000),
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
    }
    if kind == "http":
        scope["method"] = method
    asyncio.run(guard.Guard(behind, environment)(scope, receive, send))
    if behind.scope is not None:
        assert not sent
        return 0, behind, sent
    return {"websocket.close": 403}.get(sent[0]["type"], sent[0].get("status")), behind, sent


@pytest.mark.parametrize(
    "path", ["/v1/completions", "/invocations", "/tokenize", "/docs", "/", "", "*", "/of-a-later-release"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS", "DELETE", "PATCH", "BREW"])
def test_every_path_and_method_needs_a_key(path: str, method: str) -> None:
    assert asked(path, method)[0] == 401
    assert asked(path, method, key=KEY)[0] == 0


@pytest.mark.parametrize(
    "path",
    ["/health/", "//health", "/health//", "/HEALTH", "/health/../invocations", "/health/x", "/health;x", "/./health",
     "health", "/health%2f", "/healthz", "http://host/health", "/health\n", "/health ", "/\u210dealth"],
)  # fmt: skip
def test_only_the_very_path_is_open(path: str) -> None:
    assert asked("/health", "GET")[0] == 0
    assert asked(path, "GET")[0] == 401


def test_a_prefix_of_a_proxy_is_taken_off_as_the_router_does_it() -> None:
    assert asked("/api/health", root="/api")[0] == 0
    assert asked("/health", root="/api")[0] == 0
    for path in ("/apihealth", "/api/api/health", "/api//health", "/api/invocations", "/api"):
        assert asked(path, root="/api")[0] == 401, path
    assert asked("/api/invocations", root="/api", opened=("/api/invocations",))[0] == 401


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", f"Bearer {KEY}x", f"Bearer {KEY} ", f"Bearer  {KEY}", f"Basic {KEY}", KEY, f"bearer{KEY}",
     "Bearer " + KEY.upper(), f"Token {KEY}"],
)  # fmt: skip
def test_what_is_not_a_key_does_not_open(header: str) -> None:
    assert asked(headers={"Authorization": header})[0] == 401


def test_any_of_the_keys_opens_and_vllm_behind_sees_the_one_it_knows() -> None:
    for key in (KEY, OTHER):
        _, behind, _ = asked(headers={"authorization": f"bearer {key}", "x-other": "1"})
        assert behind.scope is not None
        seen = dict(behind.scope["headers"])
        assert seen[b"authorization"] in {b"bearer first-key", b"Bearer first-key"}
        assert seen[b"x-other"] == b"1"


def test_a_refusal_says_what_is_asked_for() -> None:
    _, _, (start, body) = asked()
    assert start["status"] == 401
    assert (b"www-authenticate", b"Bearer") in start["headers"]
    assert json.loads(body["body"]) == {"error": "Unauthorized"}


def test_a_websocket_needs_a_key_too() -> None:
    status, _, sent = asked("/v1/realtime", kind="websocket")
    assert (status, sent) == (403, [{"type": "websocket.close", "code": 1008, "reason": ""}])
    assert asked("/v1/realtime", kind="websocket", key=OTHER)[0] == 0


def test_the_start_of_the_server_passes_and_an_unknown_connection_does_not() -> None:
    behind = Behind()
    environment = {"VLLM_API_KEY": KEY, "API_GUARD_OPEN": "[]", "API_GUARD_METRICS_FROM": "[]"}
    asyncio.run(guard.Guard(behind, environment)({"type": "lifespan"}, None, None))
    assert behind.scope == {"type": "lifespan"}
    behind = Behind()
    asyncio.run(guard.Guard(behind, environment)({"type": "webtransport", "path": "/"}, None, None))
    assert behind.scope is None


def test_a_browser_may_ask_before_it_asks_and_nothing_else_is_a_preflight() -> None:
    both = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    assert asked(method="OPTIONS", headers=both)[0] == 0
    assert asked(method="POST", headers=both)[0] == 401
    for name in both:
        assert asked(method="OPTIONS", headers={name: both[name]})[0] == 401


NETWORKS = ("10.8.0.0/16", "2001:db8::/32")


@pytest.mark.parametrize(
    ("client", "key", "status"),
    [
        ("10.8.1.2", None, 0),
        ("::ffff:10.8.1.2", None, 0),
        ("2001:db8::5", None, 0),
        ("10.9.1.2", None, 403),
        ("10.9.1.2", KEY, 403),
        ("127.0.0.1", None, 403),
        ("127.0.0.1", KEY, 0),
        ("::1", KEY, 0),
        (SERVER, KEY, 0),
        (SERVER, None, 403),
        ("not-an-address", KEY, 403),
        (None, None, 403),
        (None, KEY, 0),
    ],
)
@pytest.mark.parametrize("path", ["/metrics", "/metrics/", "/metricsx", "/metrics/../health"])
def test_metrics_are_for_the_named_networks(path: str, client: str | None, key: str | None, status: int) -> None:
    peer = (client, 1) if client else None
    opened = ("/health", "/metrics")
    assert asked(path, "GET", client=peer, key=key, metrics_from=NETWORKS, opened=opened)[0] == status


@pytest.mark.parametrize("header", ["X-Forwarded-For", "forwarded", "X-Real-IP"])
def test_a_proxys_word_is_no_address(header: str) -> None:
    for client in (("10.8.1.2", 0), ("127.0.0.1", 1)):
        assert (
            asked("/metrics", "GET", client=client, key=KEY, headers={header: "10.8.1.2"}, metrics_from=NETWORKS)[0]
            == 403
        )


def test_without_a_key_only_metrics_are_guarded() -> None:
    without = {"keys": (), "metrics_from": NETWORKS}
    assert asked("/invocations", **without)[0] == 0
    assert asked("/metrics", "GET", **without)[0] == 403
    assert asked("/api/metrics", "GET", root="/api", **without)[0] == 403
    assert asked("/metrics", "GET", client=("127.0.0.1", 1), **without)[0] == 0


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"API_GUARD_OPEN": "[]"},
        {"API_GUARD_OPEN": '"/"', "API_GUARD_METRICS_FROM": "[]"},
        {"API_GUARD_OPEN": "[]", "API_GUARD_METRICS_FROM": '["10.8.0.1/8"]'},
    ],
)
def test_a_guard_without_its_words_is_no_server(said: dict[str, str]) -> None:
    with pytest.raises((KeyError, ValueError)):
        guard.Guard(Behind(), {"VLLM_API_KEY": KEY, **said})

"""Let in who has the key. vLLM loads it with --middleware api_guard.Guard, in front of everything else.

With a key vLLM itself guards the paths that begin with /v1, /v2, /inference and /cohere, and lets anybody use the
others: /invocations, which completes as /v1 does, /tokenize, /scale_elastic_ep, /docs and what a plugin adds. Here it
is the other way round: every path needs a key but the few that are named, so that a path of a later release is closed
too.

It reads from the environment, and a server without these words answers nothing:

VLLM_API_KEY             vLLM's own; may be absent, then only /metrics is guarded
API_GUARD_KEY_1, _2 …    more keys; may be absent
API_GUARD_OPEN           paths that need no key, a JSON list
API_GUARD_METRICS_FROM   networks that may read /metrics, a JSON list; empty for no limit

Nothing here needs a package, reads a body or holds back an answer.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MORE = "API_GUARD_KEY_"
METRICS = "/metrics"
# uvicorn takes the client's address from these where a proxy on this host sends them, and anybody can write them.
FORWARDED = (b"x-forwarded-for", b"forwarded", b"x-real-ip")


class Guard:
    """An ASGI middleware: refuses a request, or hands it on as it came."""

    def __init__(self, app: App, environment: Mapping[str, str] | None = None) -> None:
        said = os.environ if environment is None else environment
        keys = [said.get("VLLM_API_KEY", ""), *(key for name, key in said.items() if name.startswith(MORE))]
        self.app = app
        self.keys = [hashlib.sha256(key.encode()).digest() for key in keys if key]
        self.inner = said.get("VLLM_API_KEY", "").encode()
        self.open = frozenset(_listed(said["API_GUARD_OPEN"]))
        self.networks = [ipaddress.ip_network(one) for one in _listed(said["API_GUARD_METRICS_FROM"])]

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Decide by method, path, address and header, before a byte of the body is read."""
        if scope["type"] == "lifespan":
            return self.app(scope, receive, send)
        if scope["type"] not in {"http", "websocket"}:
            return _nothing()
        if status := self._refuses(scope):
            return _refuse(scope, send, status)
        return self.app(self._with_inner_key(scope), receive, send)

    def _refuses(self, scope: Scope) -> int:
        """The status to refuse with; 0 for a request that may pass."""
        path = _routed(scope)
        # vLLM mounts its metrics at everything that begins so, and a proxy's prefix may or may not be taken off.
        if self.networks and (path.startswith(METRICS) or scope["path"].startswith(METRICS)):
            return 0 if self._may_read_metrics(scope) else 403
        if path in self.open or _is_preflight(scope) or self._has_key(scope):
            return 0
        return 401

    def _has_key(self, scope: Scope) -> bool:
        """Does it carry one of the keys? Without keys nobody is asked for one. All are compared, whichever fits."""
        given = hashlib.sha256(_bearer(scope)).digest()
        fits = [hmac.compare_digest(given, key) for key in self.keys]
        return not self.keys or any(fits)

    def _may_read_metrics(self, scope: Scope) -> bool:
        """Named networks may; this host itself may with the key. Who was forwarded has no address of its own."""
        if any(name.lower() in FORWARDED for name, _ in scope["headers"]):
            return False
        address = _address(scope)
        if address is not None and any(address in network for network in self.networks):
            return True
        return _is_this_host(scope, address) and self._has_key(scope)

    def _with_inner_key(self, scope: Scope) -> Scope:
        """vLLM behind this knows one key: whoever came with another of ours goes on with that one."""
        if not self.inner or not self._other_key(scope):
            return scope
        headers = [(name, value) for name, value in scope["headers"] if name.lower() != b"authorization"]
        return {**scope, "headers": [*headers, (b"authorization", b"Bearer " + self.inner)]}

    def _other_key(self, scope: Scope) -> bool:
        token = _bearer(scope)
        return len(self.keys) > 1 and bool(token) and token != self.inner and self._has_key(scope)


def _listed(text: str) -> list[str]:
    """Read a JSON list of words. Raises ValueError for anything else: a guard that guesses is none."""
    found = json.loads(text)
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError(f"api_guard: needed is a JSON list of words, found {type(found).__name__}")
    return found


def _routed(scope: Scope) -> str:
    """The path that routes are matched with, as Starlette takes a proxy's prefix (--root-path) off."""
    path, root = str(scope["path"]), str(scope.get("root_path") or "")
    if root and path.startswith(root) and path[len(root) : len(root) + 1] in {"", "/"}:
        return path[len(root) :]
    return path


def _bearer(scope: Scope) -> bytes:
    """The token of `Authorization: Bearer`; empty without one."""
    for name, value in scope["headers"]:
        if name.lower() == b"authorization":
            scheme, _, token = value.partition(b" ")
            return token if scheme.lower() == b"bearer" else b""
    return b""


def _is_preflight(scope: Scope) -> bool:
    """A browser's question before the request, which carries no key by design: vLLM's CORS layer answers it itself."""
    names = {name.lower() for name, _ in scope["headers"]}
    return scope.get("method") == "OPTIONS" and {b"origin", b"access-control-request-method"} <= names


def _address(scope: Scope) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The other end of the connection; None on a Unix socket, and for what is no address."""
    client = scope.get("client")
    if not client or not client[0]:
        return None
    try:
        address = ipaddress.ip_address(client[0])
    except ValueError:
        return ipaddress.ip_address("0.0.0.0")  # noqa: S104 - nobody's: in no network, and not this host
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def _is_this_host(scope: Scope, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
    """A Unix socket, the loopback, or the very address that it was asked at, which nobody else can come from."""
    server = scope.get("server")
    return address is None or address.is_loopback or bool(server and scope["client"][0] == server[0])


async def _nothing() -> None:
    """Not a kind of connection that anybody knows: it gets no answer."""


async def _refuse(scope: Scope, send: Send, status: int) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": ""})  # the server makes 403 of it
        return
    body = b'{"error":"Unauthorized"}' if status == 401 else b'{"error":"Forbidden"}'
    headers: Iterable[tuple[bytes, bytes]] = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *([(b"www-authenticate", b"Bearer")] if status == 401 else []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})

"""Whether the role would see an open path, and that it never asks one for anything that changes the server."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.roles.vllm.plugins import load

doors = load("plugins/module_utils/vllm_doors.py")
http = load("plugins/module_utils/vllm_http.py")
PATHS = {
    "/health": {"get": {}},
    "/v1/completions": {"post": {}},
    "/v1/responses/{response_id}": {"get": {}},
    "/sleep": {"post": {}},
    "/of-a-plugin": {"post": {}, "delete": {}},
}


class Server(BaseHTTPRequestHandler):
    """vLLM's shape: `refuses` says of a path and a header whether it needs a key; what is let in is 405 or 200."""

    refuses: Any = staticmethod(lambda path, key: not key and path != "/health")
    seen: list[tuple[str, str]]

    def answer(self) -> None:
        key = self.headers.get("Authorization") == "Bearer right"
        self.seen.append((self.command, self.path))
        code = 401 if self.refuses(self.path, key) else 200 if self.command == "GET" else 405
        body = json.dumps({"paths": PATHS}).encode() if code == 200 and self.path == "/openapi.json" else b""
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_OPTIONS = do_POST = do_DELETE = do_PUT = do_PATCH = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    Server.seen = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def judged(url: str, opened: list[str], networks: list[str] | None = None) -> str:
    found = doors.judged(url, "right", opened, networks or [], "")
    return str(doors.problem("vllm@main.service", *found))


def test_a_guarded_server_has_no_complaint_and_was_asked_for_its_own_paths(url: str) -> None:
    assert judged(url, ["/health"]) == ""
    asked = set(Server.seen)
    assert {("OPTIONS", "/of-a-plugin"), ("OPTIONS", "/sleep"), ("GET", "/v1/responses/response_id")} <= asked
    assert {("OPTIONS", "/invocations"), ("GET", "/metrics"), ("GET", "/v1/realtime")} <= asked


def test_nothing_is_asked_that_would_change_an_open_server(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "refuses", staticmethod(lambda _path, _key: False))
    assert "without the key the server answers" in judged(url, ["/health"])
    assert {method for method, _ in Server.seen} == {"OPTIONS", "GET"}
    assert not [path for method, path in Server.seen if method == "GET" and path in {"/sleep", "/of-a-plugin"}]


@pytest.mark.parametrize(
    ("lets_in", "says"),
    [
        (lambda path: path == "/of-a-plugin", "OPTIONS /of-a-plugin (405)"),
        (lambda path: not path.startswith(("/v1", "/v2")), "OPTIONS any other path (405)"),
        (lambda path: path == "/docs", "GET /docs (200)"),
    ],
)
def test_one_open_path_is_named(url: str, monkeypatch: pytest.MonkeyPatch, lets_in: Any, says: str) -> None:
    def refuses(path: str, key: bool) -> bool:
        return not key and path != "/health" and not lets_in(path)

    monkeypatch.setattr(Server, "refuses", staticmethod(refuses))
    told = judged(url, ["/health"])
    assert told.startswith(f"vllm@main.service: without the key the server answers {says}")


def test_a_path_that_is_named_open_and_refused_is_told(url: str) -> None:
    assert "vllm_open_routes names /load (401)" in judged(url, ["/health", "/load"])


def test_without_a_list_of_paths_the_known_ones_are_asked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "refuses", staticmethod(lambda path, _key: path != "/health"))
    assert judged(url, ["/health"]) == ""
    assert ("OPTIONS", "/tokenize") in Server.seen
    assert len({path for _, path in Server.seen}) > 40


def test_what_a_running_server_was_told_is_read_from_it() -> None:
    assert doors.guard_of({"VLLM_API_KEY": "x"}) is None
    said = {"API_GUARD_OPEN": '["/health"]', "API_GUARD_METRICS_FROM": '["10.0.0.0/8"]'}
    assert doors.guard_of(said) == (["/health"], ["10.0.0.0/8"])

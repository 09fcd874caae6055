"""Whether a service answers: a completion counts, and one that hangs is not waited for longer than was said."""

import json
import threading
import urllib.error
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.roles.vllm.plugins import load

module = load("library/vllm_ready.py")


class Server(BaseHTTPRequestHandler):
    """As vLLM answers; a completion hangs for as long as `held`."""

    held = threading.Event()

    def answer(self, told: object) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(told).encode())

    def do_GET(self) -> None:
        self.answer({"data": [{"id": "tiny"}]})

    def do_POST(self) -> None:
        self.held.wait()
        self.answer({"choices": [{"text": "x"}]})

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    Server.held = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    Server.held.set()
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_completion_names_the_model(url: str) -> None:
    Server.held.set()
    assert module.answers(url, "", 5) == ("tiny", "/v1/completions")


def test_a_server_that_lists_its_model_and_completes_nothing_does_not_answer(url: str) -> None:
    with pytest.raises(OSError, match="timed out") as told:
        module.answers(url, "", 0.2)
    assert not module.not_listening(told.value)


def test_nobody_listens_while_the_model_loads(url: str) -> None:
    port = url.rpartition(":")[2]
    with pytest.raises(urllib.error.URLError) as told:
        module.answers(f"http://127.0.0.2:{port}", "", 1)
    assert module.not_listening(told.value)


class OldServer(Server):
    """A release that has every route, refuses what its model cannot do, and shows no document of them."""

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self.answer({"data": [{"id": "e5"}]})
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/embeddings":
            self.answer({"data": [{"embedding": [0.0]}]})
        else:
            self.send_error(400 if "completions" in self.path else 500)


def test_a_server_that_does_not_list_its_routes_is_asked_for_each_until_one_is_not_refused() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), OldServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert module.answers(f"http://127.0.0.1:{server.server_port}", "", 5) == ("e5", "/v1/embeddings")
    finally:
        server.shutdown()
        server.server_close()

"""Whether a service answers: a completion counts, and one that hangs is not waited for longer than was said."""

import json
import re
import socket
import threading
import urllib.error
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.roles.vllm.plugins import load

module = load("plugins/modules/vllm_ready.py")


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


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b"\x15\x03\x01\x00\x02\x02\x46", "the answer is no HTTP: BadStatusLine"),  # a server of TLS, asked without
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\n{", "the answer is no HTTP: IncompleteRead"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "Expecting value"),
        (b"HTTP/1.1 200 OK\r\n\r\n[]", "the answer is no JSON object"),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", "/v1/models lists no model"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"data": []}', "/v1/models lists no model"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"data": ["tiny"]}', "/v1/models lists no model"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"data": [{"id": "tiny"}]}', "/v1/completions answered with no choices"),
    ],
)
def test_who_answers_otherwise_than_vllm_does_not_answer(sent: bytes, says: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = threading.Thread(target=say, args=(door, sent))
        thread.start()
        with pytest.raises((OSError, ValueError), match=re.escape(says)):
            module.answers(f"http://127.0.0.1:{door.getsockname()[1]}", "", 5)
        door.shutdown(socket.SHUT_RDWR)  # accept() ends
        thread.join()


def say(door: socket.socket, sent: bytes) -> None:
    """Give everybody the same bytes, until the door is shut; what they send is read to its end."""
    with suppress(OSError):
        while True:
            caller, _ = door.accept()
            with caller:
                caller.sendall(sent)
                caller.shutdown(socket.SHUT_WR)
                while caller.recv(65536):
                    pass

"""What the doctor finds of a server's doors, as somebody without a key and with the unit's."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from vllm_doctor.gather.http import Pass
from vllm_doctor.gather.metrics import scrape_twice
from vllm_doctor.gather.probe import probe
from vllm_doctor.records.reading import Known, Unknown

METRICS = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1\n"


class Server(BaseHTTPRequestHandler):
    """Refuses, without the key, the paths that begin with one of `closed`."""

    closed: tuple[str, ...]
    asked: list[str]

    def answer(self) -> None:
        key = self.headers.get("Authorization") == "Bearer right"
        self.asked.append(f"{self.command} {self.path}{' keyed' if key else ''}")
        status = 401 if self.path.startswith(self.closed) and not key else 405 if self.command == "OPTIONS" else 200
        body = METRICS if self.path == "/metrics" else '{"data": [{"id": "tiny"}]}'
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_GET = do_OPTIONS = do_POST = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def base() -> Iterator[str]:
    Server.asked, Server.closed = [], ()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("closed", "keyless", "beside"),
    [((), 200, None), (("/v1",), 401, 405), (("/v1", "/invocations"), 401, 401), (("/",), 401, 401)],
)
def test_how_far_somebody_without_a_key_gets(
    base: str, closed: tuple[str, ...], keyless: int, beside: int | None
) -> None:
    Server.closed = closed
    found = probe(base, deadline_s=30, given=Pass("right"))
    assert (found.health_status, found.keyless, found.keyless_beside) == (200, keyless, beside)
    assert not [line for line in Server.asked if line.startswith("POST")]


def test_the_key_is_only_shown_where_it_is_asked_for(base: str) -> None:
    Server.closed = ("/v1",)
    probe(base, deadline_s=30, given=Pass("right"))
    assert not [line for line in Server.asked if line.endswith("keyed")]


def test_closed_metrics_are_read_with_the_key_and_without_one_say_what_is_needed(base: str) -> None:
    Server.closed = ("/metrics",)
    assert isinstance(scrape_twice(base, deadline_s=30, interval_s=0.01, given=Pass("right")), Known)
    found = scrape_twice(base, deadline_s=30)
    assert isinstance(found, Unknown)
    assert "answers 401: it refuses requests from here" in found.reason
    assert found.remedy == "run as root, which can read the key"

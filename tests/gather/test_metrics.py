"""/metrics: only vLLM's, only what can be true, and never for longer than the deadline."""

import itertools
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gather.conftest import Server
from vllm_doctor.gather import http as http_module
from vllm_doctor.gather import metrics
from vllm_doctor.gather.metrics import parse, read_file, scrape_twice
from vllm_doctor.knowledge import serving
from vllm_doctor.records.host import Metrics, Sample, Scrape
from vllm_doctor.records.reading import Known, Unknown

Reply = Callable[[socket.socket, threading.Event], None]
Serve = Callable[[Reply], Server]

GOOD = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="m"} %d
"""


def http(body: str, status: str = "200 OK", kind: str = "text/plain; version=0.0.4") -> bytes:
    data = body.encode()
    return (
        f"HTTP/1.1 {status}\r\nServer: uvicorn\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        + data
    )


def always(data: bytes) -> Reply:
    return lambda connection, _over: connection.sendall(data)


def test_two_scrapes_and_the_rate_between_them(serve: Serve) -> None:
    asked: list[int] = []

    def reply(connection: socket.socket, over: threading.Event) -> None:
        asked.append(1)
        connection.sendall(http(GOOD % (10 * len(asked))))

    found = scrape_twice(serve(reply).base, deadline_s=60, interval_s=0.05)
    assert isinstance(found, Known)
    assert len(found.value.scrapes) == 2
    assert serving.increase(found.value, serving.PREEMPTIONS) == 10
    assert (serving.rate(found.value, serving.PREEMPTIONS) or 0) > 0


def test_a_counter_reset_is_no_rate() -> None:
    def scrape(at: float, value: float) -> Scrape:
        return Scrape(at, (Sample("vllm:num_preemptions_total", {"engine": "0"}, value),))

    assert serving.rate(Metrics("u", (scrape(1, 100), scrape(2, 3))), serving.PREEMPTIONS) is None
    assert serving.rate(Metrics("u", (scrape(1, 100), scrape(2, 100))), serving.PREEMPTIONS) == 0
    assert serving.rate(Metrics("u", (scrape(1, 100),)), serving.PREEMPTIONS) is None
    assert serving.rate(Metrics("u", (scrape(1, 1), Scrape(2, ()))), serving.PREEMPTIONS) is None


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (http("node_load1 0.5\n"), "another program answers here"),
        (http("<html><body>It works!</body></html>", kind="text/html"), "not in the Prometheus format"),
        (http(""), "an empty answer"),
        (http("not here", status="404 Not Found"), "answers 404"),
        (http("", status="302 Found"), "answers 302"),
        (http("vllm:kv_cache_usage_perc 87.0\n"), "which is impossible"),
        (http("vllm:num_preemptions_total -4\n"), "which is impossible"),
        (http("vllm:num_requests_running 1e18\n"), "which is impossible"),
        (http("vllm:num_requests_running{\x1b[2J 1\n"), "not in the Prometheus format"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\nvllm:x 1\n", "broke off"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "127.0.0.1"),
        (b"", "127.0.0.1"),
    ],
)
def test_servers_that_lie_or_are_another_program(serve: Serve, answer: bytes, word: str) -> None:
    found = scrape_twice(serve(always(answer)).base, deadline_s=60)
    assert isinstance(found, Unknown), found
    assert word in found.reason
    assert found.remedy


def silent(_connection: socket.socket, over: threading.Event) -> None:
    over.wait(300)


def drip(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while not over.wait(0.05):
        connection.sendall(b"#")


def drip_headers(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Padding: ")
    while not over.wait(0.05):
        connection.sendall(b"a")


def endless(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while not over.is_set():
        connection.sendall(b"# padding padding padding\n" * 4096)


def test_a_server_that_is_silent_is_left_behind(serve: Serve) -> None:
    found = scrape_twice(serve(silent).base, deadline_s=0.5)
    assert isinstance(found, Unknown)
    assert "sent nothing" in found.reason


def test_a_server_that_drips_is_left_behind_when_the_time_is_over(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = itertools.count(0, 40)  # the clock is over the deadline at the second look
    monkeypatch.setattr(http_module, "time", SimpleNamespace(monotonic=lambda: next(looks)))
    found = scrape_twice(serve(drip).base, deadline_s=30)
    assert isinstance(found, Unknown)
    assert "still sending" in found.reason


def test_a_server_that_drips_its_headers_is_left_behind_though_each_read_is_in_time(serve: Serve) -> None:
    found = http_module.get(serve(drip_headers).base, deadline_s=0.5)
    assert isinstance(found, http_module.NoResponse)
    assert "sent nothing" in found.reason  # an answer has not begun before its headers are whole


def test_a_server_without_end_is_left_behind_at_the_limit_of_size(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MAX_BYTES", 1 << 20)
    found = scrape_twice(serve(endless).base, deadline_s=60)
    assert isinstance(found, Unknown)
    assert "more than" in found.reason


def test_nobody_there() -> None:
    with socket.socket() as reserved:  # bound, so that nobody else gets the port, and not listening
        reserved.bind(("127.0.0.1", 0))
        found = scrape_twice(f"http://127.0.0.1:{reserved.getsockname()[1]}", deadline_s=60)
    assert isinstance(found, Unknown)
    assert "connection refused" in found.reason


def test_a_server_that_dies_between_the_scrapes_leaves_one(serve: Serve) -> None:
    asked: list[int] = []

    def reply(connection: socket.socket, over: threading.Event) -> None:
        asked.append(1)
        if len(asked) == 1:
            connection.sendall(http(GOOD % 1))

    found = scrape_twice(serve(reply).base, deadline_s=60, interval_s=0.05)
    assert isinstance(found, Known)
    assert len(found.value.scrapes) == 1


@pytest.mark.parametrize("content", [b"", b"\0\0\0\0", b"{", b'{"url": 3}', b"\xff\xfe junk", b"hello\n"])
def test_files_that_hold_no_metrics(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "metrics"
    path.write_bytes(content)
    found = read_file(str(path))
    assert isinstance(found, Unknown)
    assert found.reason
    assert isinstance(read_file(str(tmp_path / "none")), Unknown)


@given(st.text(max_size=300))
def test_no_text_breaks_the_parser(text: str) -> None:
    assert isinstance(parse(text), str | tuple)
    assert isinstance(parse(f"vllm:num_requests_running 1\n{text}"), str | tuple)


def test_a_full_cache_is_possible_and_more_than_full_is_not() -> None:
    full = parse("# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc 1.0\n")
    assert [sample.value for sample in full] == [1.0]
    assert "which is impossible" in str(parse("# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc 1.01\n"))

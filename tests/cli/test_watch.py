"""`watch` of a server by its address, as a process: narrow and dumb terminals, a pipe whose reader goes, keys."""

import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

CLI = str(Path(sys.executable).with_name("vllm-doctor"))
PAGE = b"""\
vllm:num_requests_running{engine="0"} 3
vllm:num_requests_waiting{engine="0"} 0
vllm:kv_cache_usage_perc{engine="0"} 0.25
"""


class Closed(BaseHTTPRequestHandler):
    """A server behind a door that the key `sesame` opens."""

    def do_GET(self) -> None:
        opened = self.headers.get("Authorization") == "Bearer sesame"
        body = PAGE if opened else b"{}"
        sick = self.path.startswith("/sick/health")
        self.send_response(503 if sick else 200 if opened else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Closed)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def watch(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {name: value for name, value in os.environ.items() if name not in {"VLLM_API_KEY", "COLUMNS"}}
    return subprocess.run(
        [CLI, "watch", *words], env=known | environment, capture_output=True, text=True, check=False, timeout=120
    )


def test_a_narrow_terminal_cuts_the_bar_and_no_word(address: str) -> None:
    told = watch("--once", "--url", address, VLLM_API_KEY="sesame", COLUMNS="40")
    assert told.returncode == 0, told.stderr
    assert max(map(len, told.stdout.splitlines())) <= 40
    assert "3 running, 0 waiting" in told.stdout


def test_a_closed_door_names_the_key_s_place_and_a_key_that_no_header_holds_is_no_defect(address: str) -> None:
    without = watch("--once", "--url", address, COLUMNS="200")
    assert (without.returncode, "VLLM_API_KEY=… in the environment gives a key" in without.stdout) == (3, True)
    broken = watch("--once", "--url", address, VLLM_API_KEY="sesame\r\nother", COLUMNS="200")
    assert (broken.returncode, broken.stderr) == (3, "")
    assert "the key has a line break or another character that a header must not contain" in broken.stdout
    assert "sesame" not in broken.stdout


def test_a_server_that_says_that_it_is_not_well_is_no_success(address: str) -> None:
    told = watch("--once", "--url", f"{address}/sick", VLLM_API_KEY="sesame", COLUMNS="200")
    assert (told.returncode, "/health 503" in told.stdout) == (3, True), told.stdout + told.stderr


def test_it_ends_when_the_reader_of_its_pipe_has_gone(address: str) -> None:
    with subprocess.Popen(
        [CLI, "watch", "--every", "0.5", "--url", address], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline()
        running.stdout.close()
        assert running.wait(60) == 0


@pytest.mark.parametrize(("term", "escapes"), [("dumb", False), ("xterm", True)])
def test_a_dumb_terminal_is_sent_no_escape(address: str, term: str, escapes: bool) -> None:
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": term}
    with subprocess.Popen(
        [CLI, "watch", "--every", "0.5", "--url", address], stdout=theirs, stderr=theirs, env=environment
    ) as running:
        os.close(theirs)
        said, end = b"", time.monotonic() + 60
        while said.count(b"/health 401") < 2 and time.monotonic() < end:
            said += os.read(ours, 4096)
        os.close(ours)  # the terminal is closed, and with it the view
        assert running.wait(60) in {0, -1}
    assert (said.count(b"/health 401") >= 2, b"\x1b[" in said) == (True, escapes)

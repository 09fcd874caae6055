"""A look at a server that is another program, hangs, drips, or wants a key: a clear word, and never a guess."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from vllm_doctor.gather import look
from vllm_doctor.gather.http import Pass
from vllm_doctor.gather.systemd import Found
from vllm_doctor.operate.announce import announced
from vllm_doctor.operate.tune.unit import flag_number
from vllm_doctor.records.host import Unit
from vllm_doctor.records.reading import Unknown

VLLM = 'vllm:num_requests_running{engine="0"} 3.0\nvllm:kv_cache_usage_perc{engine="0"} 0.25\n'


class Server(BaseHTTPRequestHandler):
    page: bytes = b""
    status = 200
    drip = False

    def do_GET(self) -> None:
        if self.path == "/health":
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.page)))
        self.end_headers()
        for at in range(len(self.page) if self.drip else 0):
            self.wfile.write(self.page[at : at + 1])
            time.sleep(0.2)
        if not self.drip:
            self.wfile.write(self.page)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def serve() -> Iterator[object]:
    made = []

    def start(page: str, **more: object) -> str:
        handler = type("Handler", (Server,), {"page": page.encode(), **more})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        made.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in made:
        server.shutdown()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "_HTTP_S", 1.0)


def test_a_server_is_read_by_its_address_alone(serve) -> None:
    told = look.look_at(serve(VLLM))
    assert (told.health, told.why) == (200, "")
    assert told.counters is not None
    assert (told.counters.running, told.counters.kv, told.counters.generated) == (3, 0.25, None)


@pytest.mark.parametrize(
    ("page", "more", "why"),
    [
        ("node_load1 1\n", {}, "no vLLM metric in it: another program answers here"),
        ("<html>hello</html>\n", {}, "not in the Prometheus format"),
        ("", {}, "an empty answer"),
        (VLLM.replace("3.0", "NaN"), {}, "which is impossible"),
        (VLLM, {"status": 401}, "it refuses requests from here"),
        (VLLM, {"status": 500}, "answers 500"),
        (VLLM, {"drip": True}, "still sending"),
    ],
)
def test_what_cannot_be_read_is_said(serve, page: str, more: dict[str, object], why: str) -> None:
    told = look.look_at(serve(page, **more))
    assert told.counters is None
    assert why in told.why


def test_where_nobody_listens_health_is_zero_and_not_silence() -> None:
    told = look.look_at("http://127.0.0.1:9", Pass())
    assert (told.health, told.counters) == (0, None)


def test_a_server_on_a_unix_socket_is_said_not_to_be_asked() -> None:
    unit = Unit("vllm@main.service", "loaded", "active", "running", "success")
    found = Found(unit, ("vllm", "serve", "m", "--uds", "/run/m.sock"), {}, "", None)
    seen = look._look(found, Unknown("no NVML", ""), (0.0, 0.0, 0.0), "", None)
    assert (seen.state, seen.health, seen.silent_s) == ("not asked", None, None)
    assert seen.why == "it listens on a Unix socket (--uds), which the guard does not ask: only its memory is watched"


def test_a_unit_whose_command_line_cannot_be_read_has_no_key_there() -> None:
    unit = Unit("vllm.service", "loaded", "active", "running", "success")
    assert look.key_of(Found(unit, (), {"VLLM_API_KEY": "k"}, "", None)) == "k"
    assert flag_number((), "max-num-seqs") is None


def test_who_changes_the_host_is_believed_for_some_hours(tmp_path: Path) -> None:
    file = tmp_path / "changing"
    assert look.changing(time.time(), file) is None
    file.write_text("site.yml\n")
    said = look.changing(time.time(), file)
    assert said == look.HostChange("site.yml")
    assert said.of("vllm@main.service")
    assert look.changing(time.time() + 5 * 3600, file) is None


def test_who_changes_one_unit_holds_no_other_up(tmp_path: Path) -> None:
    file = tmp_path / "changing"
    with announced("vllm-doctor recover", "vllm@main.service", file):
        said = look.changing(time.time(), file)
        assert said is not None
        assert (said.of("vllm@main.service"), said.of("vllm@two.service")) == (True, False)


def test_a_word_of_who_was_killed_holds_nobody_up(tmp_path: Path) -> None:
    file, unit = tmp_path / "changing", "vllm@main.service"
    with announced("vllm-doctor recover", unit, file):
        with announced("another", unit, file):
            assert look.changing(time.time(), file) == look.HostChange("vllm-doctor recover", unit)
        assert file.exists()
    assert not file.exists()
    file.write_text("vllm-doctor recover\n4194305 1\n")
    assert look.changing(time.time(), file) is None
    with announced("the second try", unit, file):
        assert look.changing(time.time(), file) == look.HostChange("the second try", unit)
    assert not file.exists()

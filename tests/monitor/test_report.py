"""`vllm-doctor report` from the guard's records."""

import json
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock

import msgspec
import pytest

from tests.render.sample import HOSTILE
from vllm_doctor.knowledge.version import as_version
from vllm_doctor.monitor import over_time
from vllm_doctor.monitor.over_time import of_guard, of_prometheus, thinned
from vllm_doctor.operate.history.store import Store
from vllm_doctor.operate.history.store_format import Minute, UnitEvent
from vllm_doctor.records.sample import CardUse, Counters, Look
from vllm_doctor.render.report import ReportEvent, ServiceReport, page

UNIT = "vllm@main.service"
GIB = 1 << 30


def minute(at: float, generated: float) -> Minute:
    return Minute(at, "active", 200, 2.0, 0.0, 0.5, 0.0, generated, 0.0, 0.0, GIB, 2 * GIB)


def test_a_restart_and_a_gap_make_no_rate() -> None:
    told = of_guard([minute(0, 100), minute(60, 700), minute(120, 5), minute(180, 65), minute(9000, 70)], [])
    (tokens,) = [c for c in told if c.title == "Tokens a second"]
    assert tokens.lines[0].points == ((60, 10.0), (180, 1.0))


def test_thinned_keeps_a_peak_and_an_outage_in_their_order() -> None:
    points = [(float(at), {777: 9.0, 779: 0.0, 2500: 0.0}.get(at, 1.0)) for at in range(3000)]
    told = thinned(points)
    assert {(777.0, 9.0), (779.0, 0.0), (2500.0, 0.0)} <= set(told)
    assert list(told) == sorted(told)
    assert len(thinned([(float(at), float(at % 7)) for at in range(10_000)])) <= 301
    assert len(thinned(points[:300])) == 300


def test_four_minutes_without_an_answer_show_in_a_day() -> None:
    day = [minute(60.0 * at, float(at)) for at in range(1440)]
    day = [m if not 700 <= at < 704 else msgspec.structs.replace(m, health=0) for at, m in enumerate(day)]
    (health,) = [c for c in of_guard(day, []) if c.title == "/health"]
    assert min(value for _, value in health.lines[0].points) == 0.0


def test_what_others_wrote_stays_text() -> None:
    report = ServiceReport(
        HOSTILE, 0, 100, HOSTILE, of_guard([minute(0, 1), minute(60, 2)], []), (ReportEvent(5, UNIT, "x", HOSTILE),)
    )
    html = page([report])
    assert "<script" not in html
    assert "\x1b" not in html
    assert html.isascii()


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    doctor = str(Path(sys.executable).with_name("vllm-doctor"))
    environment = {"PATH": "/usr/bin:/bin", "VLLM_DOCTOR_STATE": str(folder)}
    return subprocess.run([doctor, "report", *words], env=environment, capture_output=True, text=True, check=False)


def test_the_page_of_a_day(tmp_path: Path) -> None:
    store, now = Store(tmp_path / "history.sqlite"), time.time()
    for back in range(1440):
        told = Counters(2.0, 1.0, 0.5, 9.0 * (1440 - back), 60.0 * (1440 - back), 1.0, 0.0)
        card = CardUse("GPU-11112222", 20 * GIB, 0, 24 * GIB, 4 * GIB)
        store.keep(Look(UNIT, now - 60 * back, 0.0, 0.0, counters=told, cards=(card,), host=3 * GIB))
    store.event(UnitEvent(now - 600, UNIT, "pressure", "the KV cache is full"))
    store.close()
    done = run(tmp_path, "--since", "24h", "--output", str(tmp_path / "day.html"))
    assert (done.returncode, done.stderr) == (0, "")
    html = (tmp_path / "day.html").read_text()
    assert "the KV cache is full" in html
    assert "20.0 GiB" in html
    assert len(html) < 200_000
    assert "replace it with --force" in run(tmp_path, "--output", str(tmp_path / "day.html")).stderr


def test_who_has_figures_stands_first_and_who_has_none_is_no_page_of_empty_charts(tmp_path: Path) -> None:
    """The guard notes of the host itself what concerns no service; such a record has no figures."""
    store, now = Store(tmp_path / "history.sqlite"), time.time()
    for back in range(10):
        store.keep(Look(UNIT, now - 60 * back, 0.0, 0.0, counters=Counters(2.0, 1.0, 0.5, 9.0, 60.0, 1.0, 0.0)))
    store.event(UnitEvent(now - 300, "the host", "note", "systemd did not answer"))
    store.event(UnitEvent(now - 9e4, "vllm@gone.service", "note", "long ago"))
    store.close()
    html = run(tmp_path, "--since", "1h").stdout
    assert html.index(f"<h1>{UNIT}</h1>") < html.index("<h1>the host</h1>") < html.index("systemd did not answer")
    assert html.count("<h2>KV cache in use</h2>") == 1
    assert "vllm@gone" not in html


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "no records of a guard"),
        (["--since", "soon"], "needed: a span"),
        (["--prometheus", "file:///etc/passwd"], "needed: an address"),
        (["--prometheus", "http://127.0.0.1:9"], "--prometheus: no connection to http://127.0.0.1:9/"),
        (["--prometheus", "http://127.0.0.1:9", "--unit", "main"], "--unit names a service of the guard's records"),
        (["--http-config", "x"], "--http-config has the password of a Prometheus"),
        (["--vllm-version", "0.32.0"], "--vllm-version names the metrics of a Prometheus"),
    ],
)
def test_what_cannot_be_drawn_is_said(tmp_path: Path, words: list[str], told: str) -> None:
    done = run(tmp_path, *words)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_text_file_without_findings_is_no_missing_figure() -> None:
    """A Prometheus that scrapes the text file and has nothing else: no finding is told apart from no file."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            row = {"metric": {"host": "a"}, "values": [[1, "1"]]}
            series = [row] if "query=vllm_doctor_last_run" in self.path else []
            body = json.dumps({"status": "success", "data": {"result": series}}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        notes = {c.title: c.note for c in of_prometheus(url, 0, 60, [as_version("0.32.0")])}
        server.shutdown()
    assert notes["Findings of the doctor"] == "no finding in this time"
    assert notes["GPU memory"] == "the doctor's text file names no GPU"
    assert notes["KV cache in use"] == "Prometheus has no figures for this"


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (401, b"Unauthorized", r"it needs a password \(HTTP 401\): --http-config FILE has it"),
        # What Go's server says, without a header, on its TLS listener.
        (
            400,
            b"Client sent an HTTP request to an HTTPS server.\n",
            r"HTTP 400, it speaks TLS: write https://",
        ),
        (200, b"<html>", r"no answer of a Prometheus \(HTTP 200, JSON is malformed"),
    ],
)
def test_why_a_prometheus_refuses_is_told(status: int, body: bytes, told: str) -> None:
    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        with pytest.raises(over_time.NotTold, match=told):
            over_time.of_prometheus(url, 0, 100, (as_version("0.33.0"),))
        server.shutdown()


def test_why_a_prometheus_did_not_answer_is_told_without_the_query() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:  # takes the connection, and says nothing
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        with mock.patch.object(over_time, "_ASK_S", 0.3), pytest.raises(over_time.NotTold) as raised:
            over_time.of_prometheus(url, 0, 100, (as_version("0.33.0"),))
    assert str(raised.value) == f"{url}/api/v1/query_range accepted the connection and sent nothing within 0.3 s"

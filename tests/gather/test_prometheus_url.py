"""A Prometheus behind a URL, over real sockets: its API's answers, several replicas of a model, one that is gone."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.main import run
from vllm_doctor.gather import prometheus

# Of each server: requests that run and wait, the full part of its KV cache, preemptions now; None where it is gone.
Told = dict[str, tuple[float, float, float, float] | None]
EVEN: Told = {"gpu1:8000": (20, 0, 0.4, 100), "gpu2:8000": (22, 0, 0.5, 100)}


class Api(BaseHTTPRequestHandler):
    """The instant queries that are asked of a Prometheus."""

    told: ClassVar[Told] = {}
    status = 200

    def do_GET(self) -> None:
        at = urlsplit(self.path)
        if at.path == "/-/healthy":
            self.answer(200, "Prometheus Server is Healthy.\n")
        elif at.path == "/api/v1/query":
            words = parse_qs(at.query)
            self.answer(self.status, json.dumps(self.queried(words["query"][0], float(words["time"][0]))))
        else:
            self.answer(404, "")

    def queried(self, query: str, at: float) -> dict[str, Any]:
        if self.status != 200:
            return {"status": "error", "errorType": "timeout", "error": "query timed out in expression evaluation"}
        ago = time.time() - at
        rows: list[dict[str, Any]] = []
        for server, one in self.told.items():
            if one is None and ago < 100:
                continue
            running, waiting, kv, preempted = one or (1, 0, 0.1, 0)
            figures = {
                "vllm:num_requests_running": running, "vllm:num_requests_waiting": waiting,
                "vllm:kv_cache_usage_perc": kv, "vllm:num_preemptions_total": preempted if ago < 100 else 0,
            }  # fmt: skip
            labels: dict[str, str] = {"instance": server, "job": "vllm", "model_name": "org/m", "engine": "0"}
            for name, value in figures.items():
                if query.startswith("{"):
                    rows.append({"metric": {**labels, "__name__": name}, "value": [at, str(value)]})
                elif f"({name}[" in query:
                    rows.append({"metric": labels, "value": [at, str(value)]})
        return {"status": "success", "data": {"resultType": "vector", "result": rows}}

    def answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Api, "told", EVEN)
    monkeypatch.setattr(Api, "status", 200)
    # Server and client share this process, and a busy machine its processors.
    monkeypatch.setattr(prometheus, "DEADLINE_S", 120.0)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def judged(capsys: pytest.CaptureFixture[str], base: str) -> tuple[int, dict[str, Any]]:
    code = run(["diagnose", "--format", "json", base])
    told = capsys.readouterr()
    assert told.out, (code, told.err)
    return code, json.loads(told.out)


def test_replicas_in_order_stand_side_by_side_and_what_was_not_asked_is_said(
    base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = judged(capsys, base)
    assert (code, told["verdict"]) == (Exit.OK, "ok")
    assert [one["subject"]["place"] for one in (told, *told["others"])] == [
        f"gpu1:8000 by {base}",
        f"gpu2:8000 by {base}",
    ]
    assert "no completion was tried" in told["path"][-1]["because"]


def test_a_queue_at_one_replica_beside_an_idle_one_is_the_balancer_s(
    base: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Api, "told", {"gpu1:8000": (64, 12, 0.6, 0), "gpu2:8000": (3, 0, 0.05, 0)})
    code, told = judged(capsys, base)
    assert (code, told["findings"][0]["code"]) == (Exit.FINDINGS, "VD316")
    assert told["findings"][0]["title"] == "12 requests wait here while gpu2:8000 runs 3"
    assert told["subject"]["place"] == f"gpu1:8000 by {base}"


def test_rates_are_those_of_the_window(
    base: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Api, "told", {"gpu1:8000": (64, 5, 1.0, 3000)})
    told = judged(capsys, base)[1]
    assert "VD301" in [one["code"] for one in told["findings"]]


def test_a_replica_without_figures_is_unknown_and_named(
    base: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Api, "told", {**EVEN, "gpu3:8000": None})
    code, told = judged(capsys, base)
    assert (code, told["verdict"]) == (Exit.INCOMPLETE, "unknown")
    assert told["path"][-1]["because"] == f"{base} no longer has figures of gpu3:8000"


def test_a_name_of_a_server_is_no_command(
    base: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Api, "told", {**EVEN, "gpu3:8000'; $(id)\n": None})
    told = judged(capsys, base)[1]
    assert told["subject"]["place"] == f"gpu3:8000id by {base}"


@pytest.mark.parametrize(("status", "wanted"), [(200, "has no metric of vLLM"), (503, "timed out")])
def test_a_prometheus_that_tells_nothing_says_why(
    status: int, wanted: str, base: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Api, "told", {})
    monkeypatch.setattr(Api, "status", status)
    assert run(["diagnose", base]) == Exit.USAGE
    assert wanted in capsys.readouterr().err

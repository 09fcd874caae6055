"""A server behind a URL, asked over real sockets: its health, its release, a token, its metrics over a window."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from vllm_doctor.cli.exit_codes import Exit
from vllm_doctor.cli.main import run
from vllm_doctor.gather import place


class Server(BaseHTTPRequestHandler):
    """vLLM's routes; `tokens` is false where its engine gives none, `counted` what its counter says."""

    tokens = True
    counted = 0
    hidden = ""

    def answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_GET(self) -> None:
        type(self).counted += 7 * self.path.endswith("metrics")
        counter = 'vllm:generation_tokens_total{model_name="m"}'
        found = {
            "/health": "",
            "/version": '{"version": "0.11.0"}',
            "/v1/models": json.dumps({"data": [{"id": "m"}]}),
            "/metrics": f"# TYPE vllm:generation_tokens counter\n{counter} {self.counted if self.tokens else 5}\n",
        }.get(self.path)
        self.answer(404 if found is None or self.path == self.hidden else 200, found or "")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200 if self.tokens else 500, '{"choices": [{"text": "1"}]}')

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(place, "WINDOW_S", 0.05)
    # Server and client share this process, and a busy machine its processors.
    monkeypatch.setattr(place, "HTTP_S", 60.0)
    monkeypatch.setattr(Server, "tokens", True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def judged(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = run(["diagnose", "--format", "json", *words])
    return code, json.loads(capsys.readouterr().out)


def test_a_server_in_order_gave_a_token_and_what_was_not_seen_is_said(
    base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = judged(capsys, f"{base}/v1")
    assert (code, told["verdict"], told["subject"]["place"]) == (Exit.OK, "ok", base)
    assert told["facts"]["vllm_version"] == "0.11.0"
    because = told["path"][-1]["because"]
    assert because.startswith("/health answers, a completion of one token came back")
    assert because.endswith("its log, its host and its GPUs were not seen")


def test_without_a_completion_the_answer_says_that_none_was_tried(
    base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = judged(capsys, "--no-canary", base)[1]
    assert "no completion was tried (--no-canary)" in told["path"][-1]["because"]


def test_a_server_that_gives_no_token_is_a_finding(
    base: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "tokens", False)
    code, told = judged(capsys, base)
    assert (code, told["findings"][0]["code"]) == (Exit.FINDINGS, "VD901")


def test_a_server_without_health_is_said_to_be_another_program_or_behind_a_proxy(
    base: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "hidden", "/health")
    code, told = judged(capsys, base)
    assert (code, told["verdict"]) == (Exit.INCOMPLETE, "unknown")
    assert told["path"][-1]["because"] == (
        "the server does not answer: /health answers 404, and vLLM's server always has that path: another program or a "
        "proxy answers there"
    )


def test_a_url_that_nobody_answers_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    code, told = judged(capsys, "http://127.0.0.1:1")
    assert (code, told["verdict"]) == (Exit.INCOMPLETE, "unknown")
    assert "the server does not answer: no connection" in told["path"][-1]["because"]

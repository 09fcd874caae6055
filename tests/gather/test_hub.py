"""A model by its name: from a hub that is asked once, then from the cache; without one, a sentence."""

import http.server
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import ClassVar

import pytest

from tests.doctor import command
from tests.plan.models import LLAMA_8B

pytest.importorskip("huggingface_hub")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = LLAMA_8B | {"max_position_embeddings": 8192, "rope_scaling": None}


class Hub(http.server.BaseHTTPRequestHandler):
    """The two routes that a file of a model has on a hub; acme/secret is gated."""

    files: ClassVar = {"/acme/chat/resolve/main/config.json": json.dumps(CONFIG).encode()}
    asked: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        type(self).asked.append(f"{self.command} {self.path}")
        body = self.files.get(self.path)
        if body is None:
            self.send_response(403 if "secret" in self.path else 404)
            self.send_header("X-Error-Code", "GatedRepo" if "secret" in self.path else "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("ETag", '"one"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET" and "slow" in self.path:
            for at in range(len(body)):  # a byte now and then keeps every time limit of a single read
                self.wfile.write(body[at : at + 1])
                self.wfile.flush()
                time.sleep(0.5)
        elif self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Iterator[type[Hub]]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("VLLM_DOCTOR_STATE", str(tmp_path / "state"))
    Hub.asked.clear()
    yield Hub
    server.shutdown()
    server.server_close()


def plan(*words):
    said = command("/nowhere", "plan", "--gpu", "L4", *words)
    return subprocess.run(said, capture_output=True, text=True, check=False, timeout=60)


def test_a_model_and_a_card_are_a_whole_question(hub):
    told = plan("acme/chat")
    assert told.returncode == 0, told.stderr
    first, run = told.stdout.splitlines()[:2]
    assert first.endswith("on NVIDIA L4: starts")
    assert run.startswith("  run      vllm serve acme/chat --")
    assert "the newest that is known" in told.stdout
    assert any(line.startswith("GET /acme/chat/resolve/") for line in hub.asked)


def test_what_was_fetched_is_there_without_the_hub(hub, monkeypatch):
    plan("acme/chat")
    hub.asked.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert plan("acme/chat").returncode == 0
    assert not hub.asked


@pytest.mark.parametrize(("model", "offline"), [("acme/secret", ""), ("acme/gone", ""), ("acme/chat", "1")])
def test_what_the_hub_does_not_give_is_said_with_the_way_round(hub, monkeypatch, model, offline):
    if offline:
        monkeypatch.setenv("HF_HUB_OFFLINE", offline)
    told = plan(model)
    assert told.returncode == 2
    assert model in told.stderr
    assert "--model-config config.json" in told.stderr
    assert "Traceback" not in told.stderr


def test_a_hub_that_drips_is_left_after_some_seconds(hub, monkeypatch):
    monkeypatch.setitem(hub.files, "/acme/slow/resolve/main/config.json", b" " * 1000)
    told = plan("acme/slow")
    assert told.returncode == 2, told.stdout
    assert "did not send config.json of acme/slow within 12 s" in told.stderr


def test_a_description_larger_than_any_does_not_fill_the_disk(hub, monkeypatch, tmp_path):
    body = b'{"a": "' + b"x" * (33 << 20) + b'"}'
    monkeypatch.setitem(hub.files, "/acme/large/resolve/main/config.json", body)
    told = plan("acme/large")
    assert told.returncode == 2, told.stdout
    assert "VD0001" not in told.stderr
    assert max(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()) <= 32 << 20

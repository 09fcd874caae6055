"""A model by its name: from a hub that is asked once, then from the cache; without one, a sentence."""

import http.server
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import ClassVar

import pytest

from tests.doctor import command
from tests.plan.models import LLAMA_8B
from tests.plan.test_activation import QWEN2_VL

pytest.importorskip("huggingface_hub")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = LLAMA_8B | {"max_position_embeddings": 8192, "rope_scaling": None}


class Hub(http.server.BaseHTTPRequestHandler):
    """The two routes that a file of a model has on a hub; acme/secret is gated."""

    files: ClassVar = {"/acme/chat/resolve/main/config.json": json.dumps(CONFIG).encode()}
    why: ClassVar = {"secret": "GatedRepo", "gone": "RepoNotFound", "norevision": "RevisionNotFound"}
    asked: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        type(self).asked.append(f"{self.command} {self.path}")
        body = self.files.get(self.path)
        if body is None:
            why = next((why for mark, why in self.why.items() if mark in self.path), "EntryNotFound")
            self.send_response(403 if why == "GatedRepo" else 404)
            self.send_header("X-Error-Code", why)
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


def test_of_a_model_that_takes_images_the_preprocessor_is_asked_for_too(hub, monkeypatch):
    routes = {name: f"/acme/{name}/resolve/main/preprocessor_config.json" for name in ("chat", "seer")}
    monkeypatch.setitem(hub.files, "/acme/seer/resolve/main/config.json", json.dumps(QWEN2_VL).encode())
    monkeypatch.setitem(hub.files, routes["seer"], b'{"max_pixels": 784}')
    seen = "activation" in plan("acme/seer", "--explain").stdout
    plan("acme/chat")
    asked = {line.partition(" ")[2] for line in hub.asked}
    assert seen
    assert routes["seer"] in asked
    assert routes["chat"] not in asked


@pytest.mark.parametrize(
    ("model", "offline", "found", "needed"),
    [
        ("acme/secret", "", "acme/secret is gated on http://127.0.0.1", "/acme/secret, then `hf auth login`"),
        ("acme/gone", "", "has no model acme/gone", "where it is private, `hf auth login` or HF_TOKEN"),
        ("acme/empty", "", "has acme/empty, but no config.json in it", "--model-config config.json"),
        ("acme/adapter", "", "acme/adapter is an adapter", "plan the model that it adapts, with --enable-lora"),
        ("acme/small-GGUF", "", "holds GGUF files and no config.json", "config.json of the model that it was made of"),
        ("acme/chat", "1", "HF_HUB_OFFLINE is set", "unset it once, or copy the cache"),
    ],
)
def test_what_the_hub_does_not_give_is_said_with_the_way_round(hub, monkeypatch, model, offline, found, needed):  # noqa: PLR0917
    for name, file in (("adapter", "adapter_config.json"), ("small-GGUF", "small-Q4_K_M.gguf")):
        tree = [{"type": "file", "path": file, "size": 1, "oid": COMMIT}]
        route = f"/api/models/acme/{name}/tree/main?recursive=true&expand=false"
        monkeypatch.setitem(hub.files, route, json.dumps(tree).encode())
    if offline:
        monkeypatch.setenv("HF_HUB_OFFLINE", offline)
    told = plan(model)
    assert told.returncode == 2
    what, _, way = told.stderr.partition("; needed: ")
    assert found in what
    assert needed in way
    assert "Traceback" not in told.stderr


def test_a_revision_that_is_not_there_is_named(hub):
    told = plan("--", "vllm", "serve", "acme/norevision", "--revision", "v9")
    assert "has acme/norevision, but no revision v9" in told.stderr


def test_the_hub_s_address_is_said_without_a_password(hub, monkeypatch):
    address = os.environ["HF_ENDPOINT"].replace("http://", "http://me:hunter2@")
    monkeypatch.setenv("HF_ENDPOINT", address)
    told = plan("acme/gone")
    assert "has no model acme/gone" in told.stderr
    assert "hunter2" not in told.stderr


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("https://huggingface.co/acme/chat/tree/main", "needed: the model's name alone, acme/chat"),
        ("acme/chat@v2", "needed: acme/chat --revision v2"),
        ("acme/chat/tree/v2", "needed: acme/chat --revision v2"),
        ("s3://bucket/chat", "plan does not fetch; needed: --model-config config.json"),
        ("/nowhere/chat", "no folder here and no name of a hub (owner/model)"),
        ("/", "a folder without a config.json"),
        ("acme/chat:Q4_K_M", "is GGUF, which plan does not read; needed: --model-config FILE: the config.json of the"),
        ("/nowhere/chat-Q4_K_M.gguf", "is GGUF, which plan does not read"),
    ],
)
def test_one_word_that_names_no_model_is_said_with_what_is_needed(word, said):
    told = plan(word)
    assert told.returncode == 2
    assert said in told.stderr


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


def test_a_hub_that_cannot_be_reached_is_not_asked_again_and_again(hub, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{taken.getsockname()[1]}")
        told = plan("acme/chat")
    assert told.returncode == 2
    assert "could not be reached, and no cache here has config.json of acme/chat" in told.stderr
    assert "HF_ENDPOINT names another hub" in told.stderr


def test_what_was_fetched_is_planned_while_the_hub_cannot_be_reached(hub, monkeypatch):
    plan("acme/chat")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{taken.getsockname()[1]}")
        assert plan("acme/chat").returncode == 0


@pytest.mark.parametrize(
    "address", ["notaurl", "ftp://hub.example", "http://", "http://[::1", "http://me:hunter2@hub:99999"]
)
def test_an_address_of_the_hub_that_is_none_is_said(hub, monkeypatch, address):
    monkeypatch.setenv("HF_ENDPOINT", address)
    told = plan("acme/chat")
    assert told.returncode == 2
    assert (
        f"HF_ENDPOINT is '{address.rpartition('@')[2]}', no address of a hub; needed: http:// or https://"
        in told.stderr
    )
    assert "hunter2" not in told.stderr


@pytest.mark.parametrize("proxy", ["http://[::1", "http://proxy.example:99999"])
def test_a_proxy_that_is_no_address_is_a_hub_that_is_not_reached(hub, monkeypatch, proxy):
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example")
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, proxy)
    told = plan("acme/chat")
    assert told.returncode == 2
    assert "https://hub.example could not be reached" in told.stderr
    assert "HTTPS_PROXY the way to it" in told.stderr

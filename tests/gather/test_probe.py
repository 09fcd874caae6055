"""A completion asked for as a client would: it comes back, it does not, or nobody can tell."""

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.gather.conftest import Server
from vllm_doctor.gather.environment_file import environment_files
from vllm_doctor.gather.http import Pass
from vllm_doctor.gather.probe import _models, canary, one_token
from vllm_doctor.records.host import Launch, Probe

LAUNCH = Launch(argv=(), model=None, flags={})
HEALTHY = Probe(health_status=200, models=("tiny",))
Serve = Callable[[Callable[[socket.socket, threading.Event], None]], Server]


# The token was one that ends the text: none is shown, and one was made.
ANSWERED = '{"choices": [{"text": "", "finish_reason": "stop"}], "usage": {"completion_tokens": 1}}'


def answering(status: int, body: str) -> Callable[[socket.socket, threading.Event], None]:
    def answer(client: socket.socket, _: threading.Event) -> None:
        client.sendall(f"HTTP/1.1 {status} Said\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    return answer


def asked(serve: Serve, status: int, key: str | None = None, body: str = ANSWERED) -> Probe:
    return canary(serve(answering(status, body)).base, LAUNCH, HEALTHY, deadline_s=60, given=Pass(key))


def test_a_completion_that_comes_back_and_one_that_does_not(serve: Serve) -> None:
    assert asked(serve, 200).completion is True
    assert asked(serve, 500).completion is False


@pytest.mark.parametrize(
    "body",
    [
        "<html><title>Log in</title></html>",
        '{"object": "error", "message": "the engine died", "code": 500}',
        '{"choices": []}',
        '{"choices": [{"text": "", "finish_reason": "length"}], "usage": {"completion_tokens": 0}}',
        '{"choices": [{"text": "1", "finish_reason": "error"}], "usage": {"completion_tokens": 1}}',
        '{"choices": [{"text": "1", "finish_reason": "abort"}], "usage": {"completion_tokens": 1}}',
        '{"choices": 7}',
        "[" * 5000,
    ],
)
def test_an_answer_with_200_and_no_token_in_it_is_no_completion(body: str, serve: Serve) -> None:
    assert asked(serve, 200, body=body).completion is False


@pytest.mark.parametrize("status", [400, 429, 503])
def test_a_server_that_refuses_this_completion_or_is_full_did_answer(serve: Serve, status: int) -> None:
    found = asked(serve, status)
    assert (found.completion, f"with {status}" in found.completion_unknown) == (None, True)


@pytest.mark.parametrize(
    ("status", "turned_away"), [(503, True), (307, True), (400, False), (404, False), (429, False)]
)
def test_a_server_that_turns_everybody_away_was_tried_though_nobody_asked_for_it(
    serve: Serve, status: int, turned_away: bool
) -> None:
    found = one_token(serve(answering(status, "")).base, LAUNCH, HEALTHY, asked=False, deadline_s=60)
    assert (found.turned_away, bool(found.completion_unknown), bool(found.untried)) == (
        turned_away,
        turned_away,
        not turned_away,
    )


@pytest.mark.parametrize(("key", "words"), [(None, "run this as root"), ("k", "another key than the unit's")])
def test_a_server_that_wants_a_key_is_unknown_and_says_what_is_needed(
    serve: Serve, key: str | None, words: str
) -> None:
    found = asked(serve, 401, key)
    assert found.completion is None
    assert words in found.completion_unknown


class Closed(BaseHTTPRequestHandler):
    """A server that tells nobody without its key what it serves, and completes for that name alone."""

    def do_GET(self) -> None:
        self._say(200, b'{"data": [{"id": "short-name"}]}')

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._say(200 if asked["model"] == "short-name" else 404, ANSWERED.encode())

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status if self.headers["Authorization"] == "Bearer k" else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on the test's screen."""


def test_a_server_that_lists_its_models_to_a_key_alone_is_asked_by_the_name_that_it_serves() -> None:
    launch = Launch(argv=(), model="/srv/models/long-path", flags={})
    with ThreadingHTTPServer(("127.0.0.1", 0), Closed) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        found = canary(base, launch, Probe(health_status=200, keyless=401), deadline_s=60, given=Pass("k"))
        server.shutdown()
    assert found.completion is True


class Busy(BaseHTTPRequestHandler):
    """A server whose queue is longer than anybody's patience: it counts up by `step` a look, and answers nobody."""

    step = 0
    made = 0

    def do_GET(self) -> None:
        type(self).made += self.step
        told = (
            f'# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total{{engine="0"}} {self.made}\n'.encode()
        )
        self.send_response(200)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def do_POST(self) -> None:
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Nothing on the test's screen."""


@pytest.mark.parametrize(("step", "advanced"), [(7, True), (0, False)])
def test_while_a_completion_is_awaited_the_engine_is_seen_to_work_for_others_or_not(
    step: int, *, advanced: bool
) -> None:
    """A scrape before the question and one after it: a step of a busy engine takes longer than two scrapes in a row."""
    handler = type("Handler", (Busy,), {"step": step})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = canary(f"http://127.0.0.1:{server.server_port}", LAUNCH, HEALTHY, deadline_s=5)
        server.shutdown()
    assert (found.completion, found.advanced) == (False, advanced)


def test_an_answer_that_is_nested_without_end_names_no_model() -> None:
    assert _models(b"[" * 100_000) == ()


def test_without_a_model_nothing_is_asked() -> None:
    found = canary("http://127.0.0.1:1", LAUNCH, Probe(health_status=200), deadline_s=5)
    assert (found.completion, found.completion_unknown) == (None, "no model is known to ask for a completion")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("VLLM_API_KEY=plain", "plain"),
        ("  VLLM_API_KEY =  two words  ", "two words"),
        ('VLLM_API_KEY="a # b"', "a # b"),
        ("VLLM_API_KEY='x=y\\n'", "x=y\\n"),
        ('VLLM_API_KEY="a\\"b\\$c\\n"', 'a"b$c\\n'),
        ("VLLM_API_KEY=a\\$b\\ c", "a$b c"),
        ("VLLM_API_KEY=it's", "it's"),
        ("VLLM_API_KEY=\"one\" 'two' three", "onetwothree"),
        ("VLLM_API_KEY=one\\\n  two", "one  two"),
        ('VLLM_API_KEY="one\ntwo"', "one\ntwo"),
        ("VLLM_API_KEY=", ""),
        ("# VLLM_API_KEY=old \\\nVLLM_API_KEY=still a comment\nVLLM_API_KEY=new", "new"),
        ("; note\nbroken 'line\n0BAD=1\nVLLM_API_KEY=after", "after"),
    ],
)
def test_a_unit_s_environment_file_is_read_as_systemd_reads_it(tmp_path: Path, line: str, value: str) -> None:
    file = tmp_path / "main.secrets"
    file.write_text(f"# the key\n{line}\nHF_TOKEN=t\n")
    assert environment_files(f"{file} (ignore_errors=no)") == {"VLLM_API_KEY": value, "HF_TOKEN": "t"}


def test_files_that_cannot_be_read_assign_nothing_and_the_last_one_wins(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("VLLM_API_KEY=a\nHF_TOKEN=t\n")
    second.write_text("VLLM_API_KEY=b\n")
    shown = f"{first} (ignore_errors=no)\n{second} (ignore_errors=yes)\n{tmp_path}/none (ignore_errors=yes)"
    assert environment_files(shown) == {"VLLM_API_KEY": "b", "HF_TOKEN": "t"}
    assert environment_files("") == {}

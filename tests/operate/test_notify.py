"""Somebody is told of a finding: a webhook or a program, with no secret in a command line, once and within a time."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.render.sample import diagnosis, finding
from vllm_doctor.operate.notify import BadTargetError, NotifyTarget, notify, notify_target


class Hook(http.server.BaseHTTPRequestHandler):
    status, got = 200, list[tuple[str, dict[str, object], str | None]]()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).got.append((self.path, body, self.headers.get("Authorization")))
        self.send_response(type(self).status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[str]:
    Hook.status = 200
    Hook.got.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/hook/secret"
        server.shutdown()


def test_a_webhook_gets_a_line_for_people_and_the_whole_answer(hook: str) -> None:
    assert notify(NotifyTarget(url=hook, headers={"Authorization": "Bearer x"}), [diagnosis(finding())]) == ""
    ((path, body, authorization),) = Hook.got
    assert (path, authorization) == ("/hook/secret", "Bearer x")
    assert "VD131 the KV cache cannot hold one request of 4096 tokens" in str(body["text"])
    assert body["diagnoses"][0]["findings"][0]["code"] == "VD131"  # type: ignore[index]


@pytest.mark.parametrize("status", [302, 307, 404, 500])
def test_no_redirect_is_followed_and_a_refusal_is_told_without_the_address(hook: str, status: int) -> None:
    Hook.status = status
    told = notify(NotifyTarget(url=hook), [diagnosis(finding())])
    assert told == f"the webhook answers {status}"
    assert len(Hook.got) == 1


def test_a_program_gets_it_on_its_standard_input(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert notify(NotifyTarget(exec=("/bin/sh", "-c", f"cat > {out}")), [diagnosis(finding())]) == ""
    assert json.loads(out.read_text())["diagnoses"][0]["findings"][0]["code"] == "VD131"
    assert notify(NotifyTarget(exec=("/bin/false",)), [diagnosis(finding())]) == "/bin/false ended with 1"
    slow = notify(NotifyTarget(exec=("/bin/sleep", "60")), [diagnosis(finding())], deadline_s=0.2)
    assert "did not answer within 0.2 s" in slow


def held(folder: Path, text: str, mode: int = 0o600) -> str:
    file = folder / "notify.json"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


def test_the_file_says_whom(tmp_path: Path) -> None:
    assert (
        notify_target(held(tmp_path, '{"url": "https://hooks.example.net/T0/B0"}')).url
        == "https://hooks.example.net/T0/B0"
    )
    assert notify_target(held(tmp_path, '{"exec": ["/usr/bin/logger", "-t", "vllm"]}')).exec[0] == "/usr/bin/logger"


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        ('{"url": "https://x.example/secret"}', 0o640, "nobody else reads"),
        ('{"url": "http://x.example/secret"}', 0o600, "url is https"),
        ('{"url": "https://u:secret@x.example/"}', 0o600, "url is https"),
        ('{"exec": ["logger"]}', 0o600, "absolute path"),
        ('{"url": "https://x.example/secret", "exec": ["/bin/true"]}', 0o600, "one of url and exec"),
        ('{"hook": "secret"}', 0o600, "needed: "),
        ("secret", 0o600, "needed: "),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_and_its_content_is_in_no_message(
    tmp_path: Path, text: str, mode: int, why: str
) -> None:
    with pytest.raises(BadTargetError, match=why) as refused:
        notify_target(held(tmp_path, text, mode))
    assert "secret" not in str(refused.value).replace("hold a secret", "")

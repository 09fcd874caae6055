"""A hook that is a URL, played: what is sent, and what is said where it is refused."""

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.playbook import play

REPOSITORY = Path(__file__).resolve().parents[3]
PLAY = """
- hosts: all
  gather_facts: false
  vars:
    ansible_connection: local
    site_reports: ""
    vllm_root: "{{ playbook_dir }}"
    __vllm_units: [{name: vllm@main}]
    vllm_hook_headers: {X-Key: s3cr3t-key}
  tasks:
    - ansible.builtin.include_role: {name: vllm_doctor.hosts.vllm, tasks_from: hook}
      vars: {__vllm_hook: "{{ event }}"}
"""


class Balancer(BaseHTTPRequestHandler):
    got: list[tuple[str, str | None, object]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.got.append((self.path, self.headers.get("X-Key"), body))
        self.send_response(503 if "busy" in self.path else 204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def balancer() -> Iterator[str]:
    Balancer.got = []
    server = HTTPServer(("127.0.0.1", 0), Balancer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def played(folder: Path, url: str, event: str = "before") -> tuple[int, str]:
    """The exit code of a run that tells this URL, and what a person sees, on one line."""
    (folder / "play.yml").write_text(PLAY)
    done = play(
        ["-i", "gpu01,", folder / "play.yml", "-e", json.dumps({f"vllm_hook_{event}": url, "event": event})],
        env={**os.environ, "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_a_url_is_sent_what_happens_on_which_host_with_the_site_s_headers(tmp_path: Path, balancer: str) -> None:
    rc, said = played(tmp_path, f"{balancer}/pool")
    assert rc == 0, said
    assert Balancer.got == [("/pool", "s3cr3t-key", {"event": "before", "host": "gpu01", "services": ["vllm@main"]})]
    assert "s3cr3t-key" not in said
    # The host remembers that it is out, until it was put back: a later run does it where this one breaks off.
    assert (tmp_path / "out-of-balancer").exists()
    rc, said = played(tmp_path, f"{balancer}/busy", "after")
    assert rc == 2
    assert "Mend the hook and run again, which calls it once more" in said
    assert (tmp_path / "out-of-balancer").exists()
    assert played(tmp_path, f"{balancer}/pool", "after")[0] == 0
    assert not (tmp_path / "out-of-balancer").exists()


def test_a_url_that_refuses_stops_nothing_and_says_why(tmp_path: Path, balancer: str) -> None:
    rc, said = played(tmp_path, f"{balancer}/busy")
    assert rc == 2
    assert f"vllm_hook_before failed for gpu01: {balancer}/busy: HTTP Error 503: Service Unavailable." in said
    assert "Nothing was stopped; what serves goes on." in said
    assert "s3cr3t-key" not in said

"""`vllm-doctor report` at a Prometheus behind TLS and a password, told by a file in Prometheus' own form."""

import json
import ssl
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.certificates import certificate

RIGHT = "Basic " + b64encode(b"ops:right").decode()


class Prometheus(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        allowed = self.headers.get("Authorization") == RIGHT
        row = {"metric": {"host": "a"}, "values": [[time.time(), "1"]]}
        body = json.dumps({"status": "success", "data": {"result": [row]}}).encode() if allowed else b"Unauthorized"
        self.send_response(200 if allowed else 401)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address, and a folder with ca.pem, a password and the file that names both."""
    folder = tmp_path_factory.mktemp("site")
    shown, key = certificate(folder, "watch")
    (folder / "ca.pem").write_bytes(shown.read_bytes())
    (folder / "password").write_text("right\n")
    (folder / "client.yml").write_text(
        "basic_auth: {username: ops, password_file: password}\n"
        "tls_config: {ca_file: ca.pem, server_name: watch.example}\n"
    )
    certificate(folder, "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Prometheus) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"https://127.0.0.1:{server.server_address[1]}", folder
        server.shutdown()


def report(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    doctor = str(Path(sys.executable).with_name("vllm-doctor"))
    return subprocess.run([doctor, "report", *words], cwd=folder, capture_output=True, text=True, check=False)


def test_the_page_is_drawn_with_the_file(site: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = site
    done = report(tmp_path, "--prometheus", url, "--http-config", str(folder / "client.yml"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "<polyline" in done.stdout
    assert RIGHT.split()[1] not in done.stdout


def test_without_the_file_the_password_is_asked_for(site: tuple[str, Path], tmp_path: Path) -> None:
    done = report(tmp_path, "--prometheus", site[0])
    assert done.returncode == 2
    assert "it needs a password (HTTP 401): --http-config FILE has it" in done.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "basic_auth: {username: ops, password: wrong}\ntls_config: {insecure_skip_verify: true}",
            "refuses the user or",
        ),
        ("basic_auth: {username: ops, password_file: password}", "its certificate is refused: self-signed certificate"),
        (
            "{basic_auth: {username: ops, password_file: password}, tls_config: {ca_file: other.pem, server_name: a}}",
            "its certificate is refused",
        ),
        (
            "basic_auth: {username: ops, password_file: password}\ntls_config: {ca_file: ca.pem}",
            "its certificate is refused: IP address mismatch",
        ),
        ("basic_auth: {username: ops, password_file: nowhere}", "basic_auth names a file that cannot be read"),
        ("basic_auth: {username: ops}", "basic_auth needs either password or password_file"),
        ("basic_auth: {username: ops, pasword: x}", "unknown field `pasword`"),
        ("tls_config: {ca_file: password}", "password has no certificate of an authority"),
        ("tls_config: {ca_file: nowhere}", "ca_file"),
        ("a: [", "it is not YAML"),
        ("- 1", "needed: Prometheus' http_config"),
    ],
)
def test_what_is_wrong_with_the_file_or_the_server_is_said(site: tuple[str, Path], text: str, told: str) -> None:
    url, folder = site
    file = folder / "tried.yml"
    file.write_text(text)
    done = report(folder, "--prometheus", url, "--http-config", str(file))
    assert done.returncode == 2
    assert told in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert "right" not in done.stderr


def test_a_password_does_not_cross_the_network_in_plain_text(site: tuple[str, Path], tmp_path: Path) -> None:
    config = str(site[1] / "client.yml")
    done = report(tmp_path, "--prometheus", "http://watch.example:9090", "--http-config", config)
    assert done.returncode == 2
    assert "in plain text: write https://" in " ".join(done.stderr.split())


def test_the_wrong_word_before_the_address_is_said(site: tuple[str, Path], tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Prometheus) as plain:
        threading.Thread(target=plain.serve_forever, args=(0.05,), daemon=True).start()
        url = f"https://127.0.0.1:{plain.server_address[1]}"
        done = report(tmp_path, "--prometheus", url, "--http-config", str(site[1] / "client.yml"))
        plain.shutdown()
    assert done.returncode == 2
    assert "it does not speak TLS: write http://" in done.stderr

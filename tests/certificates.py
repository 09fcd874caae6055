"""Certificates for tests, made on the spot: each its own authority, so that no other is taken for it."""

import datetime
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(
    folder: Path, name: str, *, begins: int = -1, ends: int = 30, passphrase: bytes = b""
) -> tuple[Path, Path]:
    """Write NAME.pem and NAME.key, valid between these days from now; the two files."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name}.example")])
    now = datetime.datetime.now(tz=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=begins))
        .not_valid_after(now + datetime.timedelta(days=ends))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(f"{name}.example")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    closed = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    files = folder / f"{name}.pem", folder / f"{name}.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, closed))
    files[1].chmod(0o600)
    return files


class Keyed(BaseHTTPRequestHandler):
    """Answers who has the key, and keeps what it was given."""

    keys: list[str | None]

    def do_GET(self) -> None:
        key = self.headers.get("Authorization")
        self.keys.append(key)
        body = b'{"data": [{"id": "tiny"}]}'
        self.send_response(200 if key == "Bearer right" else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def served(pem: Path, key: Path) -> Iterator[tuple[str, list[str | None]]]:
    """A server of TLS with these files: its address, and the keys that it was given."""
    Keyed.keys = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Keyed)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}", Keyed.keys
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

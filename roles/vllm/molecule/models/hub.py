#!/usr/bin/env python3
"""A small model hub for the test: hub.py FOLDER PORT, one commit of each model FOLDER/<owner>/<name>.

It speaks as much of the Hugging Face Hub as its client asks for: a commit's files with sizes and hashes, and the files
themselves, large ones by way of a redirect to a content-addressed store that knows Range. A model with a file named
.gated wants the token in it, a file named .commit names the commit. Every answer is a line of FOLDER/requests.jsonl,
with the bytes that were sent. FOLDER/faults.json says what goes wrong:

    {"kill_after": {NAME: BYTES}}   after so many bytes of that file are written the process that fetches is killed
    {"corrupt": {NAME: TIMES}}      so many times that file comes with another content
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
import time
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlparse

ROOT = Path(sys.argv[1])
LARGE = {".safetensors", ".bin", ".dat"}
BLOCK = 1 << 18
CLIENT_BLOCK = 10 << 20  # of huggingface_hub
SERIAL = threading.Lock()


@cache
def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def blob(path: Path) -> str:
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def files(model: Path) -> list[Path]:
    return sorted(path for path in model.rglob("*") if path.is_file() and not path.name.startswith("."))


def entry(model: Path, path: Path) -> dict[str, object]:
    size = path.stat().st_size
    told: dict[str, object] = {"rfilename": str(path.relative_to(model)), "size": size, "blobId": blob(path)}
    return told | ({"lfs": {"sha256": sha256(path), "size": size, "pointerSize": 134}} if path.suffix in LARGE else {})


def fault(kind: str, name: str) -> int:
    """How many times, or after how many bytes; a fault that happened is taken off the list."""
    with SERIAL:
        path = ROOT / "faults.json"
        faults = json.loads(path.read_text()) if path.exists() else {}
        left = int(faults.get(kind, {}).get(name, 0))
        if left:
            faults[kind][name] = left - 1 if kind == "corrupt" else 0
            path.write_text(json.dumps(faults))
        return left


def wait_until_written(path: Path, sent: int) -> None:
    """Until a client on this host has on its disk what was sent: what it reads in one go is not in the file yet."""
    end = time.monotonic() + 300
    while not any(
        one.stat().st_size > sent - CLIENT_BLOCK for one in Path("/srv").glob(f"*/*/*/.partial/*{sha256(path)}")
    ):
        if time.monotonic() > end:
            raise TimeoutError(f"the client did not write {path.name}")
        time.sleep(0.01)


class Hub(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        words = [unquote(word) for word in urlparse(self.path).path.strip("/").split("/")]
        if words[0] == "store":
            path = next(p for p in files(ROOT) if p.suffix in LARGE and sha256(p) == words[1])
            return self.send_file(path)
        api = words[:2] == ["api", "models"]
        if len(words) < 4:
            return self.refuse(404, "EntryNotFound")
        owner, name, _, commit, *rest = words[2:] if api else words
        model = ROOT / owner / name
        if not model.is_dir():
            return self.refuse(401, "RepoNotFound")
        if commit != (model / ".commit").read_text():
            return self.refuse(404, "RevisionNotFound")
        if api:
            body = {"id": f"{owner}/{name}", "sha": commit, "siblings": [entry(model, path) for path in files(model)]}
            return self.send(200, json.dumps(body).encode(), {"Content-Type": "application/json"})
        gate = model / ".gated"
        if gate.exists() and self.headers.get("Authorization") != f"Bearer {gate.read_text()}":
            return self.refuse(403 if self.headers.get("Authorization") else 401, "GatedRepo")
        path = model.joinpath(*rest)
        if path.suffix in LARGE:
            return self.send(302, b"", {"Location": f"/store/{sha256(path)}", "X-Repo-Commit": commit})
        return self.send_file(path)

    def refuse(self, status: int, code: str) -> None:
        self.send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": code})

    def send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.start(status, len(body), headers)
        self.wfile.write(body)
        self.log(status, len(body))

    def start(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()

    def send_file(self, path: Path) -> None:
        content = path.read_bytes()
        begin = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        if fault("corrupt", path.name):
            content = bytes(byte ^ 1 for byte in content)
        kill = fault("kill_after", path.name)
        body = content[begin:]
        status = 206 if begin else 200
        self.start(status, len(body), {"Content-Range": f"bytes {begin}-{len(content) - 1}/{len(content)}"})
        sent = 0
        try:
            while block := body[sent : sent + BLOCK]:
                self.wfile.write(block)
                sent += len(block)
                if kill and sent >= kill:
                    wait_until_written(path, sent)
                    subprocess.run(["systemctl", "kill", "--signal=KILL", "vllm-fetch-*"], check=True)
                    break
        except ConnectionError:
            pass
        self.close_connection = sent < len(body)
        self.log(status, sent, path.name)

    def log(self, status: int, sent: int, name: str = "") -> None:
        line = {"path": self.path, "name": name, "status": status, "bytes": sent, "range": self.headers.get("Range")}
        with SERIAL, (ROOT / "requests.jsonl").open("a") as stream:
            stream.write(json.dumps(line) + "\n")

    def log_message(self, *_: object) -> None:
        """requests.jsonl has it."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Hub).serve_forever()

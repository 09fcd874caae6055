#!/usr/bin/python3
"""What of Grafana the role relies on: settings provisioned files, the administrator's password."""

import base64
import json
import os
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def setting(name, default):
    """As Grafana reads it: GF_SECTION_KEY, in which $__file{PATH} is the content of a file."""
    return re.sub(
        r"\$__file\{([^}]*)\}",
        lambda found: Path(found[1]).read_text(encoding="utf-8").strip(),
        os.environ.get(f"GF_{name}", default),
    )


def provisioned(kind):
    """The YAML of a kind that the user grafana may read. A file that it may not read ends the start."""
    (folder,) = (word.partition("=")[2] for word in sys.argv if word.startswith("cfg:default.paths.provisioning="))
    return [file.read_text(encoding="utf-8") for file in sorted(Path(folder, kind).glob("*.y*ml"))]


def dashboards():
    """The titles in the folders that the providers name."""
    paths = [
        found for text in provisioned("dashboards") for found in re.findall(r"^\s+path: (\S+)$", text, re.MULTILINE)
    ]
    return [
        json.loads(file.read_text(encoding="utf-8"))["title"] for path in paths for file in sorted(Path(path).iterdir())
    ]


class Api(BaseHTTPRequestHandler):
    """Health for all, the rest for the administrator."""

    def do_GET(self):
        login = base64.b64encode(f"admin:{setting('SECURITY_ADMIN_PASSWORD', 'admin')}".encode()).decode()
        told = {"/api/datasources": lambda: provisioned("datasources"), "/api/search": dashboards}
        if self.path == "/api/health":
            self.answer(200, {"database": "ok"})
        elif self.headers.get("Authorization") != f"Basic {login}":
            self.answer(401, {"message": "Invalid username or password"})
        else:
            self.answer(200, told[self.path]())

    def answer(self, status, body):
        """JSON."""
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())


if __name__ == "__main__":
    setting("SECURITY_ADMIN_PASSWORD", "admin")
    provisioned("datasources")
    dashboards()  # what cannot be read ends the start
    ThreadingHTTPServer((setting("SERVER_HTTP_ADDR", ""), 3000), Api).serve_forever()

"""A small Kubernetes API server on loopback; the real kubectl asks it."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

KINDS = (("pods", "Pod"), ("events", "Event"), ("nodes", "Node"))
# What every client asks first.
DISCOVERY: dict[str, object] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {"name": name, "singularName": "", "namespaced": name != "nodes", "kind": kind, "verbs": ["get"]}
            for name, kind in KINDS
        ],
    },
}


def serve(answer: Callable[[str, str], object], kubeconfig: Path) -> ThreadingHTTPServer:
    """Serve what `answer` says of a path and its query: text, JSON, or None for what is not there."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answer(*self.path.partition("?")[::2])
            missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
                       "message": f'pods "{self.path.rsplit("/", 1)[-1]}" not found'}  # fmt: skip
            body = (found if isinstance(found, str) else json.dumps(missing if found is None else found)).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "text/plain" if isinstance(found, str) else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    named = {
        "apiVersion": "v1", "kind": "Config", "current-context": "t", "users": [{"name": "t", "user": {}}],
        "clusters": [{"name": "t", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}],
        "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t", "namespace": "llm"}}],
    }  # fmt: skip
    kubeconfig.write_text(json.dumps(named))
    return server

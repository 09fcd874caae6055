# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""Ask a service of this host: no proxy, and over TLS nobody but who holds the certificate of the service's own file."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

MOST_BYTES = 16 << 20
# OpenSSL's X509_V_FLAG_PARTIAL_CHAIN: the certificate itself is what is trusted. ssl names it from Python 3.10 on.
PARTIAL_CHAIN = 0x80000


def key_in(path: str) -> str:
    """Read the key out of an EnvironmentFile; empty where there is none."""
    text = Path(path).read_text(encoding="utf-8") if path and Path(path).exists() else ""
    found = re.search(r'^VLLM_API_KEY="(.*)"$', text, re.MULTILINE)
    return re.sub(r"\\(.)", r"\1", found[1]) if found else ""


def certificate_of(pid: str) -> str:
    """Name the file of the certificate that a server was started with; empty for one without, or for no process."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    for word, after in zip(words, words[1:]):  # noqa: B905, RUF007 (a host's Python may be 3.8)
        name, given, value = word.partition("=")
        if name.replace("_", "-") == "--ssl-certfile":
            return value if given else after
    return ""


@lru_cache(maxsize=8)
def opener(certificate: str) -> urllib.request.OpenerDirector:
    """Make what asks. It asks 127.0.0.1 while the certificate names the outside: the very certificate has to come."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), Stay()]
    if certificate:
        context = ssl.create_default_context(cafile=certificate)
        context.check_hostname = False
        context.verify_flags |= PARTIAL_CHAIN
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return urllib.request.build_opener(*handlers)


class Stay(urllib.request.HTTPRedirectHandler):
    """Follow no redirect: it is an answer too."""

    def redirect_request(self, *_: object) -> None:
        """Hand the answer on as it is."""


@contextmanager
def answered(request: urllib.request.Request, seconds: float, certificate: str) -> Iterator[http.client.HTTPResponse]:
    """Send it; who answers something else than HTTP, or breaks off, is an OSError as one who does not answer."""
    try:
        with opener(certificate).open(request, timeout=seconds) as answer:
            yield answer
    except http.client.HTTPException as error:
        raise ConnectionError(f"{request.full_url}: the answer is no HTTP: {error!r:.100}") from error


def ask(
    url: str,
    key: str,
    seconds: float,
    body: dict[str, object] | tuple[bytes, str] | None = None,
    certificate: str = "",
) -> dict[str, object]:
    """Send one request; raises OSError or ValueError where no JSON object comes back within that many seconds."""
    # JSON, or something else with its content type
    data, kind = body if isinstance(body, tuple) else (json.dumps(body).encode() if body else None, "application/json")
    headers = {"Content-Type": kind} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url, data, headers)  # noqa: S310 (the scheme is the role's own)
    with answered(request, seconds, certificate) as answer:
        got = json.loads(answer.read(MOST_BYTES))
    if not isinstance(got, dict):
        raise ValueError(f"{url}: the answer is no JSON object")  # noqa: TRY004 (no argument of ours is wrong)
    return got


def status(url: str, method: str, seconds: float, headers: dict[str, str], certificate: str = "") -> int:
    """Ask without a body and give the status alone; raises OSError where nothing comes back."""
    request = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310 (as above)
    try:
        with answered(request, seconds, certificate) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return int(refused.code)

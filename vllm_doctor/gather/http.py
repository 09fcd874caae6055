"""One GET with a limit on time and size that holds even against a server that drips a byte at a time."""

import re
import time
from typing import Any, TypeAlias

import msgspec

from vllm_doctor.gather.bounded import whole_file
from vllm_doctor.gather.concurrently import Task
from vllm_doctor.records import excerpt
from vllm_doctor.records.host import SENT_NOTHING
from vllm_doctor.records.reading import Known

CHUNK = 1 << 16
# A read that began within the deadline says itself that it came to nothing.
GRACE_S = 0.5
MAX_PEM = 1 << 20
# What a header may hold; a line break or a space at an end comes from a file that was read with its last line.
_KEY = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_UNTRUSTED = re.compile(r"certificate verify failed: ([^(]{1,120})")
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")


class Response(msgspec.Struct, frozen=True):
    """A complete answer of at most the size asked for; `server` is what it calls itself."""

    status: int
    body: bytes
    content_type: str
    server: str


class NoResponse(msgspec.Struct, frozen=True):
    """Why there is none. `connected` tells a server that is there but silent from one that is not there."""

    reason: str
    connected: bool


HttpOutcome: TypeAlias = Response | NoResponse


class Pass(msgspec.Struct, frozen=True):
    """What opens a server's doors: its key, and the file of the certificate that it has to show to be given the key."""

    key: str | None = None
    certificate: str | None = None


class Login(msgspec.Struct, frozen=True):
    """How a site's own server is asked: what is sent as Authorization, and who has to prove that it is that server.

    Without `ca_file` the system's authorities count; without `verify` nobody's proof is asked for.
    """

    authorization: str | None = None
    ca_file: str | None = None
    server_name: str | None = None
    verify: bool = True


NO_PASS = Pass()


def get(
    url: str,
    *,
    deadline_s: float,
    max_bytes: int = 16 << 20,
    body: bytes | None = None,
    given: Pass | Login = NO_PASS,
    method: str | None = None,
) -> HttpOutcome:
    """GET `url`, or POST `body` as JSON. No redirect is followed and no proxy used: it is this host's own server.

    A key goes over TLS only to whoever shows the very certificate of the server's file.
    """
    import urllib3  # noqa: F401 - before the clock runs

    begun: list[int] = []
    asked: Task[HttpOutcome | None] = Task(
        lambda: _get(url, deadline_s, max_bytes, method=method, body=body, given=given, begun=begun)
    )
    # A header that drips keeps every single read within its time.
    return asked.within(deadline_s + GRACE_S, None) or (_dripped if begun else _silent)(url, deadline_s)


def get_keyed(url: str, given: Pass, *, deadline_s: float, max_bytes: int) -> HttpOutcome:
    """GET `url` as anybody may, and with the key where that is refused."""
    answer = get(url, deadline_s=deadline_s, max_bytes=max_bytes)
    if given.key and isinstance(answer, Response) and answer.status in {401, 403}:
        return get(url, deadline_s=deadline_s, max_bytes=max_bytes, given=given)
    return answer


def _fingerprint(certificate: str | None) -> str | None:
    """SHA-256 of the first certificate in a PEM file, in hexadecimal; None where it cannot be read."""
    import hashlib
    import ssl

    text = whole_file(certificate, MAX_PEM) if certificate else None
    found = _PEM.search(text.value) if isinstance(text, Known) else None
    try:
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(found[0].decode())).hexdigest() if found else None
    except ValueError:
        return None


def _opens(url: str, given: Pass | Login) -> tuple[dict[str, str], dict[str, Any]] | NoResponse:
    """The headers that open the door, and whom the connection trusts."""
    import ssl

    sent = given.authorization if isinstance(given, Login) else given.key
    if sent and not _KEY.fullmatch(sent):
        return NoResponse(
            f"{url}: the key has a line break or another character that a header must not contain", connected=True
        )
    if isinstance(given, Login):
        headers = {"Authorization": sent} if sent else {}
        if not given.verify:
            return headers, {"cert_reqs": "CERT_NONE", "assert_hostname": False}
        try:
            trusted = ssl.create_default_context(cafile=given.ca_file)
        except (OSError, ssl.SSLError):
            return NoResponse(f"{url}: {given.ca_file} has no certificate of an authority", connected=True)
        return headers, {"ssl_context": trusted, "server_hostname": given.server_name}
    shown = _fingerprint(given.certificate) if sent and url.startswith("https:") else None
    # The server is on this host; its certificate names the outside. Who is to be given the key shows the very one.
    trust = {"cert_reqs": "CERT_NONE", "assert_hostname": False, "assert_fingerprint": shown}
    return ({"Authorization": f"Bearer {sent}"} if sent and (shown or not url.startswith("https:")) else {}), trust


def _silent(url: str, deadline_s: float) -> NoResponse:
    return NoResponse(f"{url} {SENT_NOTHING} within {deadline_s:g} s", connected=True)


def _dripped(url: str, deadline_s: float) -> NoResponse:
    return NoResponse(f"{url} was still sending after {deadline_s:g} s", connected=True)


def _get(
    url: str,
    deadline_s: float,
    max_bytes: int,
    *,
    method: str | None,
    body: bytes | None,
    given: Pass | Login,
    begun: list[int],
) -> HttpOutcome:
    """`begun` gets the status as soon as the headers are whole."""
    import urllib3
    from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

    opens = _opens(url, given)
    if isinstance(opens, NoResponse):
        return opens
    end = time.monotonic() + deadline_s
    headers = {"Accept": "text/plain, application/json", "User-Agent": "vllm-doctor"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    headers |= opens[0]
    pool = urllib3.PoolManager(**opens[1])
    urllib3.disable_warnings()
    try:
        reply = pool.request(
            method or ("POST" if body is not None else "GET"),
            url,
            body=body,
            headers=headers,
            preload_content=False,
            redirect=False,
            retries=False,
            timeout=urllib3.Timeout(connect=deadline_s, read=deadline_s),
        )
    except NewConnectionError as refused:
        return NoResponse(f"no connection to {url}: {_why(refused)}", connected=False)
    except ConnectTimeoutError:
        return NoResponse(f"no connection to {url} within {deadline_s:g} s", connected=False)
    except (HTTPError, OSError) as problem:
        late = "imeout" in type(problem).__name__ or "timed out" in str(problem)
        if late:
            return _silent(url, deadline_s)
        return NoResponse(f"{url}: {_why(problem)}", connected=True)
    begun.append(reply.status)
    try:
        data = bytearray()
        for chunk in iter(lambda: reply.read1(CHUNK), b""):
            data += chunk
            if len(data) > max_bytes:
                return NoResponse(f"{url} sent more than {max_bytes >> 20} MiB", connected=True)
            if time.monotonic() > end:
                return _dripped(url, deadline_s)
    except (HTTPError, OSError) as problem:
        return NoResponse(f"{url} broke off the answer: {_why(problem)}", connected=True)
    finally:
        reply.close()
    return Response(
        reply.status, bytes(data), reply.headers.get("Content-Type", ""), excerpt.word(reply.headers.get("Server", ""))
    )


def _why(problem: BaseException) -> str:
    text = str(problem)
    for known in ("Connection refused", "Name or service not known", "Network is unreachable", "reset by peer"):
        if known in text:
            return known.lower()
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER" in text.upper().replace(" ", "_"):
        return "it does not speak TLS: write http://"
    if found := _UNTRUSTED.search(text):
        return f"its certificate is refused: {found[1]}"
    return f"{type(problem).__name__}: {excerpt.said(text)}"

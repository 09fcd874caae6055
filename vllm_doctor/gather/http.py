"""One GET with a limit on time and size that holds even against a server that drips a byte at a time."""

import time
from typing import TypeAlias

import msgspec

from vllm_doctor.gather.together import Task

CHUNK = 1 << 16
# A read that began within the deadline says itself that it came to nothing.
GRACE_S = 0.5


class Answer(msgspec.Struct, frozen=True):
    """A complete answer of at most the size asked for; `server` is what it calls itself."""

    status: int
    body: bytes
    content_type: str
    server: str


class NoAnswer(msgspec.Struct, frozen=True):
    """Why there is none. `connected` tells a server that is there but silent from one that is not there."""

    reason: str
    connected: bool


Outcome: TypeAlias = Answer | NoAnswer


def get(
    url: str, *, deadline_s: float, max_bytes: int = 16 << 20, body: bytes | None = None, bearer: str | None = None
) -> Outcome:
    """GET `url`, or POST `body` as JSON. No redirect is followed and no proxy used: it is this host's own server."""
    import urllib3  # noqa: F401 - before the clock runs

    begun: list[int] = []
    asked: Task[Outcome | None] = Task(lambda: _get(url, deadline_s, max_bytes, body=body, bearer=bearer, begun=begun))
    # A header that drips keeps every single read within its time.
    return asked.within(deadline_s + GRACE_S, None) or (_dripped if begun else _silent)(url, deadline_s)


def _silent(url: str, deadline_s: float) -> NoAnswer:
    return NoAnswer(f"{url} took the connection and sent nothing within {deadline_s:g} s", connected=True)


def _dripped(url: str, deadline_s: float) -> NoAnswer:
    return NoAnswer(f"{url} was still sending after {deadline_s:g} s", connected=True)


def _get(
    url: str, deadline_s: float, max_bytes: int, *, body: bytes | None, bearer: str | None, begun: list[int]
) -> Outcome:
    """`begun` gets the status as soon as the headers are whole."""
    import urllib3
    from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

    end = time.monotonic() + deadline_s
    headers = {"Accept": "text/plain, application/json", "User-Agent": "vllm-doctor"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    if bearer:
        headers["Authorization"] = f"Bearer {bearer}"
    # The server is on this host; its certificate names the outside.
    pool = urllib3.PoolManager(cert_reqs="CERT_NONE", assert_hostname=False)
    urllib3.disable_warnings()
    try:
        reply = pool.request(
            "POST" if body is not None else "GET",
            url,
            body=body,
            headers=headers,
            preload_content=False,
            redirect=False,
            retries=False,
            timeout=urllib3.Timeout(connect=deadline_s, read=deadline_s),
        )
    except NewConnectionError as refused:
        return NoAnswer(f"no connection to {url}: {_why(refused)}", connected=False)
    except ConnectTimeoutError:
        return NoAnswer(f"no connection to {url} within {deadline_s:g} s", connected=False)
    except (HTTPError, OSError) as problem:
        late = "imeout" in type(problem).__name__ or "timed out" in str(problem)
        if late:
            return _silent(url, deadline_s)
        return NoAnswer(f"{url}: {_why(problem)}", connected=True)
    begun.append(reply.status)
    try:
        data = bytearray()
        for chunk in iter(lambda: reply.read1(CHUNK), b""):
            data += chunk
            if len(data) > max_bytes:
                return NoAnswer(f"{url} sent more than {max_bytes >> 20} MiB", connected=True)
            if time.monotonic() > end:
                return _dripped(url, deadline_s)
    except (HTTPError, OSError) as problem:
        return NoAnswer(f"{url} broke off its answer: {_why(problem)}", connected=True)
    finally:
        reply.close()
    return Answer(
        reply.status, bytes(data), reply.headers.get("Content-Type", ""), reply.headers.get("Server", "")[:100]
    )


def _why(problem: BaseException) -> str:
    text = str(problem)
    for known in ("Connection refused", "Name or service not known", "Network is unreachable", "reset by peer"):
        if known in text:
            return known.lower()
    return f"{type(problem).__name__}: {text[:160]}"

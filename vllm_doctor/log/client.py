"""The words of programs that ask a server: what they write is what they saw, and not why."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from vllm_doctor.knowledge.pattern import Pattern


class Saw(StrEnum):
    """What became of requests that failed, by what the client knows of it."""

    REFUSED_CONNECTION = "nothing listened: the connection was refused or not made"
    CUT = "the server closed the connection before its answer was complete"
    SERVER_ERROR = "the server answered with an error of its own (5xx)"
    LATE = "no answer came within the client's time-out"
    REFUSED_REQUEST = "the server refused the request itself (4xx)"


# Those that say how many requests came through.
MEASURES = frozenset({"vllm bench serve", "evalscope", "wrk"})
# What only a client writes; a name to call it by.
_MARKS: tuple[tuple[str, Pattern], ...] = (
    ("vllm bench serve", Pattern(r"={1,80} Serving Benchmark Result ={1,80}|^Starting initial single prompt test run")),
    ("vllm bench serve", Pattern(r"Initial test run failed - Please make sure|^Traffic request rate: ")),
    ("evalscope", Pattern(r" - evalscope - ")),
    ("wrk", Pattern(r"^Running \S{1,20} test @ https?://")),
    (
        "the openai package",
        Pattern(r"\bopenai\.(?:API|Internal|BadRequest|NotFound|RateLimit|Unprocess)\w{0,40}Error\b"),
    ),
    ("the openai package", Pattern(r"/site-packages/openai/_base_client\.py")),
    ("aiohttp", Pattern(r"\baiohttp\.client_exceptions\.\w{1,60}|/site-packages/aiohttp/client\.py")),
    ("httpx", Pattern(r"HTTP Request: POST https?://\S{1,300}/v1/|\bhttpx\.\w{1,60}(?:Error|Timeout)\b")),
    ("requests", Pattern(r"\brequests\.exceptions\.\w{1,60}.{0,200}/v1/(?:chat|completions|models|embeddings)")),
)
_SAW: tuple[tuple[Saw, Pattern], ...] = (
    (
        Saw.REFUSED_CONNECTION,
        Pattern(
            r"Connection refused|Cannot connect to host|ClientConnectorError|\bAPIConnectionError|\bConnectError"
            r"|All connection attempts failed|Connect call failed|Failed to establish a new connection"
        ),
    ),
    (
        Saw.CUT,
        Pattern(
            r"ServerDisconnected|[Ss]erver disconnected|Connection reset by peer|RemoteProtocolError"
            r"|ClientPayloadError|ClientOSError|incomplete chunked read|Remote end closed connection"
        ),
    ),
    (
        Saw.SERVER_ERROR,
        Pattern(
            r"\bInternalServerError\b|Error code: 5\d\d\b|HTTP/1\.[01] 5\d\d\b|\[5\d\d [A-Z]|\b50[0234] Server Error"
        ),
    ),
    (
        Saw.LATE,
        Pattern(r"APITimeoutError|ReadTimeout|ServerTimeoutError|Request timed out|asyncio\.\S{0,20}TimeoutError"),
    ),
    (
        Saw.REFUSED_REQUEST,
        Pattern(
            r"\b(?:BadRequest|NotFound|Authentication|PermissionDenied|UnprocessableEntity)Error: "
            r"|Error code: 4\d\d\b|HTTP/1\.[01] 4\d\d\b|\[4\d\d [A-Z]|\b4\d\d Client Error"
        ),
    ),
)
_COUNT = Pattern(r"^\W{0,4}(?P<what>Successful|Failed|Succeed) requests\b\W{1,60}(?P<count>\d{1,12})\b")
_ANSWER = Pattern(r'HTTP Request: POST \S{1,300} "HTTP/1\.[01] 2\d\d')
_WRK = Pattern(r"Socket errors: connect (\d{1,9}), read (\d{1,9}), write (\d{1,9}), timeout (\d{1,9})")
_WRK_STATUS = Pattern(r"Non-2xx or 3xx responses: (\d{1,9})")
# A benchmark's notice of its own that no request came through at all.
_NONE = Pattern(r"All requests failed\. This is likely due to|Initial test run failed - Please make sure")


class Client(msgspec.Struct, frozen=True):
    """A client's log: whose it is, where that shows, what failed (kind, first line, times), its own counts."""

    name: str
    mark: int
    saw: tuple[tuple[Saw, int, int], ...] = ()
    succeeded: int | None = None
    failed: int | None = None
    counted: int | None = None

    @property
    def answers(self) -> str:
        """What it says of the answers that it had."""
        came = f"{self.succeeded} requests were answered" if self.succeeded is not None else "it tells no failure"
        return f"{came}, {self.failed} failed" if self.failed is not None else came


class _Line(msgspec.Struct, frozen=True):
    """What one line counts: answers, failures, and failures by their kind."""

    succeeded: int | None = None
    failed: int | None = None
    kinds: tuple[tuple[Saw, int], ...] = ()
    none_at_all: bool = False


def client(texts: Iterable[str]) -> Client | None:
    """Reads a log as a client's; None where nothing in it is a client's own word."""
    name, mark = "", -1
    saw: dict[Saw, tuple[int, int]] = {}
    succeeded: int | None = None
    failed: int | None = None
    counted: int | None = None
    for index, text in enumerate(texts):
        if not name:
            name = next((n for n, pattern in _MARKS if pattern.search(text)), "")
            mark = index if name else -1
        line = _counts(text)
        for kind, times in (*((k, 1) for k, pattern in _SAW if pattern.search(text)), *line.kinds):
            first, before = saw.get(kind, (index, 0))
            saw[kind] = (first, before + times)
        succeeded = _sum(succeeded, line.succeeded)
        failed = _sum(failed, line.failed)
        if line.failed or line.none_at_all:
            counted = index
    if not name:
        return None
    return Client(name, mark, tuple((k, *saw[k]) for k in Saw if k in saw), succeeded, failed, counted)


def _sum(known: int | None, more: int | None) -> int | None:
    return known if more is None else (known or 0) + more


def _counts(text: str) -> _Line:
    if (told := _COUNT.search(text)) is not None:
        count = int(told["count"])
        return _Line(failed=count) if told["what"] == "Failed" else _Line(succeeded=count)
    if _ANSWER.search(text):
        return _Line(succeeded=1)
    if (wrk := _WRK.search(text)) is not None:
        kinds = (Saw.REFUSED_CONNECTION, Saw.CUT, Saw.CUT, Saw.LATE)
        counts = [int(n) for n in wrk.groups()]
        return _Line(failed=sum(counts), kinds=tuple((k, n) for k, n in zip(kinds, counts, strict=True) if n))
    if (status := _WRK_STATUS.search(text)) is not None:
        return _Line(failed=int(status[1]))
    return _Line(none_at_all=_NONE.search(text) is not None)

"""The words of programs that ask a server: what they write is what they saw, and not why."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from vllm_doctor.log.match import read, says


class Saw(StrEnum):
    """What became of requests that failed, by what the client knows of it."""

    NO_ADDRESS = "nothing was sent: the base URL is not whole"
    NO_KEY = "nothing was sent: the key is missing"
    PLAIN_HTTP = "it speaks TLS, and the other side does not"
    NO_NAME = "it finds no address for the server's name"
    NO_PATH = "the server has no such path (404)"
    REFUSED_CONNECTION = "nothing listened: the connection was refused or not made"
    CUT = "the server closed the connection before its answer was complete"
    SERVER_ERROR = "the server itself failed (5xx)"
    LATE = "no answer came within the time-out of the client or a proxy"
    REFUSED_REQUEST = "the server refused the request itself (4xx)"


# Those that say how many requests came through.
MEASURES = frozenset({"vllm bench serve", "evalscope", "wrk", "locust", "k6", "hey", "ab"})
# Whose mark names a path of the API, so that the log need not name vLLM.
ASKS = frozenset({"requests", "TRL's trainer"})
# What only a client writes; a name to call it by.
_MARKS = {
    "client-vllm-bench": "vllm bench serve",
    "client-vllm-bench-failed": "vllm bench serve",
    "client-evalscope": "evalscope",
    "client-wrk": "wrk",
    "client-locust": "locust",
    "client-k6": "k6",
    "client-hey": "hey",
    "client-ab": "ab",
    "client-openai": "the openai package",
    "client-openai-call": "the openai package",
    "client-aiohttp": "aiohttp",
    "client-httpx": "httpx",
    "client-requests": "requests",
    "client-trl": "TRL's trainer",
}
_SAW = {
    "client-saw-no-address": Saw.NO_ADDRESS,
    "client-saw-no-key": Saw.NO_KEY,
    "client-saw-plain-http": Saw.PLAIN_HTTP,
    "client-saw-no-name": Saw.NO_NAME,
    "client-saw-no-path": Saw.NO_PATH,
    "client-saw-no-listener": Saw.REFUSED_CONNECTION,
    "client-saw-cut": Saw.CUT,
    "client-saw-server-error": Saw.SERVER_ERROR,
    "client-saw-late": Saw.LATE,
    "client-saw-refusal": Saw.REFUSED_REQUEST,
}


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
        came = f"{self.succeeded} requests were answered" if self.succeeded is not None else "it shows no failure"
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
    asked: int | None = None
    for index, text in enumerate(texts):
        if not name:
            name = next((program for message, program in _MARKS.items() if says(text, message)), "")
            mark = index if name else -1
        line = _counts(text)
        if name in MEASURES and (bar := read("client-bar", text)) is not None and bar["done"] == bar["all"]:
            asked = int(bar["all"])
        for kind, times in (*((kind, 1) for message, kind in _SAW.items() if says(text, message)), *line.kinds):
            first, before = saw.get(kind, (index, 0))
            saw[kind] = (first, before + times)
        succeeded = _sum(succeeded, line.succeeded)
        failed = _sum(failed, line.failed)
        if line.failed or line.none_at_all:
            counted = index
    if not name:
        return None
    if failed is None and succeeded is not None and asked is not None and succeeded <= asked:
        failed = asked - succeeded  # releases before 0.11.1 count the answers alone, and its bar all that were asked
    return Client(name, mark, tuple((k, *saw[k]) for k in Saw if k in saw), succeeded, failed, counted)


def failed_answer(texts: Iterable[str]) -> tuple[int, Saw] | None:
    """The first line that tells of a request which failed, and what became of it; whoever wrote it."""
    for index, text in enumerate(texts):
        kind = next((kind for message, kind in _SAW.items() if says(text, message)), None)
        if kind is not None:
            return index, kind
    return None


def _sum(known: int | None, more: int | None) -> int | None:
    return known if more is None else (known or 0) + more


def _counts(text: str) -> _Line:
    if (told := read("client-counts", text)) is not None:
        count = int(told["count"])
        return _Line(failed=count) if told["what"] == "Failed" else _Line(succeeded=count)
    if (told := read("client-counts-both", text)) is not None:
        failed = int(told.get("failed") or told.get("fails") or 0)
        return _Line(succeeded=max(int(told.get("all") or told.get("reqs") or 0) - failed, 0), failed=failed)
    if (told := read("client-counts-by-status", text)) is not None:
        count = int(told["count"])
        return _Line(succeeded=count) if told["status"].startswith("2") else _Line(failed=count)
    if says(text, "client-answered"):
        return _Line(succeeded=1)
    if (wrk := read("client-wrk-errors", text)) is not None:
        kinds = (Saw.REFUSED_CONNECTION, Saw.CUT, Saw.CUT, Saw.LATE)
        counts = [int(n) for n in wrk.values()]
        return _Line(failed=sum(counts), kinds=tuple((k, n) for k, n in zip(kinds, counts, strict=True) if n))
    if (status := read("client-wrk-status", text)) is not None:
        return _Line(failed=int(status["count"]))
    return _Line(none_at_all=says(text, "client-none-at-all"))

"""A load of our own for where no benchmark is installed: so many streams at once, each asking again when it is done.

Prompts are token numbers drawn at random, so that their length is exact and no prefix is found in the cache; low
numbers, which every vocabulary has. HTTP/1.0: the answer ends with the connection, and its lines come as sent.
"""

import asyncio
import json
import random
import ssl
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from vllm_doctor.records import excerpt

TOKENS = range(3, 250)
LINE = 1 << 20


class LoadTarget(msgspec.Struct, frozen=True):
    """Where and what is asked. `key` is the API key; it goes into a header and nowhere else."""

    base: str
    model: str
    prompt_tokens: int
    output_tokens: int
    key: str | None = None


class LoadStream(msgspec.Struct, frozen=True):
    """One answered request: seconds to the first token, between the later ones, and how many tokens came."""

    first_s: float
    between_s: tuple[float, ...]
    tokens: int


class LoadResult(msgspec.Struct, frozen=True):
    """What the streams met; `seconds` is the time in which the tokens came."""

    streams: tuple[LoadStream, ...]
    errors: tuple[str, ...]
    seconds: float

    @property
    def output_tps(self) -> float:
        """Output tokens a second over all streams."""
        return sum(s.tokens for s in self.streams) / self.seconds if self.seconds > 0 else 0.0


class Benchmark(Protocol):
    """An installed program that makes the load instead of our own streams."""

    @property
    def name(self) -> str:
        """What a person calls it."""

    def drive(self, target: LoadTarget, tokenizer: str, at_once: int, limit_s: float) -> LoadResult:
        """Keep `at_once` requests in flight, for at most `limit_s` seconds with its own start. What does not end or
        leaves no report is one error: nothing is known of the requests then."""


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value below which this share lies (nearest rank); None of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else None


def drive(target: LoadTarget, at_once: int, seconds: float, grace_s: float) -> LoadResult:
    """Keep `at_once` requests in flight for `seconds`; those still running then have `grace_s` to end."""
    return asyncio.run(_drive(target, at_once, seconds, grace_s))


async def _drive(target: LoadTarget, at_once: int, seconds: float, grace_s: float) -> LoadResult:
    began = time.monotonic()
    until = began + seconds
    streams: list[LoadStream] = []
    errors: list[str] = []

    async def caller(number: int) -> None:
        # Not all in the same instant: that would measure the queue at the start and nothing else.
        await asyncio.sleep(min(2.0, seconds / 10) * number / at_once)
        while time.monotonic() < until and len(errors) < at_once:
            outcome = await _ask(target, random.Random(number + time.monotonic_ns()), until + grace_s)  # noqa: S311
            if isinstance(outcome, LoadStream):
                streams.append(outcome)
            else:
                errors.append(outcome)

    await asyncio.gather(*(caller(n) for n in range(at_once)))
    return LoadResult(tuple(streams), tuple(errors), time.monotonic() - began)


async def _ask(target: LoadTarget, dice: random.Random, end: float) -> LoadStream | str:
    try:
        async with asyncio.timeout(max(1.0, end - time.monotonic())):
            return await _stream(target, dice)
    except TimeoutError:
        return "no complete answer within one step"
    except (OSError, ValueError) as problem:
        return f"{type(problem).__name__}: {excerpt.said(str(problem))}"


async def _stream(target: LoadTarget, dice: random.Random) -> LoadStream | str:
    place = urlsplit(target.base)
    secure = ssl.create_default_context() if place.scheme == "https" else None
    if secure is not None:  # the server is on this host; its certificate names the outside
        secure.check_hostname, secure.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(place.hostname, place.port, ssl=secure, limit=LINE)
    try:
        writer.write(_request(target, dice))
        asked = time.monotonic()
        await writer.drain()
        status = (await reader.readline()).split()
        if status[1:2] != [b"200"]:
            while (await reader.readline()).strip():  # the rest of the head
                pass
            said = (await reader.read(200)).decode(errors="replace")
            return f"status {status[1].decode() if status[1:] else '?'}: {said}"
        return await _events(reader, asked)
    finally:
        writer.close()


async def _events(reader: asyncio.StreamReader, asked: float) -> LoadStream | str:
    times: list[float] = []
    tokens = 0
    done = False
    async for line in reader:
        if not line.startswith(b"data: "):
            continue
        if line.startswith(b"data: [DONE]"):
            done = True
            break
        event = json.loads(line[6:])
        if "error" in event:
            return f"error in the stream: {excerpt.said(str(event['error']))}"
        if event.get("usage"):
            tokens = int(event["usage"].get("completion_tokens") or 0)
        if event.get("choices"):
            times.append(time.monotonic())
    if not done or not times:
        return "the stream broke off"
    between = tuple(b - a for a, b in pairwise(times))
    return LoadStream(times[0] - asked, between, tokens or len(times))


def _request(target: LoadTarget, dice: random.Random) -> bytes:
    body = json.dumps(
        {
            "model": target.model,
            "prompt": dice.choices(TOKENS, k=target.prompt_tokens),
            "max_tokens": target.output_tokens,
            "ignore_eos": True,
            "temperature": 1.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    path = f"{urlsplit(target.base).path}/v1/completions"
    head = [f"POST {path} HTTP/1.0", f"Host: {urlsplit(target.base).netloc}", "Content-Type: application/json"]
    if target.key:
        head.append(f"Authorization: Bearer {target.key}")
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body

"""Our own load against a server of sockets: what it sends, what it measures, and what it calls an error."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from vllm_doctor.operate.tune import bench as tune_bench
from vllm_doctor.operate.tune.load_generator import LoadTarget, drive, percentile

TOKENS = 5


@contextmanager
def server(answer) -> Iterator[tuple[str, list[dict]]]:
    """A server that reads one request and hands its writer to `answer`; its address and the requests it saw."""
    seen: list[dict] = []
    ready = threading.Event()
    place: list[int] = []
    loop = asyncio.new_event_loop()

    async def serve(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(
            next(line.split(":")[1] for line in head.splitlines() if line.lower().startswith("content-length"))
        )
        seen.append({"head": head, "body": json.loads(await reader.readexactly(length))})
        try:
            await answer(writer, len(seen))
        finally:
            writer.close()

    async def main():
        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        place.append(listening.sockets[0].getsockname()[1])
        ready.set()
        await asyncio.Event().wait()

    def run():
        asyncio.set_event_loop(loop)
        task = loop.create_task(main())
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield f"http://127.0.0.1:{place[0]}", seen
    finally:
        loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
        thread.join(10)


def event(payload: dict) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


async def good(writer, _number):
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
    for _ in range(TOKENS):
        writer.write(event({"choices": [{"text": "x"}]}))
        await writer.drain()
        await asyncio.sleep(0.01)
    writer.write(event({"choices": [], "usage": {"completion_tokens": TOKENS}}) + b"data: [DONE]\n\n")
    await writer.drain()


def test_streams_are_counted_timed_and_asked_as_said():
    with server(good) as (base, seen):
        load = drive(LoadTarget(base, "tiny", 32, TOKENS, "secret"), 4, 0.5, 60)
    assert not load.errors
    assert len(load.streams) == len(seen) >= 4
    assert all(s.tokens == TOKENS and len(s.between_s) == TOKENS - 1 for s in load.streams)
    assert percentile([b for s in load.streams for b in s.between_s], 0.5) >= 0.005
    assert all(s.first_s + sum(s.between_s) <= load.seconds for s in load.streams)
    assert load.output_tps > 0
    first = seen[0]
    assert (first["body"]["max_tokens"], first["body"]["ignore_eos"], len(first["body"]["prompt"])) == (
        TOKENS,
        True,
        32,
    )
    assert "Authorization: Bearer secret" in first["head"]
    assert "HTTP/1.0" in first["head"]
    assert len({tuple(s["body"]["prompt"]) for s in seen}) == len(seen), (
        "equal prompts would be found in the prefix cache"
    )


async def refuse(writer, _number):
    writer.write(b"HTTP/1.1 503 Service Unavailable\r\n\r\nengine is dead")
    await writer.drain()


async def break_off(writer, _number):
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + event({"choices": [{"text": "x"}]}))
    await writer.drain()


async def error_inside(writer, _number):
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + event({"error": {"message": "out of memory"}}))
    await writer.drain()


async def garbage(writer, _number):
    writer.write(b"HTTP/1.1 200 OK\r\n\r\ndata: {not json\n\n")
    await writer.drain()


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (refuse, "status 503: engine is dead"),
        (break_off, "broke off"),
        (error_inside, "out of memory"),
        (garbage, "JSONDecodeError"),
    ],
)
def test_a_request_that_fails_is_an_error_with_its_reason(answer, word):
    with server(answer) as (base, _seen):
        load = drive(LoadTarget(base, "tiny", 8, TOKENS), 2, 0.3, 60)
    assert not load.streams
    assert word in load.errors[0]


def test_a_server_that_is_gone_ends_the_load_and_not_the_program():
    load = drive(LoadTarget("http://127.0.0.1:9", "tiny", 8, TOKENS), 2, 0.3, 1)
    assert not load.streams
    assert len(load.errors) <= 4


async def silent(_writer, _number):
    await asyncio.Event().wait()


def test_a_server_that_never_answers_costs_the_time_of_a_step_and_no_more():
    with server(silent) as (base, _seen):
        load = drive(LoadTarget(base, "tiny", 8, TOKENS), 2, 0.2, 1)
    assert set(load.errors) == {"no complete answer within one step"}


def test_the_benchmarks_file_is_read_as_a_load(tmp_path):
    told = tune_bench._Result(2.0, [0.1, 0.0], [[0.02, 0.03], []], [3, 0], ["", "Traceback: connection reset"])
    load = tune_bench.loaded(told)
    assert len(load.streams) == 1
    assert load.errors == ("Traceback: connection reset",)
    assert load.output_tps == 1.5


def test_the_benchmark_gets_no_key_on_its_command_line(tmp_path):
    words = tune_bench.command(
        "/v/bin/vllm", LoadTarget("http://h:1", "m", 8, 4, "secret"), "/model", 16, tmp_path / "r.json"
    )
    assert "secret" not in " ".join(words)
    assert words[words.index("--max-concurrency") + 1] == "16"
    assert words[words.index("--num-prompts") + 1] == "48"

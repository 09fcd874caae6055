"""The routes of the API server, as an ASGI application."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import secrets
import signal
import time
from pathlib import Path

from vllm.cli import release
from vllm.memory import config_of
from vllm.metrics import Metrics

GUARDED = ("/v1", "/v2", "/inference", "/cohere")  # where vLLM 0.32 asks for the key; the rest is open
GENERATE = ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/invocations")
EMBED = ("/v1/embeddings", "/v2/embed", "/pooling", "/invocations")
CLASSIFY = ("/classify", "/pooling", "/invocations")
SCORE = ("/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank", "/pooling", "/invocations")
TRANSCRIBE = ("/v1/audio/transcriptions", "/v1/audio/translations", "/invocations")
ALWAYS = (
    "/health",
    "/load",
    "/ping",
    "/version",
    "/metrics",
    "/openapi.json",
    "/v1/models",
    "/tokenize",
    "/detokenize",
)


class RefusedError(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.status, self.message, self.kind = status, message, kind


def adapters(options) -> list[str]:
    """The names of `--lora-modules NAME=FOLDER …`. Raises OSError where a folder's two files cannot be read."""
    found = []
    for word in options.lora_modules or []:
        name, _, folder = word.partition("=")
        for file in ("adapter_config.json", "adapter_model.safetensors"):
            Path(folder, file).read_bytes()
        found.append(name)
    return found


def routes_of(options, model: str) -> tuple[str, ...]:
    """The routes that the model's task brings, by its architecture or by --runner and --convert."""
    config = config_of(model)
    name = str((config.get("architectures") or [""])[0])
    convert = str(options.convert or "")
    if convert == "classify" or "SequenceClassification" in name:
        return CLASSIFY if int(config.get("num_labels") or 1) > 1 else SCORE
    if options.runner == "pooling" or convert in {"embed", "reward"} or name.endswith(("Model", "Embedding")):
        return EMBED
    return TRANSCRIBE if "Whisper" in name else GENERATE


class Api:
    """One server; counts what runs and waits."""

    def __init__(self, options, model: str, sums, faults, engine: int) -> None:
        self.options, self.model, self.sums = options, model, sums
        self.faults, self.engine = faults, engine
        self.names = [*(options.served_model_name or [model]), *adapters(options)]
        keys = options.api_key or [os.environ.get("VLLM_API_KEY", "")]
        self.keys = [hashlib.sha256(key.encode()).digest() for key in keys if key]
        self.paths = (*ALWAYS, *routes_of(options, model))
        self.running = self.waiting = self.held_tokens = 0
        self.closing = self.aborting = self.dead = False
        self.slots = asyncio.Semaphore(int(options.max_num_seqs or 256))
        self.metrics = Metrics(self.names[0], sums, options)

    def stopped(self) -> bool:
        """Whether somebody stopped the engine's process: it answers nothing then, and nobody else notices."""
        try:
            return Path(f"/proc/{self.engine}/stat").read_text().rpartition(")")[2].split()[0] in {"T", "t"}
        except OSError:
            return False

    def allowed(self, scope) -> bool:
        """Whether the key is given where vLLM asks for one."""
        if not self.keys or scope["method"] == "OPTIONS" or not scope["path"].startswith(GUARDED):
            return True
        value = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        scheme, _, key = value.partition(" ")
        digest = hashlib.sha256(key.encode()).digest()
        return scheme.lower() == "bearer" and any(secrets.compare_digest(digest, known) for known in self.keys)

    async def __call__(self, scope, receive, send) -> None:
        """Answer one request."""
        if not self.allowed(scope):
            await reply(send, 401, {"error": "Unauthorized"})
            return
        path = scope["path"].removeprefix(self.options.root_path or "") or "/"
        if path not in self.paths:
            await reply(send, 404, {"detail": "Not Found"})
            return
        reads = path in ALWAYS and path not in {"/tokenize", "/detokenize"}
        if (scope["method"] == "GET") != reads and path != "/ping":
            await reply(send, 405, {"detail": "Method Not Allowed"})
            return
        try:
            if reads:
                await self.tell(path, send)
                return
            message = await receive()
            content = message.get("body") or b""
            try:
                body = form(content) if path in TRANSCRIBE[:2] else json.loads(content)
            except ValueError:
                raise RefusedError(400, "Invalid JSON") from None
            await self.work(path, body if isinstance(body, dict) else {}, send)
        except RefusedError as error:
            told = {"message": error.message, "type": error.kind, "param": None, "code": error.status}
            await reply(send, error.status, {"error": told})

    async def tell(self, path: str, send) -> None:
        """What is known without the engine."""
        if path in {"/health", "/ping"}:
            await reply(send, 503 if self.dead else 200, None)
        elif path == "/metrics":
            text = self.metrics.text(self.running, self.waiting, self.held_tokens)
            await reply(send, 200, text, kind=b"text/plain; version=0.0.4; charset=utf-8")
        elif path == "/version":
            await reply(send, 200, {"version": release()})
        elif path == "/load":
            await reply(send, 200, {"server_load": self.running})
        elif path == "/openapi.json":
            methods = {name: {"get" if name in ALWAYS else "post": {}} for name in self.paths}
            await reply(
                send, 200, {"openapi": "3.1.0", "info": {"title": "FastAPI", "version": "0.1.0"}, "paths": methods}
            )
        else:
            common = {"object": "model", "created": int(time.time()), "owned_by": "vllm", "root": self.model}
            models = [{"id": name, "max_model_len": self.sums["longest"], **common} for name in self.names]
            await reply(send, 200, {"object": "list", "data": models})

    async def work(self, path: str, body, send) -> None:
        """What the engine does: it takes a place, time, and room in the cache."""
        text = said(body)
        if path in {"/tokenize", "/detokenize"}:
            tokens = list(range(count(text)))
            await reply(send, 200, {"count": len(tokens), "max_model_len": self.sums["longest"], "tokens": tokens})
            return
        if body.get("model") not in {None, *self.names}:
            raise RefusedError(404, f"The model `{body['model']}` does not exist.", "NotFoundError")
        prompt = count(text)
        room = self.sums["longest"] - prompt
        wanted = int(body.get("max_completion_tokens") or body.get("max_tokens") or (16 if "prompt" in body else room))
        generates = self.paths[len(ALWAYS) :] == GENERATE
        if prompt + (wanted if generates else 0) > self.sums["longest"]:
            raise RefusedError(
                400,
                f"This model's maximum context length is {self.sums['longest']} tokens. However, you requested "
                f"{wanted} output tokens and your prompt contains at least {prompt} input tokens, for a total of at "
                f"least {prompt + wanted} tokens. Please reduce the length of the input prompt or the number of "
                "requested output tokens.",
            )
        limit = self.options.max_num_queued_reqs
        if limit is not None and self.running + self.waiting >= int(limit):
            raise RefusedError(503, "The server is overloaded: too many queued requests.", "ServiceUnavailableError")
        await self.scheduled(path, body, send, prompt, wanted if generates else 1)

    async def scheduled(self, path: str, body, send, prompt: int, wanted: int) -> None:
        """Wait for a place, then go step by step."""
        wrong = self.faults()
        if wrong.get("die"):
            os.kill(self.engine, signal.SIGKILL)
        if self.closing:
            raise RefusedError(500, "EngineCore is shutting down", "InternalServerError")
        began = time.monotonic()
        self.waiting += 1
        try:
            await self.slots.acquire()
        finally:
            self.waiting -= 1
        self.running += 1
        self.held_tokens += prompt + wanted
        try:
            writer = Writer(path, body, self.names[0], (prompt, wanted), send)
            pause = float(str(wrong.get("token_seconds", 0)))
            for index in range(wanted):
                await self.step(pause)
                if self.dead or self.aborting:
                    self.metrics.finished("abort", prompt, index, began)
                    raise RefusedError(500, "EngineCore encountered an issue.", "InternalServerError")
                if index == 0:
                    self.metrics.first(time.monotonic() - began)
                await writer.token(index)
            await writer.end()
            self.metrics.finished("length", prompt, wanted, began)
        finally:
            self.running -= 1
            self.held_tokens -= prompt + wanted
            self.slots.release()

    async def step(self, seconds: float) -> None:
        """One step of the engine, which ends early where the engine does."""
        end = time.monotonic() + seconds
        while not self.dead and not self.aborting:
            left = end - time.monotonic()
            if left <= 0 and not (self.faults().get("hang") or self.stopped()):
                await asyncio.sleep(0)
                return
            await asyncio.sleep(min(max(left, 0.02), 0.05))


class Writer:
    """The answer of one request in the form of its route, streamed where that is asked for."""

    def __init__(self, path: str, body, model: str, usage: tuple[int, int], send) -> None:
        prompt, wanted = usage
        self.path, self.model, self.send = path, model, send
        self.usage = {"prompt_tokens": prompt, "completion_tokens": wanted, "total_tokens": prompt + wanted}
        self.stream = bool(body.get("stream"))
        self.chat = "messages" in body
        self.inputs = body.get("input") or body.get("documents") or [""]
        self.text = ""

    async def token(self, index: int) -> None:
        """One token more."""
        self.text += " the"
        if self.stream:
            if index == 0:
                start = {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [(b"content-type", b"text/event-stream")],
                }
                await self.send(start)
            await self.event({"choices": [self.choice(" the", "delta", None)]})

    async def event(self, told) -> None:
        line = f"data: {json.dumps({'id': 'stub', 'model': self.model, **told})}\n\n".encode()
        await self.send({"type": "http.response.body", "body": line, "more_body": True})

    def choice(self, text: str, part: str, reason: str | None) -> dict[str, object]:
        said = {part: {"role": "assistant", "content": text}} if self.chat else {"text": text}
        return {"index": 0, "finish_reason": reason, **said}

    async def end(self) -> None:
        """All of it, or the end of the stream."""
        if self.stream:
            await self.event({"choices": [self.choice("", "delta", "length")], "usage": self.usage})
            await self.send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
            return
        known = {"id": "stub", "created": int(time.time()), "model": self.model, "usage": self.usage}
        count_in = len(self.inputs) if isinstance(self.inputs, list) else 1
        if "embed" in self.path or self.path == "/pooling":
            data = [{"index": index, "object": "embedding", "embedding": [0.0, 1.0]} for index in range(count_in)]
            await reply(self.send, 200, {"object": "list", "data": data, **known})
        elif self.path == "/classify":
            rows = [{"index": index, "label": "LABEL_0", "probs": [1.0]} for index in range(count_in)]
            await reply(self.send, 200, {"object": "list", "data": rows, **known})
        elif "score" in self.path or "rerank" in self.path:
            rows = [{"index": index, "relevance_score": 0.5, "score": 0.5} for index in range(count_in)]
            await reply(self.send, 200, {"object": "list", "data": rows, "results": rows, **known})
        elif "audio" in self.path:
            await reply(self.send, 200, {"text": self.text, **known})
        else:
            kind = "chat.completion" if self.chat else "text_completion"
            await reply(
                self.send, 200, {"object": kind, "choices": [self.choice(self.text, "message", "length")], **known}
            )


def form(content: bytes) -> dict[str, object]:
    """The fields of a form with an audio file in it; it is refused as FastAPI does without one."""
    parts = content.split(content.partition(b"\r\n")[0])[1:-1] if content.startswith(b"--") else []
    fields = {}
    for part in parts:
        head, _, value = part.strip(b"\r\n").partition(b"\r\n\r\n")
        if name := re.search(rb'name="(\w+)"', head):
            fields[name[1].decode()] = value if b"filename=" in head else value.decode()
    if not isinstance(fields.get("file"), bytes):
        raise RefusedError(422, "Field required: body.file")
    return fields | {"file": "audio"}


def said(body) -> str:
    """All text of a request."""
    parts = [
        body.get(name) for name in ("prompt", "messages", "input", "text", "query", "documents", "text_1", "text_2")
    ]
    return " ".join(part if isinstance(part, str) else json.dumps(part) for part in parts if part)


def count(text: str) -> int:
    """Tokens, four characters each."""
    return -(-len(text) // 4)


async def reply(send, status: int, told, kind: bytes = b"application/json") -> None:
    """A whole answer."""
    body = b"" if told is None else told.encode() if isinstance(told, str) else json.dumps(told).encode()
    headers = [(b"content-length", str(len(body)).encode()), (b"content-type", kind)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

"""HTTP/1.1 over asyncio for one ASGI application: as much of uvicorn as a client of vLLM can see."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from urllib.parse import unquote

LIMIT = 64 << 20  # bytes of a body


class Server:
    """Listens and hands each request to the application; counts what is under way."""

    def __init__(self, application, log) -> None:
        self.application, self.log, self.under_way = application, log, 0

    async def connection(self, reader, writer) -> None:
        """The requests of one connection, one after another."""
        try:
            while await self.request(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError, ValueError):
            pass
        finally:
            writer.close()

    async def request(self, reader, writer) -> bool:
        """One request; whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        method, target, protocol = first.split(" ")
        headers = [
            (name.strip().lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines if line)
        ]
        length = int(dict(headers).get("content-length", 0))
        body = await reader.readexactly(min(length, LIMIT)) if length else b""
        keep = dict(headers).get("connection", "").lower() != "close" and protocol == "HTTP/1.1"
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode("latin-1"),
            "root_path": "",
            "query_string": query.encode("latin-1"),
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
            "client": writer.get_extra_info("peername") or ("", 0),
            "server": writer.get_extra_info("sockname") or ("", 0),
        }
        status, chunked = 500, False
        given = False

        async def receive():
            nonlocal given
            if given:
                await asyncio.Event().wait()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message) -> None:
            nonlocal status, chunked
            if message["type"] == "http.response.start":
                status = message["status"]
                names = {name.lower() for name, _ in message.get("headers", [])}
                chunked = b"content-length" not in names
                start = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode(), b"server: uvicorn"]
                start += [name + b": " + value for name, value in message.get("headers", [])]
                start += [b"transfer-encoding: chunked"] if chunked else []
                writer.write(b"\r\n".join(start) + b"\r\n\r\n")
                return
            part = message.get("body", b"")
            if chunked and part:
                part = f"{len(part):x}\r\n".encode() + part + b"\r\n"
            if chunked and not message.get("more_body"):
                part += b"0\r\n\r\n"
            writer.write(part)
            await writer.drain()

        self.under_way += 1
        try:
            await self.application(scope, receive, send)
        finally:
            self.under_way -= 1
        client = ":".join(map(str, (scope["client"] or ("", 0))[:2]))
        self.log.uvicorn(f'{client} - "{method} {target} HTTP/1.1" {status} {HTTPStatus(status).phrase}')
        return keep

# Copyright: the authors of vllm-doctor
# Apache License 2.0 (see LICENSE)
"""Ask a server to do what its model is for, once and with the least work.

vLLM registers the routes of the tasks that the model supports (`register_*_api_routers(app, supported_tasks)`), so its
OpenAPI document says which of them to ask. Where it is switched off, and in releases that register all routes, the
server refuses what the model cannot do, and the next route is asked.
"""

from __future__ import annotations

import io
import urllib.error
import wave

from ansible_collections.vllm_doctor.hosts.plugins.module_utils.vllm_http import ask

BOUNDARY = "b7c9b5a1d0f24e3e"
# The answers of a server that has no such route, or whose model cannot do it. Any other failure is one.
CANNOT = {400, 404, 405, 422, 501}


def _text(model: str) -> dict[str, object]:
    return {"model": model, "prompt": "Hello", "max_tokens": 1}


def _chat(model: str) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}


def _input(model: str) -> dict[str, object]:
    return {"model": model, "input": "Hello"}


def _pair(model: str) -> dict[str, object]:
    return {"model": model, "text_1": "Hello", "text_2": "Hello"}


def _query(model: str) -> dict[str, object]:
    return {"model": model, "query": "Hello", "documents": ["Hello"]}


def _silence() -> bytes:
    """One second of it, as a WAV file."""
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(bytes(32000))
    return stream.getvalue()


def _spoken(model: str) -> tuple[bytes, str]:
    """A request for a transcription, and its content type (RFC 7578)."""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="model"\r\n\r\n{model}\r\n--{BOUNDARY}\r\n'
    part = 'Content-Disposition: form-data; name="file"; filename="silence.wav"\r\nContent-Type: audio/wav\r\n\r\n'
    body = head.encode() + part.encode() + _silence() + f"\r\n--{BOUNDARY}--\r\n".encode()
    return body, f"multipart/form-data; boundary={BOUNDARY}"


# path, what is sent, and the key of the answer that holds something when it was done
ROUTES = (
    ("/v1/completions", _text, "choices"),
    ("/v1/chat/completions", _chat, "choices"),
    ("/v1/embeddings", _input, "data"),
    ("/classify", _input, "data"),
    ("/score", _pair, "data"),
    ("/rerank", _query, "results"),
    ("/pooling", _input, "data"),
    ("/v1/audio/transcriptions", _spoken, "text"),
)


def listed(url: str, key: str, seconds: float, certificate: str) -> list[str]:
    """The routes above that the server has; all of them where it does not say."""
    try:
        paths = ask(f"{url}/openapi.json", key, seconds, certificate=certificate).get("paths")
    except urllib.error.HTTPError as error:
        if error.code not in CANNOT:
            raise
        paths = None
    known = [path for path, _, _ in ROUTES]
    return [path for path in known if path in paths] if isinstance(paths, dict) else known


def served(url: str, key: str, seconds: float, certificate: str) -> str:
    """The first model that the server lists; raises OSError, and ValueError where it lists none."""
    models = ask(f"{url}/v1/models", key, seconds, certificate=certificate).get("data")
    first = models[0] if isinstance(models, list) and models else None
    if not isinstance(first, dict) or not first.get("id"):
        raise ValueError("/v1/models lists no model")
    return str(first["id"])


def answers(url: str, key: str, seconds: float, certificate: str = "") -> tuple[str, str]:
    """(model, route) of the first route on which the first served model does its work.

    Raises OSError or ValueError where the server does not answer, LookupError where no route of it can be asked.
    """
    model = served(url, key, seconds, certificate)
    refused = []
    routes = listed(url, key, seconds, certificate)
    for path, made, filled in (route for route in ROUTES if route[0] in routes):
        body = made(model)
        try:
            told = ask(f"{url}{path}", key, seconds, body, certificate)
        except urllib.error.HTTPError as error:
            if error.code not in CANNOT:
                raise
            refused.append(f"{path} ({error.code})")
            continue
        if told.get(filled) or (filled in told and path.endswith("transcriptions")):  # of silence there is no text
            return model, path
        raise ValueError(f"{path} answered with no {filled}")
    raise LookupError(f"no route that its model has is known here: {', '.join(refused) or 'none is listed'}")

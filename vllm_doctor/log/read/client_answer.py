"""A server's answer with an error as its clients print it, in the words of openai's package, which rules know."""

import json
import re

from vllm_doctor.log.read.printable import printable_text, shorten

# A server's refusal as clients in JavaScript word it: the status, and the sentence of the answer's body.
_TOLD_CLIENT = re.compile(
    r"\W{0,4}(?P<head>(?:\w{1,20} )?Error: |(?:\w{1,20} ){0,3}HTTP )?(?P<code>4(?:0[0134]|09|22|29))(?(head):?) "
    r"(?!Client Error)"
    r"(?P<what>(?(head)|['\"{]?\w+(?: [^ ]+){4}).*)"
)
# The same as litellm passes it on, with its own class for the status.
_PASSED_ON = re.compile(r".{0,300}?litellm\.BadRequestError: Hosted_vllmException - (?!Error code)(?P<what>.+)")
# What an actor of xoscar (Xinference) puts before the words of an exception that it passes on, once for each call.
_ACTOR = re.compile(r"(?P<before>^|: |- )(?:\[address=[\w.:\[\]-]{1,80}?, pid=\d{1,10}\] )+")

# With this begins what is read of an answer that the text has in another form: none of its lines says so.
REWORDED = "openai."
# So much a client writes before the body that it prints.
_LEAD = 60
_DECODER = json.JSONDecoder()


def as_client(text: str) -> str:
    """The line, or the answer that it quotes as the client's package words it."""
    text = _passed_on(text)
    if "Hosted_vllmException - " in text and (passed := _PASSED_ON.match(text)) is not None:
        return f"{REWORDED}APIStatusError: Error code: 400 - {passed['what']}"
    if '"code"' in text and (body := _body_behind(text)) is not None:
        return body
    client = _TOLD_CLIENT.match(text) if "4" in text[:40] else None
    return text if client is None else f"{REWORDED}APIStatusError: Error code: {client['code']} - {client['what']}"


def _body_behind(text: str) -> str | None:
    """The body of a server's answer behind a few words of the client that prints it."""
    at = text.find('{"')
    if not 0 < at <= _LEAD:
        return None
    try:
        row, _ = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None
    return answer_in(row) if isinstance(row, dict) else None


def _passed_on(text: str) -> str:
    """Without the addresses of the actors that an exception went through."""
    return _ACTOR.sub(r"\g<before>", text) if "[address=" in text else text


def answer_in(row: dict[str, object]) -> str | None:
    """The body of an answer with an error, as a client's package words it; None for any other object."""
    inner = row.get("error")
    told = inner if isinstance(inner, dict) else row
    kind, message, code = told.get("type"), told.get("message"), told.get("code")
    if not (isinstance(message, str) and isinstance(code, int) and 400 <= code < 600):
        return None
    if kind is None and inner is told:
        kind = "APIStatusError"  # a router's own answer: it names no type
    if not isinstance(kind, str) or re.fullmatch(r"[A-Za-z]{1,60}Error", kind) is None:
        return None
    return f"{REWORDED}{kind}: Error code: {code} - {printable_text(shorten(message))}"

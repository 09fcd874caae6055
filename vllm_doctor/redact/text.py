"""Takes secrets out of text: by the name that stands before a value, then by shapes that only secrets have, and what
users of the server asked or were answered. Every step reads the text once: the time is linear in its length."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import unquote

from vllm_doctor.redact import fields, named, programs, shapes
from vllm_doctor.redact import users as of_users
from vllm_doctor.redact.around import around
from vllm_doctor.redact.folded import folded
from vllm_doctor.redact.shapes import Place
from vllm_doctor.redact.values import marked, opaque, secret_under

HIDDEN = shapes.HIDDEN
Replace = Callable[[str, str], str]

# Cheap first look: a line without any of these has nothing that a name tells.
_HINTS = (
    "key", "token", "secret", "passw", "pass", "passphrase", "credential", "bearer", "basic", "auth", "cookie", "pwd",
    "sig", "jwt", "_pat", "otp", "dsn", "sid", "sas", "webhook", "salt", "session", "csrf", "connectionstring",
    "--ap", "--hf",
    "pw", "psw", "clave", "parola", "mdp", "senha", "kennwort", "wachtwoord", "contrasena", "motdepasse", "palavra",
)  # fmt: skip
_TEXT_HINTS = (
    "prompt", "message", "content", "input", "output", "text", "quer", "document", "suffix", "stop", "bad_words",
    "respons", "answer", "body", "argument", "tool", "function_call", "image", "audio", "video", "url", "uri", "echo",
    "instruction", "reasoning", "delta", "complet", "guided", "structur", "grammar", "schema", "template", "transc",
    "translation", "question", "passage", "data_", "speech", "conversation", "history", "metadata", "://", "generated",
)  # fmt: skip


# `pwd=ab1`
_SHORTEST = 7


def hide(_value: str, _why: str) -> str:
    """The same mark for whatever is hidden."""
    return HIDDEN


def scrub(text: str, replace: Replace = hide, *, users: bool = True) -> str:
    """`text` without secrets and, with `users`, without what users of the server wrote or were answered.

    `replace(what, why)` gives what stands in its place.
    """
    if len(text) < _SHORTEST:
        return text
    if not (text.isascii() and text.isprintable()) and (seen := folded(text)) != text:
        told = _scrub(seen, replace, users=users)
        return text if told == seen else told
    return _scrub(text, replace, users=users)


def _scrub(text: str, replace: Replace, *, users: bool) -> str:
    lower = text.lower()
    if (seen := replaced(text, around(text, lower), replace)) != text:
        text, lower = seen, seen.lower()
    lower = unquote(lower) if "%" in lower else lower
    told = any(hint in lower for hint in _HINTS)
    asked = users and any(hint in lower for hint in _TEXT_HINTS)
    if told:
        text = replaced(text, fields.pairs(text), replace)
    if told or asked or not text.isascii():
        text = replaced(text, named.behind_names(text, users=users), replace)
        if told:
            text = replaced(text, named.spoken(text), replace)
            text = replaced(text, named.borne(text), replace)
            text = replaced(text, fields.wrapped(text), replace)
    text = replaced(text, fields.elsewhere(text, lower), replace)
    if "@" in text and ":" in text:
        text = replaced(
            text, ((at.begin, at.end, at.why) for at in shapes.userinfo(text) if opaque(at.password)), replace
        )
    if "%40" in text:
        text = replaced(text, shapes.passwords_in_percents(text), replace)
    if "://" in text:
        text = replaced(text, shapes.passwords(text), replace)
        text = replaced(text, shapes.webhooks(text, lower), replace)
        if users:
            text = replaced(text, of_users.media(text), replace)
    if users and "?" in text and " /" in text and '"' in text:
        text = replaced(text, of_users.queries(text), replace)
    if users and ("{%" in text or "{{" in text):
        text = replaced(text, of_users.templates(text), replace)
    text = replaced(text, programs.of_programs(text, lower), replace)
    return replaced(text, sorted(shapes.places(text)), replace)


def without_secrets(text: str) -> str:
    """Lines of an answer, of whatever format, without secrets: the last net before they leave. JSON stays JSON."""
    return "\n".join(_json(line) or scrub(line, users=False) for line in text.split("\n"))


# One that nobody closed goes to the end, so that no quotation mark of it is looked at again.
_LITERAL = re.compile(r'"(?:[^"\\]++|\\.?)*+(?:"|\Z)', re.DOTALL)
_BETWEEN = re.compile(r"[\s{}\[\],:\d.eE+truefalsn-]*+")


def _json(line: str) -> str:
    """A line of JSON with each text of it redacted; nothing where it is none."""
    if line.lstrip()[:1] not in {'"', "{", "["} or '"' not in line or not _BETWEEN.fullmatch(_LITERAL.sub("", line)):
        return ""
    kept: list[str] = []
    at, name, option = 0, "", ""
    for found in _LITERAL.finditer(line):
        try:
            text = json.loads(found[0])
        except ValueError:
            return ""
        told = scrub(text, users=False)
        if line[found.end() : found.end() + 1] == ":":
            name = text
        elif (name and secret_under(name, text)) or (
            option and not text.startswith("-") and secret_under(option, text)
        ):
            told = HIDDEN
        option = text.lstrip("-") if text.startswith("-") else ""
        if told != text:
            kept += (line[at : found.start()], json.dumps(told))
            at = found.end()
    told = "".join((*kept, line[at:]))
    paired = replaced(told, fields.pairs(told), hide)
    return paired if _BETWEEN.fullmatch(_LITERAL.sub("", paired)) else told


def replaced(text: str, places: Iterator[Place] | Sequence[Place], replace: Replace) -> str:
    """`text` with what `replace` gives for each place; what is hidden already stays."""
    kept: list[str] = []
    at = 0
    for begin, end, why in places:
        if begin < at or begin >= end:
            continue
        what = text[begin:end]
        if what == HIDDEN or marked(what):
            continue
        kept += (text[at:begin], replace(what, why))
        at = end
    return "".join((*kept, text[at:])) if kept else text

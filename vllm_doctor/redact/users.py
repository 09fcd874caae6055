"""What users of the server wrote or were answered: prompts, templates, addresses of pictures."""

import re
from collections.abc import Iterator

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.redact.names import word_list
from vllm_doctor.redact.shapes import Place, Taken
from vllm_doctor.redact.values import LONGEST_PLAIN, prose

ASKED = "what a user asked or was answered"

# One word that a setting may have, where vLLM's checks name what they met.
_SETTING = re.compile(r"[\w.:+,-]{1,48}|[~.]{0,2}/[\w.:+,/@-]{1,300}")
_AMBIGUOUS = {"input_value", "chat_template", "url", "uri"}
_OWN_ROUTES = Pattern(r"https?://[^/?#\s]{1,255}(?:/|/v1(?:/[\w/.-]{0,60})?|/metrics|/health|/version|/ping)?")
_MEDIA = Pattern(r"(?<=://)[^\s\"'<>`\\/]{1,255}/[^\s\"'<>`\\]*+", re.IGNORECASE)
_MEDIA_END = Pattern(
    r"\.(?:png|jpe?g|webp|gif|bmp|tiff?|mp4|webm|mov|mkv|wav|mp3|ogg|flac|m4a|pdf)(?:[?#].*)?\Z", re.IGNORECASE
)
# What a client asked for behind the path, as uvicorn writes a request of its own server: `"GET /path?query HTTP/1.1"`.
_QUERY = Pattern(
    r"\\{0,8}\"(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS) /[^\s?\"]{0,400}+\?(?P<value>[^\"\\\n]{1,8000}+)"
)
_PROTOCOL = Pattern(r" HTTP/\d(?:\.\d)?\s*+\Z")
# The text that a record of JSON holds ends there.
_TEXT_ENDS = re.compile(r"\n|(?=\\{0,8}\"[,}])")
_FIRST_WORD = re.compile(r"\S+")
_TWO_WORDS = re.compile(r"[^\W\d_]{2,40}+(?![\w/.-])[^\n]{0,80}?(?<![\w/.-])[^\W\d_]{2,40}+(?![\w/-])")


def are_users_own(name: str, value: str, *, quoted: bool) -> bool:
    """Is it text of a user, and not a setting, a number or the address of the server itself?"""
    bracket = value[:1] in {"[", "{", "("}
    if not (quoted or bracket):
        return name == "input_value" and not value.startswith("ArgsKwargs(") and not _SETTING.fullmatch(value[:400])
    if name in {"url", "uri"}:
        host = value.partition("://")[2].split("/", 1)[0].rsplit("@", 1)[-1].split(":", 1)[0]
        public = host in word_list("public_hosts") or host.endswith(tuple(f".{h}" for h in word_list("public_hosts")))
        return bool(host) and not public and not _OWN_ROUTES.fullmatch(value[:400])
    if name in _AMBIGUOUS:
        return not (bracket or _SETTING.fullmatch(value[:400])) or (bracket and len(value) > 2)
    return True


def unquoted(text: str, found: re.Match[str]) -> Taken:
    """`prompt: what a user wrote`, where only users write what stands under the name: two words and more, to the end of
    the line."""
    if ":" not in found["joint"] or found["name"].rsplit(".", 1)[-1].lower().replace("-", "_") not in word_list(
        "written_by_users"
    ):
        return
    at = found.end()
    begun = text[at : at + LONGEST_PLAIN]
    first = _FIRST_WORD.match(begun)
    if first is None or prose(first[0]) or not _TWO_WORDS.search(begun):
        return
    ended = _TEXT_ENDS.search(text, at)
    end = len(text) if ended is None else ended.start()
    yield at, end, ASKED, end


def media(text: str) -> Iterator[Place]:
    """The address of an image, a film or a document that a user sent."""
    for found in _MEDIA.finditer(text):
        slash = found[0].find("/")
        if _MEDIA_END.search(found[0][-400:].rstrip(".,;:)]}")):
            yield found.start() + slash + 1, found.end(), "address of what a user sent"


def queries(text: str) -> Iterator[Place]:
    """What stands behind the `?` of a request that a log names: values, and whatever else a client sent there."""
    for found in _QUERY.finditer(text):
        begin, end = found.span("value")
        protocol = _PROTOCOL.search(found["value"][-20:])
        end -= len(protocol[0]) if protocol is not None else 0
        if end > begin:
            yield begin, end, ASKED


def templates(text: str) -> Iterator[Place]:
    """A chat template: from where its first expression begins to where its last one ends."""
    if any(word in text for word in ("message", "content", "role")):
        begin = min(at for mark in ("{%", "{{") if (at := text.find(mark)) >= 0)
        end = max(text.rfind("%}"), text.rfind("}}"))
        if end > begin:
            yield begin, end + 2, "chat template"

"""The words of an exception that was raised while a request was read or answered: they may quote it.

Whose code raised it tells: code that sees tensors alone quotes no text. Of such an exception the kind and the place
stay, and of its words those that the calls' own lines of code print (`f"no role {role}"`), or, where the catalogue
knows the sentence, all that it does not quote.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import msgspec

from vllm_doctor.knowledge import api
from vllm_doctor.knowledge.guards import guard
from vllm_doctor.knowledge.known_issues import words_of_issue
from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.log import traceback
from vllm_doctor.log.match import Message, messages, read, says
from vllm_doctor.records.log import LogLine
from vllm_doctor.redact import scan
from vllm_doctor.redact.shapes import HIDDEN

_MOST_PIECES = 64
_TEXT = Pattern(r"(?P<quote>\"{1,3}|'{1,3})(?P<text>(?:[^\"'\\]|\\.|(?!(?P=quote))[\"']){3,200}+)(?P=quote)")
_HOLE = Pattern(r"\{[^{}]{0,200}\}|%(?:\(\w{1,40}\))?[-+ #0]{0,3}[\d.]{0,6}[sdrfxi]")
_FILE = Pattern(r"'(?P<path>(?:/[\w.+-]{1,80}){2,24})'")
_WORD = re.compile(r"[^\W\d_]{2}")
# A count is nobody's text, nor is what it counts, where that is a modality; more digits may be somebody's number.
_NOTHING = re.compile(r"[\W_]*(?:\d{1,5}[\W_]*)?(?:(?:image|video|audio)[\W_]*)?")
_QUOTED = re.compile(r"(?<![\w\\])[\"'`]")


class Told(msgspec.Struct, frozen=True):
    """A line as it may be shown, and what was taken from it."""

    text: str
    taken: tuple[str, ...]


def exception_words(lines: Sequence[LogLine], crash: traceback.Crash, link: traceback.Link) -> str:
    """The words of an exception, as they may be shown in a sentence."""
    found: dict[int, Told] = {}
    if reads_requests(crash):
        of_a_crash(lines, crash, words_of_tensors([crash]), found, set())
    told = found.get(link.at) if link.at is not None else None
    return link.message if told is None else told.text.partition(f"{link.name}:")[2].strip()


def words_of_tensors(crashes: Iterable[traceback.Crash]) -> tuple[str, ...]:
    """What code that sees tensors alone said: where another exception quotes it, that is no client's text either."""
    said = (link.message for crash in crashes for link in crash.links if _of_tensors(link))
    return tuple(sorted({words for words in said if _WORD.search(words)}))[:_MOST_PIECES]


def of_a_crash(
    lines: Sequence[LogLine],
    crash: traceback.Crash,
    harmless: Sequence[str],
    found: dict[int, Told],
    opened: set[int],
) -> None:
    """Add the lines of its exceptions as they may be shown, `harmless` whole; the words of `opened` may go on below."""
    # The innermost call's own come last.
    printed = (*tuple(_literals(lines, crash))[-_MOST_PIECES:], *harmless)
    for link in crash.links:
        if link.at is None or not link.message or _of_tensors(link):
            continue
        pieces = (
            *printed,
            *words_of_issue(link.kind, link.message),
            *_of_the_installation(crash, link),
            *_of_the_source(link),
            *_of_the_call(link),
        )
        by_itself = _of_the_interpreter(link)
        if by_itself and link.kind in _OF_CODE:
            continue
        known = known_words(f"{link.name}: {link.message}")
        known = "" if known is None and by_itself else known
        first, *rest = link.message.split("\n")
        head, _, _ = lines[link.at].text.partition(f"{link.name}:")
        taken: list[str] = []
        words = _kept(first, pieces, known, taken)
        if words != first:
            found[link.at] = Told(f"{head}{link.name}: {words}", tuple(taken))
        if known is None:
            opened.add(link.at)
            continue
        for index in _following(lines, link.at, rest):
            taken = []
            text = lines[index].text
            if (words := _kept(text, pieces, known, taken)) != text:
                found[index] = Told(words, tuple(taken))


# What the interpreter says by itself of code; and where it quotes a value or a keyword beside its own words.
_OF_CODE = frozenset(
    {"AttributeError", "NameError", "UnboundLocalError", "IndexError", "ZeroDivisionError", "RecursionError"}
    | {"ImportError", "ModuleNotFoundError", "JSONDecodeError"}
)
_RAISED_BY_HAND = re.compile(r"raise\b")


def _of_the_interpreter(link: traceback.Link) -> bool:
    if link.kind in {"ImportError", "ModuleNotFoundError", "JSONDecodeError"} or link.message.startswith("[Errno "):
        return True
    code = link.frames[-1].code if link.frames else ""
    return link.kind in {*_OF_CODE, "TypeError"} and bool(code) and not _RAISED_BY_HAND.match(code)


def _of_the_source(link: traceback.Link) -> Iterator[str]:
    """What vLLM's own code writes where it raises, as its releases' sources have it: a traceback shows but the first
    line of a sentence that was broken."""
    told = guard(link.frames[-1].file, link.message, None) if link.frames else None
    yield from (piece for piece in (told.pieces if told is not None else ()) if _WORD.search(piece))


def _of_the_call(link: traceback.Link) -> Iterator[str]:
    """The keyword that a call does not take: a program's code, and no client, writes what vLLM's own calls know."""
    told = read("argument-of-no-record", link.message) or read("argument-of-no-class", link.message)
    if told is not None and api.is_argument(told["key"]):
        yield told["key"]


def _of_the_installation(crash: traceback.Crash, link: traceback.Link) -> Iterator[str]:
    """A file of an installed package that the system did not open: no client's text, where the calls of the same
    traceback stand in the same folder and the name has the letters of a path alone."""
    if not link.message.startswith("[Errno "):
        return
    folders = {folder for file in crash.files if (folder := traceback.packages_folder(file))}
    for named in _FILE.finditer(link.message):
        if named["path"].startswith(tuple(folders)) and ".." not in named["path"]:
            yield named["path"]


def reads_requests(crash: traceback.Crash) -> bool:
    """Did it fail in code that has a request in its hands? The main task that starts the server has none: the same
    code makes the handlers there, and what fails reads the launch and the model's files."""
    if any(says(file, "call-that-starts-the-server") for file in crash.files):
        return False
    return any(says(file, "call-of-http", "call-of-a-request", "call-of-clients-text") for file in crash.files)


def _of_tensors(link: traceback.Link) -> bool:
    return bool(link.frames) and says(link.frames[-1].file, "call-of-tensors")


def _following(lines: Sequence[LogLine], at: int, texts: Sequence[str]) -> Iterator[int]:
    """Where the further lines of a message stand; those of other processes may stand between."""
    index = at
    for text in texts:
        index = next((i for i in range(index + 1, min(index + 40, len(lines))) if lines[i].text == text), -1)
        if index < 0:
            return
        yield index


def _literals(lines: Sequence[LogLine], crash: traceback.Crash) -> Iterator[str]:
    """What the code of a traceback prints by itself: the texts in its lines, without what they leave open."""
    raised = {link.at for link in crash.links}
    code = False
    for index in range(crash.first, crash.last + 1):
        text = lines[index].text
        if index in raised or traceback.begins(text):
            code = index not in raised
        elif code and ('"' in text or "'" in text):
            for printed in _TEXT.finditer(text):
                yield from (piece for piece in _HOLE.split(printed["text"]) if piece and _WORD.search(piece))


@cache
def _sentences() -> tuple[tuple[str, Message], ...]:
    return tuple((m.anchor, m) for m in messages() if _speaks_of_faults(m))


def _speaks_of_faults(message: Message) -> bool:
    asked = message.id.startswith(("context-limit", "request-asked", "grammar-lacks"))
    return asked or (message.scope == "log" and message.kind in {"cause", "consequence", "symptom"})


def known_words(message: str) -> str | None:
    """What the catalogue looks for in a sentence that it knows; None of a sentence of unknown kind."""
    here = [m for anchor, m in _sentences() if anchor in message]
    told = [m.anchor for m in here if any(read(m, line) is not None for line in message.split("\n"))]
    return "\n".join(told) if told else None


def _kept(text: str, pieces: Sequence[str], known: str | None, taken: list[str]) -> str:
    """A text without what a client may have written; that is added to `taken`."""
    if known is not None:
        text = _without_fields(text, taken) if "validation error" in known else text
        return _without_quoted(text, pieces, known, taken)
    own = "|".join(map(re.escape, sorted(pieces, key=len, reverse=True)))
    kept: list[str] = []
    at = 0
    for found in re.finditer(own, text) if own else ():
        kept += (hidden(text[at : found.start()], taken), found[0])
        at = found.end()
    return "".join((*kept, hidden(text[at:], taken)))


# How pydantic writes an error: the field by the keys that lead to it, and below it what is wrong with it.
_FIELD = Pattern(r"(?P<first>[a-z_]{1,60})(?P<keys>[^\s:,].{0,2000}|)")
_ERRORS = Pattern(r"(?:[\w.]{1,100}: )?\d{1,6} validation errors? for \w{1,200}")
_OF_A_CHECK = Pattern(
    r"(?P<head>[ ]{1,4}(?:Value|Assertion) error, )(?P<said>.{1,8000}?)(?P<tail> \[type=\w+.{0,8000}|)"
)


def _without_fields(text: str, taken: list[str]) -> str:
    """A line of pydantic's without keys of a client's and what a check says of a value in its own words."""
    if (check := _OF_A_CHECK.fullmatch(text)) is not None:
        return f"{check['head']}{hidden(check['said'], taken)}{check['tail']}"
    if (begun := _ERRORS.match(text)) is not None:  # a reader may have joined a field with the line above it
        return begun[0] + hidden(text[begun.end() :], taken)
    if text[:1].isspace() or not text:
        return text
    first = _FIELD.fullmatch(text)
    return f"{first['first']}{hidden(first['keys'], taken)}" if first is not None else hidden(text, taken)


def hidden(text: str, taken: list[str]) -> str:
    """What stands for a text of a client's; signs and a count alone stay."""
    if _NOTHING.fullmatch(text) or text == HIDDEN:
        return text
    bare = text.strip()
    taken.append(bare)
    return text.replace(bare, HIDDEN, 1)


def _without_quoted(text: str, pieces: Sequence[str], known: str, taken: list[str]) -> str:
    kept: list[str] = []
    at = 0
    while (mark := _QUOTED.search(text, at)) is not None:
        inner = scan.quoted(text, mark.start()) if mark[0] != "`" else None
        if inner is None:
            kept.append(text[at : mark.end()])
            at = mark.end()
            continue
        begin, end, after = inner
        value = text[begin:end]
        own = value in known or any(value in piece for piece in pieces)
        kept += (text[at:begin], value if own else hidden(value, taken), text[end:after])
        at = after
    return "".join((*kept, text[at:]))

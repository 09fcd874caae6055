"""What vLLM, torch, NCCL, Ray, the driver, systemd and the kernel say, as data: catalogue/*.json, one family a file.

A row of scope `log` is looked for in every line of a run: found by its short `anchor` (case-sensitive) and read by its
`regex`, whose named groups become fields. A row of scope `text` or `file` is asked by its id of a text that the reader
already has: a line of the kernel or of systemd, a part of a message; the file of a call. Rows of scope `exception` say
of an exception that it follows from another fault. Lines come without their prefixes. `versions` of each sample says
who writes that wording.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from vllm_doctor.knowledge.pattern import compiled
from vllm_doctor.log.spoken import ending_by_script, spoken_near
from vllm_doctor.records.log import LogLine

FOLDER = Path(__file__).with_name("catalogue")
_LIMIT = 400
_DIGITS = 24
# What people write, in any script.
_BY_PEOPLE = "told"

MessageKind = Literal["cause", "consequence", "symptom", "benign"]
Scope = Literal["log", "text", "file", "exception"]


class WordingSample(msgspec.Struct, frozen=True):
    """A line in the wording of these vLLM versions (or of another program), with figures of our own."""

    versions: str
    line: str
    fields: dict[str, str] = {}


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that is said, in one or several near wordings.

    `kind`: cause (a fault says so itself), consequence (of a fault before it), symptom (something is wrong; why is not
    said), benign (of a run that is well, or of none). `phase`: the start-up phase that it shows to be reached; `stops`:
    it begins an orderly end; `defers`: it says that a call failed and leaves the reason to a line before it; `heads`:
    to the lines below it. `process` is who was seen to write it, empty where nobody signed it. `fields` has the unit of
    each figure, or `number` or `text`. `place`: where in the text the regex must match. `near`: lists of
    spoken.json whose words stand near each other, another way to say it, unless a word of the list `before` is
    right before them, one of `behind` right behind, or one of `among` between them. `own_log`: the command that
    prints the log of the process whose end a keeper (systemd, the kubelet) tells of.
    """

    id: str
    kind: MessageKind
    samples: tuple[WordingSample, ...]
    anchor: str = ""
    regex: str = ""
    near: tuple[tuple[str, ...], ...] = ()
    before: str = ""
    behind: str = ""
    among: str = ""
    scope: Scope = "log"
    place: Literal["", "start", "whole"] = ""
    phase: str = ""
    stops: bool = False
    defers: bool = False
    heads: bool = False
    process: str = ""
    fields: dict[str, str] = {}
    near_misses: tuple[str, ...] = ()
    own_log: str = ""
    source: str = ""


class Hit(msgspec.Struct, frozen=True):
    """A message at a line; `index` counts in the lines that were searched."""

    id: str
    index: int
    fields: dict[str, str]


@cache
def messages() -> tuple[Message, ...]:
    """All messages, family by family."""
    found: list[Message] = []
    for path in sorted(FOLDER.glob("*.json")):
        found.extend(of_family(path.stem))
    return tuple(found)


def of_family(name: str) -> tuple[Message, ...]:
    """The messages of one file of the catalogue."""
    found = msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=tuple[Message, ...])
    if name != _BY_PEOPLE:
        return found
    return tuple(msgspec.structs.replace(row, regex=ending_by_script(row.regex)) for row in found)


@cache
def catalogue() -> Mapping[str, Message]:
    """Each message by its id."""
    return {m.id: m for m in messages()}


@cache
def _scanned() -> tuple[tuple[str, Message], ...]:
    """By their anchors: most messages stand in no log, and each of them is looked for in every run."""
    return tuple((m.anchor, m) for m in messages() if m.scope == "log")


@cache
def kinds() -> dict[str, MessageKind]:
    """The kind of each message id."""
    return {m.id: m.kind for m in messages()}


@cache
def milestones() -> dict[str, str]:
    """The start-up phase that each milestone shows to be reached."""
    return {m.id: m.phase for m in messages() if m.phase}


@cache
def anchors(*ids: str) -> tuple[str, ...]:
    """The anchors of these messages: what a reader of many lines looks for before anything else."""
    return tuple(catalogue()[i].anchor for i in ids)


@cache
def of_exceptions(kind: MessageKind) -> tuple[str, ...]:
    """The anchors of the messages of this kind that an exception may have."""
    return tuple(m.anchor for m in messages() if m.scope == "exception" and m.kind == kind and m.anchor)


@cache
def deferring() -> tuple[str, ...]:
    """The messages that leave the reason to a line before them."""
    return tuple(m.id for m in messages() if m.defers)


@cache
def headings() -> frozenset[str]:
    """Messages below which the reason stands."""
    return frozenset(m.id for m in messages() if m.heads)


@cache
def said_as_warning() -> frozenset[str]:
    """The messages that somebody was seen to write as a warning."""
    return frozenset(m.id for m in messages() if any(says(sample.line, "signed-as-warning") for sample in m.samples))


@cache
def consequences() -> tuple[str, ...]:
    """The messages that tell of an end; none of them is of a run that begins."""
    return tuple(m.id for m in messages() if m.kind == "consequence" and m.scope == "log")


@cache
def stops() -> frozenset[str]:
    """The messages with which an orderly end begins."""
    return frozenset(m.id for m in messages() if m.stops)


def pattern(message: str) -> re.Pattern[str]:
    """The regex of a message, compiled when it is first asked for."""
    return compiled(catalogue()[message].regex)


def places(message: str, text: str) -> list[tuple[int, int]]:
    """Where a message stands in a text, by its regex, by its words, or by its anchor where it has neither."""
    row = catalogue()[message]
    by = row.regex or ("" if row.near else re.escape(row.anchor))
    by_regex = (found.span() for found in compiled(by).finditer(text)) if by else ()
    return sorted({*by_regex, *_spoken(row, text)})


def _spoken(row: Message, text: str) -> list[tuple[int, int]]:
    return spoken_near(row.near, text, before=row.before, behind=row.behind, among=row.among)


def found(message: Message, text: str) -> re.Match[str] | None:
    """Where the regex of a message matches, at the place that the message says."""
    pattern = compiled(message.regex)
    match message.place:
        case "start":
            return pattern.match(text)
        case "whole":
            return pattern.fullmatch(text)
        case "":
            return pattern.search(text)


def read(message: Message | str, text: str) -> dict[str, str] | None:
    """The fields of a message in a text, or None if the text is not that message."""
    message = catalogue()[message] if isinstance(message, str) else message
    if message.anchor and message.anchor not in text:
        return None
    if message.near and _spoken(message, text):
        return {}
    if not message.regex:
        return None if message.near else {}
    match = found(message, text)
    return None if match is None else _fields(match)


def says(text: str, *ids: str) -> bool:
    """Is the text one of these messages?"""
    return any(read(i, text) is not None for i in ids)


def first(texts: Iterable[str], *ids: str) -> dict[str, str] | None:
    """The fields of the first text that is one of these messages."""
    return next((fields for text in texts for i in ids if (fields := read(i, text)) is not None), None)


def each(message: str, text: str) -> Iterator[dict[str, str]]:
    """The fields of every place of a text at which a message stands."""
    for match in compiled(catalogue()[message].regex).finditer(text):
        if (fields := _fields(match)) is not None:
            yield fields


def without(message: str, text: str) -> str:
    """The text without any place at which a message stands."""
    return compiled(catalogue()[message].regex).sub("", text)


def _fields(match: re.Match[str]) -> dict[str, str] | None:
    """What a match has read, or None where a number in it is absurd."""
    fields = {k: v for k, v in match.groupdict().items() if v is not None}
    return None if any(_absurd(v) for v in fields.values()) else fields


def _absurd(value: str) -> bool:
    """A number that no program writes: the line is not the message that it looks like."""
    return len(value) > _DIGITS and value.replace(".", "", 1).replace(",", "").lstrip("-").isdecimal()


def scan(lines: Sequence[LogLine], wanted: Iterable[Message] | None = None) -> tuple[Hit, ...]:
    """Every message of scope `log` in these lines, or those that are wanted (each with an anchor), in their order."""
    texts = [line.text for line in lines]
    joined = "\n".join(texts)
    starts: list[int] = []
    at = 0
    for text in texts:
        starts.append(at)
        at += len(text) + 1
    hits: list[Hit] = []
    for anchor, message in _scanned() if wanted is None else ((m.anchor, m) for m in wanted):
        place = joined.find(anchor)
        if place < 0:
            continue
        if not anchor:
            raise ValueError(f"message {message.id} has no anchor: it is read in one text alone")
        count = 0
        while place >= 0 and count < _LIMIT:
            index = bisect_right(starts, place) - 1
            fields = read(message, texts[index])
            if fields is not None:
                hits.append(Hit(message.id, index, fields))
                count += 1
            end = starts[index] + len(texts[index])
            place = joined.find(anchor, end)
    hits.sort(key=lambda h: h.index)
    return tuple(hits)

"""The messages that vLLM, torch, NCCL, NVIDIA and the kernel write, as data: catalogue/*.json, one family a file.

A message is found by its short `anchor` (case-sensitive) and read by its `regex` (named groups become fields). Both
are tried on one line whose prefixes were stripped. `versions` of each sample says who writes that wording.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec

from vllm_doctor.records.log import LogLine

_LIMIT = 400
_DIGITS = 24


class Sample(msgspec.Struct, frozen=True):
    """A line in the wording of these vLLM versions (or of another program), with figures of our own."""

    versions: str
    line: str
    fields: dict[str, str] = {}


class Message(msgspec.Struct, frozen=True):
    """One thing that is said, in one or several near wordings.

    `role`: cause (a fault says so itself), death (an effect of a fault before it), mile (a step of the start is
    reached), number (worth harvesting), stop (an orderly end), note (anything else).
    """

    id: str
    anchor: str
    role: str
    samples: tuple[Sample, ...]
    regex: str = ""
    stage: str = ""
    near_misses: tuple[str, ...] = ()
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
    for path in sorted(Path(__file__).with_name("catalogue").glob("*.json")):
        found.extend(msgspec.json.decode(path.read_bytes(), type=list[Message]))
    return tuple(found)


@cache
def _compiled(regex: str) -> re.Pattern[str]:
    return re.compile(regex)


@cache
def roles() -> dict[str, str]:
    """The role of each message id."""
    return {m.id: m.role for m in messages()}


@cache
def mile_stages() -> dict[str, str]:
    """The stage that each milestone reaches."""
    return {m.id: m.stage for m in messages() if m.stage}


def read(message: Message, text: str) -> dict[str, str] | None:
    """The fields of a message in a text, or None if the text is not that message."""
    if message.anchor not in text:
        return None
    if not message.regex:
        return {}
    found = _compiled(message.regex).search(text)
    if found is None:
        return None
    fields = {k: v for k, v in found.groupdict().items() if v is not None}
    return None if any(_absurd(v) for v in fields.values()) else fields


def _absurd(value: str) -> bool:
    """A number that no program writes: the line is not the message that it looks like."""
    return len(value) > _DIGITS and value.replace(".", "", 1).replace(",", "").lstrip("-").isdecimal()


def scan(lines: Sequence[LogLine]) -> tuple[Hit, ...]:
    """Every message of these lines, in their order."""
    texts = [line.text for line in lines]
    joined = "\n".join(texts)
    starts: list[int] = []
    at = 0
    for text in texts:
        starts.append(at)
        at += len(text) + 1
    hits: list[Hit] = []
    for message in messages():
        place = joined.find(message.anchor)
        count = 0
        while place >= 0 and count < _LIMIT:
            index = bisect_right(starts, place) - 1
            fields = read(message, texts[index])
            if fields is not None:
                hits.append(Hit(message.id, index, fields))
                count += 1
            end = starts[index] + len(texts[index])
            place = joined.find(message.anchor, end)
    hits.sort(key=lambda h: h.index)
    return tuple(hits)


def ids_from_json() -> list[str]:
    """The ids as they stand in the files (for the test that none stands twice)."""
    folder = Path(__file__).with_name("catalogue")
    return [row["id"] for path in sorted(folder.glob("*.json")) for row in json.loads(path.read_text("utf-8"))]

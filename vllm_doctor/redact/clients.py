"""What a client may have written into the log of a server, by where it stands: in the words of an exception of a
request (raised.py), in what the loggers of requests say, and in lines that go on with these or with an open quotation.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

import msgspec

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.log import traceback
from vllm_doctor.log.match import says
from vllm_doctor.records.log import Log, LogLine
from vllm_doctor.redact import named
from vllm_doctor.redact.raised import Told, hidden, known_words, of_a_crash, reads_requests, words_of_tensors
from vllm_doctor.redact.shapes import HIDDEN
from vllm_doctor.redact.users import ASKED
from vllm_doctor.redact.values import opaque

# How far words of one record are followed: a prompt may be long, and a log with a lost end is no prompt.
_MOST_LINES = 4000
# A shorter text is found in sentences that have nothing of a client's; of a longer one this much tells.
_SHORTEST, _BEGINNING = 6, 24
# What closes a quotation: its mark, and then no word.
_CLOSES = "\"'"


def of_clients(lines: Sequence[LogLine]) -> Mapping[int, Told]:
    """The lines, by index, that hold what a client may have written."""
    found: dict[int, Told] = {}
    opened: set[int] = set()
    inside: set[int] = set()
    if any('File "' in line.text for line in lines):
        crashes = traceback.tracebacks(lines)
        harmless = words_of_tensors(crashes)
        for crash in crashes:
            inside.update(range(crash.first, crash.last + 1))
            if reads_requests(crash):
                of_a_crash(lines, crash, harmless, found, opened)
    _of_request_loggers(lines, found, opened, inside)
    _of_records(lines, found, opened)
    return found


def without_clients(log: Log) -> tuple[Log, int]:
    """The log as it may be handed on, and how many of its lines lost something."""
    found = of_clients(log.last.lines)
    others = [without_clients(other) for other in log.others]
    if not found and not any(count for _, count in others):
        return log, 0
    lines = tuple(line_as_shown(line, found[at]) if at in found else line for at, line in enumerate(log.last.lines))
    taken = Removed(what for told in found.values() for what in told.taken)
    several = Counter(line.number for line in lines)
    lines = tuple(
        msgspec.structs.replace(line, excerpt=taken.out_of(line.excerpt)) if several[line.number] > 1 else line
        for line in lines
    )
    kept = msgspec.structs.replace(
        log, last=msgspec.structs.replace(log.last, lines=lines), others=tuple(other for other, _ in others)
    )
    return kept, len(found) + sum(count for _, count in others)


def line_as_shown(line: LogLine, told: Told) -> LogLine:
    """The line as it may be shown."""
    whole = line.excerpt
    if whole.endswith(line.text):
        whole = whole[: len(whole) - len(line.text)] + told.text
    elif whole:  # of an entry that held several lines
        whole = Removed(told.taken).out_of(whole)
        whole = HIDDEN if any(what in whole for what in told.taken) else whole
    return msgspec.structs.replace(line, text=told.text, excerpt=whole)


class Removed:
    """What was taken from lines, to be taken from the sentences that speak of them: also where these hold its beginning
    alone, or write it as JSON does. A single word stays: a sentence may have it by itself."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Keep the forms of those that tell."""
        told = sorted((t for t in {*texts} if len(t) >= _SHORTEST and (" " in t or opaque(t))), key=len, reverse=True)
        forms = (form for t in told for form in (t, json.dumps(t)[1:-1], json.dumps(t, ensure_ascii=False)[1:-1]))
        self._forms = tuple((form[:_BEGINNING], form) for form in dict.fromkeys(forms))

    def out_of(self, text: str) -> str:
        """The text without them."""
        for begun, form in self._forms:
            at = text.find(begun)
            while at >= 0:
                pairs = enumerate(zip(text[at : at + len(form)], form, strict=False))
                same = next((n for n, (a, b) in pairs if a != b), len(form))
                text = text[:at] + HIDDEN + text[at + same :]
                at = text.find(begun, at + len(HIDDEN))
        return text


def _of_request_loggers(lines: Sequence[LogLine], found: dict[int, Told], opened: set[int], inside: set[int]) -> None:
    """What those loggers write that speak of requests, once there are any: the sentence up to its colon."""
    serving = False
    for index, line in enumerate(lines):
        serving = serving or says(line.text, "app-started", "request-went-on")
        if not serving or line.module is None or index in found or index in inside or ": " not in line.text:
            continue
        if line.level == "INFO" or not says(line.module, "module-of-requests") or known_words(line.text) is not None:
            continue
        head, _, rest = line.text.partition(": ")
        found[index] = Told(f"{head}: {HIDDEN}", (rest,))
        opened.add(index)


def _of_records(lines: Sequence[LogLine], found: dict[int, Told], opened: set[int]) -> None:
    """Lines that go on with what a record quotes, or with an exception's words."""
    index = 0
    while index < len(lines) - 1:
        begun = opened and index in opened
        quote = "" if begun or not _goes_on(lines[index], lines[index + 1]) else _open(lines[index].text)
        if not (begun or quote):
            index += 1
            continue
        record, last = lines[index], min(len(lines), index + 1 + _MOST_LINES)
        for at in takewhile(lambda at: _goes_on(record, lines[at]), range(index + 1, last)):  # noqa: B023
            index = at
            if at in found or known_words(lines[at].text) is not None:
                continue
            text = lines[at].text
            end = _closed(text, quote) if quote in _CLOSES and quote else len(text)
            taken: list[str] = []
            head = hidden(text[:end], taken)
            found[at] = Told(head + text[end:], tuple(taken))
            if end < len(text):
                break
        index += 1


def _open(text: str) -> str:
    """The quotation or bracket of a user's text that a line leaves open; nothing where it has none."""
    for begin, end, why in named.behind_names(text, users=True):
        if why != ASKED or end != len(text):
            continue
        before = text[begin - 1 : begin]
        if before in _CLOSES and before:
            return before
        if text[begin : begin + 1] in {"[", "{", "("} and text.rstrip()[-1:] not in {"]", "}", ")"}:
            return text[begin]
    return text.rstrip()[-1:] if _OPENS.search(text) else ""


# `request body: {` and the rest below.
_OPENS = Pattern(
    r"(?i)(?<![\w-])(?:body|prompts?|messages|inputs?|outputs?|contents?|request|response)[\"']?"
    r"[ ]{0,2}[:=][ ]{0,2}[\[{(]{1,3}\s*\Z"
)


def _closed(text: str, quote: str) -> int:
    """Where the quotation ends in a line; its end where it does not."""
    at = text.find(quote)
    while at >= 0:
        if not (text[at + 1 : at + 2].isalnum() or text[at - 1 : at] == "\\"):
            return at
        at = text.find(quote, at + 1)
    return len(text)


def _begins_anew(text: str) -> bool:
    return traceback.begins(text) or says(text, "information-line", "python-warning")


def _goes_on(record: LogLine, line: LogLine) -> bool:
    """Is it a further line of that record: without a head of its own, or with the very same one?"""
    if line.module is None and line.level is None:
        bare = line.process is None or (line.process, line.pid) == (record.process, record.pid)
        return bare and not _begins_anew(line.text)
    return (line.module, line.level, line.at, line.process, line.pid) == (
        record.module,
        record.level,
        record.at,
        record.process,
        record.pid,
    ) and record.module not in {None, "uvicorn"}

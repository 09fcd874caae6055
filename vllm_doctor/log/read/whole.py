"""A log that came as one thing: an answer of a log service or a notebook in JSON, a text whose line ends were escaped
or are NUL."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise

from vllm_doctor.log.match import says
from vllm_doctor.log.read.entry import ENTRIES
from vllm_doctor.log.read.json_rows import lines_of
from vllm_doctor.log.read.viewer_table import rows_said

# So much of a text must be white space or brackets before the first entry, for a document of several lines.
_DOCUMENT = re.compile(r"\s*+[\[{]\s*+[\"\[{]")
# A line end as JSON, Python and shells write it, and behind it the beginning of a line of vLLM's or of a traceback's.
_ESCAPED = re.compile(
    r"\\n(?:\([A-Za-z_0-9]{1,40} pid=\d{1,9}\) |"
    r"(?:INFO|WARNING|ERROR|DEBUG|CRITICAL)[ :]|Traceback \(most recent| {2}File \\?\")"
)
# A terminal's line end without its second half.
_RETURNED = re.compile(r"\r(?:\([A-Za-z_0-9]{1,40} pid=\d{1,9}\) )?(?:INFO|WARNING|ERROR|DEBUG|CRITICAL)[ :]")
_FEW = 3
# The head that vLLM sets before each line of what it logs.
_HEAD = re.compile(
    r"(?:\([A-Za-z_]\w{0,40}(?: rank=\d{1,6})? pid=\d{1,9}(?:, ip=[\d.]{1,15})?\) )?"
    r"(?:ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./]{1,80}:\d{1,6}\] "
)
# What a page sets around a pasted log.
_FENCE = re.compile(r"^[ \t]{0,3}```[\w.+-]{0,20}[ \t]*\r?$\n?", re.MULTILINE)
# A log that somebody quotes, as an e-mail and a page of Markdown write it: each line behind a sign of its own.
_QUOTED = re.compile(r"^(?:>(?: .*)?\n){2,}>(?: .*)?$", re.MULTILINE)
_SIGN = re.compile(r"^> ?", re.MULTILINE)
# An exception that a sentence of a report quotes. A text with lines of a log is left alone: vLLM's warnings quote some.
_IN_SENTENCE = re.compile(r"`((?:[a-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception): [^`\n]{1,600})`")
# The same in other marks, or in none: then its whole name stands there, and its package is one beside vLLM.
_NAMED_IN_SENTENCE = re.compile(
    r"(?<=[ \t\"\u201c\u201e\u00ab(])(?P<package>[a-z_]\w{0,60})\.(?:[a-z_]\w{0,60}\.){0,7}[A-Z]\w{0,60}: [^\n]{1,600}"
)
_CLOSES = re.compile(r"[\"\u201c\u201d\u00bb)](?=[\s.,;:!?)]|$)")
_OF_A_LOG = ("Traceback (most recent", 'File "', "INFO", "WARNING", "ERROR", "CRITICAL")
_STAMPS = ("@timestamp", *dict.fromkeys(stamp for _, stamp in ENTRIES))
_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
# The units of a second by the digits of a time in them: seconds, milliseconds, microseconds, nanoseconds.
_UNITS = {10: 1, 13: 1000, 16: 1_000_000, 19: 1_000_000_000}
# What rsyslog writes for a tab, a carriage return and an escape: their octal numbers.
_OCTAL = re.compile(r"#(011|015|033)")
# Deeper than any answer of a log service.
_DEEP = 40


def split(text: str) -> str:
    """The text with a line for each entry; the same text where it is a log of lines already."""
    if "\0" in text:
        text = text.replace("\0", "\n")
    if "```" in text:
        text = _FENCE.sub("", text)
    if not any(word in text for word in _OF_A_LOG):
        text = _with_exceptions_apart(text)
    if "\n>" in text:
        text = _QUOTED.sub(lambda found: _SIGN.sub("", found[0]), text)
    if "#033[" in text:
        text = _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)
    text = rows_said(text)
    if _DOCUMENT.match(text) is not None:
        found = list(_entries(text))
        if len(found) > 1 and sum(entry.count("\n") + 1 for entry in found) >= _FEW:
            return "\n".join(found)
        if (inner := _lines_inside(text)) is not None:
            return inner
    if "\n" not in text and len(_RETURNED.findall(text)) >= _FEW:
        return text.replace("\r", "\n")
    if text.count("\n") < _FEW <= len(_ESCAPED.findall(text)):
        text = text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\'", "'")
        return text.strip("'\"")
    if "ERROR " in text:
        text = "\n".join(_apart(line) if line.count("ERROR ") > 1 else line for line in text.split("\n"))
    return text


def _with_exceptions_apart(text: str) -> str:
    """A person's text, with each exception that a sentence names on a line of its own."""
    if "`" in text:
        text = _IN_SENTENCE.sub("\n\\1\n", text)
    if text.lstrip()[:1] in {"{", "["}:
        return text
    return _NAMED_IN_SENTENCE.sub(_apart_where_known, text)


def _apart_where_known(found: re.Match[str]) -> str:
    from vllm_doctor.knowledge.distributions import distribution

    package = found["package"]
    if distribution(package) is None or says(f"/{package}/_client.py", "call-of-an-api-client"):
        return found[0]  # what a client was answered has a reader of its own
    end = _CLOSES.search(found[0])
    said, rest = (found[0], "") if end is None else (found[0][: end.start()], found[0][end.end() :])
    return f"\n{said}\n{rest}"


def _lines_inside(text: str) -> str | None:
    """The text of many lines that a document of JSON holds, under whatever name; None where it holds none, or is a
    server's answer with an error, which has a reader of its own."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(document, dict) and "error" in document:
        return None
    if entries := lines_of(document):
        return "\n".join(entries)
    waiting = [(document, 0)]
    told: list[str] = []
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, str) and value.count("\n") >= _FEW:
            told.append(value)
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        waiting.extend((one, depth + 1) for one in inner if depth < _DEEP)
    return max(told, key=len) if told else None


def _apart(line: str) -> str:
    """The lines that a page joined: each begins with a head of its own, the first one with what stands before it."""
    if line.lstrip().startswith(("{", '["')):
        return line  # one entry of a logger that writes JSON
    begins = [found.start() for found in _HEAD.finditer(line)][1:]
    return "\n".join(line[start:end].rstrip() for start, end in pairwise((0, *begins, len(line))))


def _entries(text: str) -> Iterator[str]:
    """What the entries of all documents say, the oldest first; nothing where one is no JSON, or each is a line."""
    decoder = json.JSONDecoder()
    at = 0
    told: list[tuple[str, str]] = []
    while at < len(text):
        try:
            document, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        if told and "\n" not in text[at:end].strip() and text.strip().count("\n") >= _FEW - 1:
            return  # a logger's own JSON, line by line, has a reader that also knows its time and number
        told.extend(_said(document))
        at = end
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
    yield from (f"{_clock(stamp)}{line}" for stamp, line in _in_order(told))


def _clock(stamp: str) -> str:
    """When a log service had the entry, as a container's log writes it before a line; empty where it is no time."""
    if _ISO.match(stamp) is not None:
        return f"{stamp[:19]}Z "
    unit = _UNITS.get(len(stamp)) if stamp.isdecimal() else None
    return f"{datetime.fromtimestamp(int(stamp) // unit, UTC):%Y-%m-%dT%H:%M:%S}Z " if unit is not None else ""


def _in_order(told: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Log services answer with the newest first, unless they are asked for the other order."""
    stamps = [stamp for stamp, _ in told]
    if not told or len({len(stamp) for stamp in stamps}) > 1 or not stamps[0]:
        return told
    backward = stamps[0] > stamps[-1]
    return sorted(reversed(told) if backward else told, key=lambda row: row[0])


def _said(document: object) -> Iterator[tuple[str, str]]:
    """Time and text of the entries in a document: an object with a field for its text, or Loki's pair."""
    waiting: list[tuple[object, int]] = [(document, 0)]
    while waiting:
        value, depth = waiting.pop()
        if depth > _DEEP:
            continue
        if isinstance(value, dict) and "cell_type" in value:
            waiting.append((value.get("outputs"), depth + 1))  # what a person typed is no line of a log
        elif isinstance(value, dict) and "output_type" in value:
            yield from (("", line) for line in _printed(value))
        elif isinstance(value, dict):
            text = next((value[key] for key, _ in ENTRIES if isinstance(value.get(key), str)), None)
            if text is not None:
                stamp = next((value[key] for key in _STAMPS if isinstance(value.get(key), str | int)), "")
                yield str(stamp), text
            else:
                waiting.extend((inner, depth + 1) for inner in reversed(value.values()))
        elif isinstance(value, list):
            pair = len(value) in {2, 3} and isinstance(value[0], str) and isinstance(value[1], str)
            if pair and value[0].isdecimal():
                yield value[0], value[1]
            elif len(value) >= _FEW and all(isinstance(line, str) for line in value):
                yield from (("", line) for line in value)
            else:
                waiting.extend((inner, depth + 1) for inner in reversed(value))


def _printed(output: dict[str, object]) -> list[str]:
    """The lines of one output of a notebook's cell: what was printed, or the traceback (nbformat 4)."""
    parts = output.get("traceback") if output.get("output_type") == "error" else output.get("text")
    told = [part for part in parts if isinstance(part, str)] if isinstance(parts, list) else [parts]
    between = "\n" if output.get("output_type") == "error" else ""  # a stream's parts bring their line ends along
    return between.join(part for part in told if isinstance(part, str)).splitlines()

"""What a collector, a launcher or a viewer sets around each line of a log, known by its form alone.

Their forms cannot be listed: anybody writes one. But vLLM's own heads, uvicorn's and Python's are known, and what
stands before them in nearly every line, alike but for its numbers, times and names, is nobody's word. It is taken off
the lines without such a head, too. What `prefix.py` reads stays, as it tells more there.
"""

import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.log.read.prefix import HEADER, OUTER, RANK, SHORT_HEADER, TAG, UVICORN, Head
from vllm_doctor.log.read.printable import printable_text

# Where a line of vLLM, uvicorn or Python begins that stands behind something else.
_OWN = Pattern(
    r"(?:\((?:[A-Za-z][\w.:-]{0,80} )?(?:rank=\d{1,6} )?pid=\d{1,10}(?:, ip=[\w.:]*)?\) ){0,4}"
    r"(?:\[?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\]? {1,4}(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d "
    r"\[?[\w./<>-]{1,120}:\d{1,6}\]"
    r"|INFO: {1,10}(?:Started server process|Waiting for application|Application |Uvicorn running"
    r"|\S{1,80}:\d{1,5} - \")"
    r"|(?:\[rank\d{1,6}\]: ?)?(?:Traceback \(most recent call last\):|  File \\?\"[^\"]{1,400}\", line \d)"
    r"|Loading (?:safetensors|pt) checkpoint shards: |={8,40} Serving Benchmark Result)"
)
# Of a long text so many lines are looked at, evenly.
_LOOKED_AT = 600
_FEW, _MOST_SHAPES = 3, 8
# Of the lines with a head of their own so many must have it; of all lines, where few have such a head.
_NEARLY_ALL, _MOSTLY = 0.9, 0.8
_LONGEST = 400
_WORD = re.compile(r"\d+|[^\W\d_]+|[ \t]+|.", re.DOTALL)
_MIXED = re.compile(r"[\w.@-]{0,80}?\d[\w.@-]{0,160}")
_LEVELS = frozenset({"debug", "debg", "info", "notice", "warn", "warning", "error", "err", "fatal", "critical"})
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:[.,]\d{1,9})?) ?(Z|[+-]\d\d:?\d\d)?")
# What says who wrote a line, of what varies in the shape: Loki's labels, `stern`, swarm's tasks (SERVICE.N.ID@NODE).
_POD = re.compile(r"\bpod(?:_name)?[\"']?\s?[=:]>?\s?[\"']?([\w.-]{1,120})")
_TWO_NAMES = re.compile(r"([a-z0-9][\w.-]{2,120}) ([a-z0-9][\w.-]{1,60}) ?$")
_OF_A_SERVICE = re.compile(r"(?P<service>[\w.-]{1,100}?)\.(?P<slot>\d{1,4})\.\w{1,40}(?:@[\w.-]{1,100})? +\| ?$")
# journalctl -o export, of which each line is a field.
_EXPORT = ("__CURSOR=", "__REALTIME_TIMESTAMP=")
# What a script puts before what each of its processes writes.
_BRACKETED = re.compile(r"\[([A-Za-z][\w.-]{1,60})\] $")
_MARKS = ('"', "'")
_ROW = re.compile(r"\{\s*\"")  # json_rows.py and prefix.py read it
_CLOSED = re.compile(r"[\"'][\])},; ]*$")


class _Shape(msgspec.Struct, frozen=True):
    """An envelope: what it begins with, and the mark in which it sets the line, if it does."""

    begins: re.Pattern[str]
    mark: str = ""


def without_envelope(raw: Sequence[str]) -> tuple[list[str], dict[int, Head]]:
    """The lines, as many, without their envelope, and what it told of each; the same lines where there is none."""
    shapes = _shapes(raw) if not any(line.startswith(_EXPORT) for line in raw[:_FEW]) else []
    if not shapes:
        return [*raw], {}
    found = [*raw]
    heads: dict[int, Head] = {}
    for index, line in enumerate(raw):
        text = printable_text(line) if not line.isprintable() else line
        known = known_part(text)
        for shape in shapes:
            envelope = shape.begins.match(text, known)
            if envelope is not None:
                found[index] = text[:known] + _inside(text[envelope.end() :], shape.mark)
                heads[index] = _head(envelope[0])
                break
    return found, _of_several(heads)


def begins_own(text: str) -> bool:
    """Does a line of vLLM, uvicorn or Python begin in the text, behind nothing but what `prefix.py` reads?"""
    return _OWN.match(text, known_part(text)) is not None


def _shapes(raw: Sequence[str]) -> list[_Shape]:
    """The forms of envelope that nearly every line with a head of vLLM's own has before it."""
    step = max(1, len(raw) // _LOOKED_AT)
    told = [printable_text(line) for line in raw[::step] if line.strip() and len(line) < 4 * _LONGEST]
    counts: Counter[str] = Counter()
    seen: dict[str, str] = {}
    bare = 0
    for line in told:
        known = known_part(line)
        own = _OWN.search(line, known)
        if own is None or own.start() - known > _LONGEST or _ROW.match(line, known):
            continue
        uvicorn = UVICORN.match(line, known)
        if own.start() == known or any(one.match(line, known) for one in (TAG, RANK, HEADER, SHORT_HEADER)):
            bare += 1  # whatever it quotes further on
        elif uvicorn is None or uvicorn.end() == own.start():  # another logger's line behind it: a wrapper's level
            envelope = line[known : own.start()]
            form = _form(envelope)
            counts[form] += 1
            seen[form] = envelope
    if bare > (1 - _NEARLY_ALL) * (bare + counts.total()):
        return []
    # What has no letter and no figure is drawn, and belongs to what is drawn; blanks alone are set before all lines.
    kept = [
        form
        for form, _ in counts.most_common(_MOST_SHAPES)
        if not seen[form].strip() or any(map(str.isalnum, seen[form])) or seen[form][-1] in _MARKS
    ]
    shapes = [_Shape(re.compile(form), seen[form][-1] if seen[form][-1] in _MARKS else "") for form in kept]
    if sum(counts[form] for form in kept) < _NEARLY_ALL * counts.total():
        return []
    within = sum(any(shape.begins.match(line, known_part(line)) for shape in shapes) for line in told)
    blank = any(not seen[form].strip() for form in kept)
    enough = within >= _FEW and (within >= _MOSTLY * len(told) or (counts.total() >= _FEW and not blank))
    return shapes if enough else []


def known_part(line: str) -> int:
    """How much of the line's beginning `prefix.py` reads by itself."""
    at = 0
    for _ in range(3):
        outer = OUTER.match(line, at)
        if outer is None:
            break
        at = outer.end()
    return at


def _form(envelope: str) -> str:
    """The envelope as an expression: numbers, names with a number in them, and levels may be others; the blanks at its
    end are as they are, since what follows may be set in, or cut off, where nothing follows."""
    bare = envelope.rstrip(" \t")
    parts: list[str] = []
    at = 0
    while at < len(bare):
        mixed = _MIXED.match(bare, at)
        if mixed is not None and not mixed[0].isdigit():
            parts.append(r"[\w.@-]{0,80}?\d[\w.@-]{0,160}")
            at = mixed.end()
            continue
        word = _WORD.match(bare, at)
        if word is None:
            break
        text, at = word[0], word.end()
        if text.isdigit():
            parts.append(r"\d{1,24}")
        elif text.isspace():
            parts.append(r"[ \t]{1,60}")
        elif text.lower() in _LEVELS:
            parts.append(r"[A-Za-z]{1,12}")
        elif not text.isascii():
            parts.append(r"[^\W\d_]{1,40}")
        else:
            parts.append(re.escape(text))
    if bare[:1] in {" ", "\t"}:
        parts[0] = r"[ \t]{0,60}"  # numbers are set to the right
    end = re.escape(envelope[len(bare) :])
    return "".join((*parts, f"(?:{end}|$)" if end and bare else end))


def _inside(text: str, mark: str) -> str:
    """What stands between the marks that an envelope ends and is closed with, its own marks as they were written."""
    if not mark:
        return text
    closed = _CLOSED.search(text)
    text = text[: closed.start()] if closed is not None else text
    return text.replace(f"\\{mark}", mark).replace("\\t", "\t").replace("\\n", "\n")


def time_in(text: str) -> str | None:
    """A date with its time, as ISO 8601 writes both; None where the text has none."""
    told = _TIME.search(text)
    return f"{told[1]}T{told[2].replace(',', '.')}{told[3] or 'Z'}" if told is not None else None


def _head(envelope: str) -> Head:
    at = time_in(envelope)
    rest = _TIME.sub("", envelope)
    if (pod := _POD.search(rest)) is not None:
        return Head(at, f"pod/{pod[1]}")
    if (two := _TWO_NAMES.match(rest)) is not None:
        return Head(at, f"pod/{two[1]}/{two[2]}")
    if (name := _BRACKETED.match(envelope)) is not None:
        return Head(at, name[1])
    service = _OF_A_SERVICE.search(rest)
    return Head(at, f"{service['service']}-{service['slot']}" if service is not None else None)


def _of_several(heads: dict[int, Head]) -> dict[int, Head]:
    """Who wrote a line is worth telling where several did; a name that nearly each line has for itself is none."""
    names = {head.stream for head in heads.values() if head.stream is not None}
    if 1 < len(names) <= max(2, len(heads) // 10):
        return heads
    return {index: Head(head.at) for index, head in heads.items()}

"""Puts together again what a terminal, a page or an e-mail broke over several lines.

A log of vLLM is hardly ever narrow: the line with the engine's settings alone has hundreds of characters. Where no line
is longer than a page is wide, a line without a beginning of its own goes on with the one before it, if its first word
would not have fitted there any more (broken between words), or if the one before it is full (broken anywhere).
"""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from statistics import mode

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.log.match import messages, read
from vllm_doctor.log.read.frame import unframed

# What a page makes of the quotation marks and blanks that a program wrote.
_TYPESET = {"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'", "\u00a0": " "}
# What a page of HTML writes for the signs that are its own.
_ENTITIES = {"&#x27;": "'", "&#39;": "'", "&quot;": '"', "&#34;": '"', "&lt;": "<", "&gt;": ">", "&amp;": "&"}
_CLASS_BEFORE = Pattern(r"(?<=(?:Error|ption))\uff1a ?")
_NARROWEST = 60
# A page or an e-mail, broken between words; a terminal, broken at its last column.
_PAGE = 132
_TERMINAL = 320
_WORD = 4096
# A terminal breaks every line at its last column (a few less, where blanks stood there); so much of them must be.
_ALL = 0.8
_BLANKS = 3
_FEWEST = 2
# Where a page may have done it, two lines may be full by chance.
_FEWEST_OF_A_PAGE = 3
_MOST = 200
# Lines of a text that a person quotes, and parts of one message that a window broke.
_SHORT, _PARTS = 200, 4
# What begins a line: prefixes, levels, tracebacks, exceptions, NCCL's own words, prompts, tables, systemd's, JSON's,
# a shell's word for a child that a signal ended, what native code writes as it ends its own process.
_BEGINS = Pattern(
    r"\s{0,20}(?:\x1b?\[[0-9;]{0,200}m){0,50}(?:"
    r"\(\w[\w.:-]{0,200}(?: rank=\d{1,24})? pid=\d{1,24}|\[rank\d{1,24}\]|\[?[DIWEC]\d{3,4} \d|(?:DEBUG|INFO"
    r"|WARNING|ERROR|CRITICAL|FATAL)\b"
    r"|Traceback \(most recent|File \"|During handling of|The above exception|\^|~|Process \w{1,200}"
    r"|\[?\d{4}-\d\d-\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:|\[ {0,20}\d{1,24}\.\d{1,24}\]|[\w.-]{1,60} {1,20}\| "
    r"|\S{1,1000}:\d{1,24}:\d{1,24} \[\d{1,24}\] |\S{0,1000}\.\w{1,200}:\d{1,24}[\]:]? "
    r"|(?:[A-Za-z_]\w{0,200}\.){0,50}[A-Za-z_]\w{0,200}(?:Error|Exception|Exit|Interrupt|Warning)\b(?::|$)"
    r"|Exception: "
    r"|(?:CUDA|NCCL) [Ee]rror\b|\S{1,1000}: error: |usage: |>>> |[$#>|+`*=\u2192\u2022-]|Last error|NCCL version"
    r"|\{\"\w.{0,320}\}\s{0,20}\Z"
    r"|[\w@.:-]{1,255}\.(?:service|scope|socket|mount|timer): "
    r"|\[\d{1,6}\][+-]?\s{1,20}(?:[+-]\s{1,20})?(?:\d{1,24}\s{1,20})?[a-z ]{4,40}(?: \(core dumped\))?\s{2}"
    r"|\S{1,255}: line \d{1,9}: "
    # who runs containers says how one of them ended
    r"|\S{1,255} exited with code \d"
    r"|(?:Killed|Terminated|Aborted|Segmentation fault|Bus error|Illegal instruction|Floating point exception)"
    r"(?: \(core dumped\))?\s{0,20}\Z"
    # tqdm's bar
    r"|[^|%]{0,80}?\d{1,3}%(?:\|| Completed \|)"
    # another program's name before each of its lines
    r"|\[[A-Z][A-Za-z_-]{2,40}\] "
    # a level that a supervisor puts before each of them
    r"|\[(?:[Dd]ebug|[Ii]nfo|[Nn]otice|[Ww]arn(?:ing)?|[Ee]rror|[Ff]atal|[Cc]ritical)\]"
    # a clock's time, in notes and chats; the one of V0's headers goes on with a file
    r"|\[?\d{1,2}:\d\d(?::\d\d(?:[.,]\d{1,6})?)?(?:\]| ?[AaPp][Mm]\b)?[ \t](?!\[|[\w./]{1,60}:\d)"
    # where a person, or a program, left lines out
    r"|\[?(?:\u2026|\.\.\.)"
    r"|terminate called |LLVM ERROR: |Fatal Python error: |(?:malloc|free|realloc)\(\): |double free |corrupted "
    r")"
)
_FRAME = Pattern(r'\s*File "')
# The header of a line of vLLM's that has nothing after it.
_BARE_HEADER = Pattern(r"(?:.*\s)?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[\w./]+:\d+\]$")
# The header of V0's loggers up to its time, or into its file's name, and the rest of it.
_TORN_HEADER = Pattern(r"(?:.*\s)?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d(?: [\w./]{0,60})?$")
_FILE_OF_HEADER = Pattern(r"[\w./]{0,60}:\d{1,6}\] ")

# What of a message's two parts is held against the catalogue: the end of the one, the beginning of the other.
_TAIL, _HEAD = 14, 12
_SHORTEST_HEAD = 3
# And of so many lines at most: a log with more that nobody signed is not one that somebody broke.
_ASKED = 4000
_AMOUNT = Pattern(r"\d[\d.,]{0,20}(?: ?(?:[KMGT]i?B|bytes)(?![A-Za-z]))?")
_CALL_OPEN = Pattern(r", line \d{1,6}, in$")
_NAME = Pattern(r"[A-Za-z_]\w{0,100}$")


def untypeset(text: str) -> str:
    """The text with quotation marks and blanks as a program writes them, where a page set them."""
    for mark, written in _TYPESET.items():
        if mark in text:
            text = text.replace(mark, written)
    if "\uff1a" in text:
        text = _CLASS_BEFORE.sub(": ", text)  # a translator's colon behind the class of an exception
    if "&#" in text or "&quot;" in text:
        for name, sign in _ENTITIES.items():  # the ampersand last: it writes the others' own names
            text = text.replace(name, sign)
    return text


def unwrapped(raw: Sequence[str]) -> list[str]:
    """The lines, each whole where its text began; what it took from the following ones is left empty there.

    So the number of every line stays. A text that is not broken is returned as it is.
    """
    bare, width = unframed(raw)
    whole = _unwrapped(bare) if width is None else _joined(bare, width, width, terminal=False, longest=width)
    return _completed(_sentences(whole, bare))


def _unwrapped(raw: Sequence[str]) -> list[str]:
    column = _column_below(raw)
    if column is not None:
        return _joined([line.rstrip() for line in raw], column, column, terminal=True, longest=column + _BLANKS)
    if max(map(len, raw), default=0) > _TERMINAL and not _narrow(raw):
        return _after_bare_headers(raw)
    lines = [line.rstrip() for line in raw]
    width = max((len(line) for line in lines if " " in line.lstrip()), default=0)
    terminal = _of_a_terminal(lines, width)
    if width < _NARROWEST or (width > _PAGE and not terminal):
        return _after_bare_headers(raw)
    column = min(width, mode(len(one) for one in _gone_on(lines))) if terminal else width
    return _joined(lines, width, column, terminal=terminal, longest=_WORD)


def _column_below(raw: Sequence[str]) -> int | None:
    """The last column of a terminal whose broken lines stand beside longer ones, as a command that somebody typed; None
    where nothing longer is there, or the lines that go on do not end at one column."""
    lines = [line.rstrip() for line in raw]
    gone_on = [len(one) for one in _gone_on(lines)]
    if len(gone_on) < _FEWEST_OF_A_PAGE:
        return None
    column = mode(gone_on)
    if column < _NARROWEST or max(map(len, lines)) <= column + _BLANKS:
        return None
    full = sum(abs(one - column) <= _BLANKS for one in gone_on)
    return column if full >= _FEWEST_OF_A_PAGE and full >= _ALL * len(gone_on) else None


def _joined(lines: list[str], width: int, column: int, *, terminal: bool, longest: int) -> list[str]:
    """The lines with their ends; one longer than `longest` is whole."""
    found = [*lines]
    start: int | None = None
    taken = 0
    for index, line in enumerate(lines):
        if not line:
            start = None
        elif _BEGINS.match(line) is not None and not (start == index - 1 and _within_header(lines[start], line)):
            start, taken = index, 0
        elif start is not None:
            glue = (
                _glue(lines[index - 1], line, column if terminal else width, terminal=terminal)
                if taken < _MOST and len(lines[index - 1]) <= longest
                else None
            )
            if glue is None:
                start = None
                continue
            found[start] += glue + line.lstrip()
            found[index] = ""
            taken += 1
    return found


def _sentences(found: list[str], raw: Sequence[str]) -> list[str]:
    """The lines, with what somebody broke wherever it suited put behind the message that it belongs to: the messages of
    the catalogue have the end of the one beside the beginning of the other."""
    head, long, asked = 0, len(found) > _SHORT, 0
    for index in range(1, len(found)):
        line = found[index].strip()
        if not line:
            if not raw[index].strip():
                head = index  # an empty line of the text itself: what follows is something else
            continue
        before = found[head].rstrip()
        # A long log has a beginning in nearly every line, and its code is set in.
        begins = long and (found[index][:1] in {" ", "\t"} or _BEGINS.match(found[index]) is not None)
        asked += not begins
        glue = None if begins or asked > _ASKED else _within_a_message(before, line)
        if glue is not None:
            found[head], found[index] = f"{before}{glue}{line}", ""
        else:
            head = index
    return found


def _within_a_message(before: str, line: str) -> str | None:
    """What stands between two parts of one message; None where no message has them side by side."""
    if _CALL_OPEN.search(before) and _NAME.match(line):
        return " "
    if len(before) < _TAIL or len(line) < _SHORTEST_HEAD:
        return None
    tail, head = _plain(before)[-_TAIL:], _plain(line)[:_HEAD]
    return next((glue for glue in (" ", "") if f"{tail}{glue}{head}" in _all_messages()), None)


def _plain(text: str) -> str:
    """A text with one sign for each amount, as any of them may stand in a message."""
    return _AMOUNT.sub("#", text)


@cache
def _all_messages() -> str:
    return "\n".join(_plain(sample.line) for message in messages() for sample in message.samples)


def _completed(lines: list[str]) -> list[str]:
    """The lines, with those behind one put to it that make it a message which says that something failed: nobody needs
    to know the width of what broke it. Of a short text alone, in which few lines hold such a message's words."""
    if len(lines) > _SHORT:
        return lines
    found = [*lines]
    causes = [m for m in messages() if m.kind == "cause" and m.scope == "log" and m.anchor and m.regex]
    for index, line in enumerate(found):
        torn = [m for m in causes if m.anchor in line and read(m, line) is None] if line.strip() else []
        for end in range(index + 1, min(len(found), index + 1 + _PARTS)) if torn else ():
            behind = found[end]
            torn = [m for m in torn if m.anchor not in behind]  # that line begins one of its own
            if not torn or not behind.strip() or _BEGINS.match(behind) is not None:
                break
            parts = [line.rstrip(), *(part.strip() for part in found[index + 1 : end + 1])]
            both = ("".join(parts), " ".join(parts))
            joined = next((one for one in both if any(read(m, one) is not None for m in torn)), None)
            if joined is not None:
                found[index : end + 1] = [joined, *[""] * (end - index)]
                break
    return found


def _narrow(raw: Sequence[str]) -> bool:
    """Is every line that is longer than a terminal one word, which nothing breaks?"""
    return all(len(line) <= _TERMINAL or (len(line) <= _WORD and " " not in line.strip()) for line in raw)


def _of_a_terminal(lines: Sequence[str], width: int) -> bool:
    """Do the lines that another one goes on with end at the last column?"""
    blanks = 1 if width <= _PAGE else _BLANKS  # a page breaks between words, a little before its width
    broken = [len(before) >= width - blanks for before in _gone_on(lines)]
    fewest = _FEWEST_OF_A_PAGE if width <= _PAGE else _FEWEST
    return len(broken) >= fewest and sum(broken) >= _ALL * len(broken)


def _gone_on(lines: Sequence[str]) -> list[str]:
    """The lines that another one goes on with; each once, as what is said again ends at the same column again."""
    found = {
        before: None
        for before, line in pairwise(lines)
        if before and line and line[:1] not in {" ", "\t"} and not _BEGINS.match(line)
    }
    return list(found)


def _glue(before: str, line: str, width: int, *, terminal: bool) -> str | None:
    """What stands between the two parts of a broken line; None where the break was meant."""
    if _BARE_HEADER.match(before):
        return " "
    if not terminal and _within_header(before, line):
        return " "
    indented = line[:1] in {" ", "\t"}
    if (indented and _FRAME.match(before)) or "%|" in before:
        return None  # the code of a call; a bar is a line of its own
    if terminal:
        if len(before) >= width:
            return " " if indented else ""
        return " " if len(before) >= width - (1 if width <= _PAGE else _BLANKS) else None
    return " " if len(before) + 1 + len(line.split(maxsplit=1)[0]) > width else None


def _within_header(before: str, line: str) -> bool:
    """Does the line before end within a header of V0's, and this one begin with the rest of its file? No line of vLLM's
    begins with its file."""
    return _TORN_HEADER.match(before) is not None and _FILE_OF_HEADER.match(line) is not None


def _after_bare_headers(raw: Sequence[str]) -> list[str]:
    """The lines, with what a page moved below a header put behind it."""
    found = [*raw]
    for index in range(1, len(found)):
        line, before = found[index], found[index - 1]
        if before[-1:] == "]" and line.strip() and _BARE_HEADER.match(before) and not _BEGINS.match(line):
            found[index - 1], found[index] = f"{before} {line.strip()}", ""
    return found

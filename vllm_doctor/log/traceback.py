"""Python tracebacks in a log, put together from the interleaved lines of several processes."""

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TypeAlias

import msgspec

from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.log.match import says
from vllm_doctor.records.log import LogLine

START = "Traceback (most recent call last)"
# People who shorten a call leave its line number out, and what follows it; who cuts a traceback cuts within a call.
_FRAME = Pattern(
    r'\s*(?:\^\s*)?(?:File "|(?=[\w./~-]{1,200}\.py", line \d))([^"]+)", line (\d{1,9}|\.{3}|…)'
    r"(?:, in (.+)|(?<=[.…])\s*$)"
)
# As IPython and notebooks write a call: the path and line together, then a listing with line numbers.
_CELL = Pattern(r"\s*File \[?([^\s\]]+?\.py):(\d{1,9})\]?(?:\([^)]{0,400}\))?, in (?:\w+\.)*(\w+)\(")
# The same before IPython 8, which Colab still runs: no line number, and a cell of a notebook has a name of its own.
_OLD_CELL = Pattern(
    r"\s{0,4}(/\S{1,400}\.py|<ipython-input-[\w-]{1,40}>) in (?:\w+\.)*(\w{1,120}(?=\()|<[\w: ]{1,40}>)(?:\(|\s*$)"
)
# As people shorten a call, and as pytest and py-spy write it: the file and its line together, the path mostly cut off.
_SHORT = Pattern(
    r"\s{0,20}(?:[>|]\s{0,4})?((?:[\w.~-]{1,80}/){0,20}\w{1,80}\.py):(\d{1,9}):?,? in (?:\w+\.)*(\w{1,120})\b"
)
_LISTED = Pattern(r"\s{0,20}(-{2,80}>)?\s{0,20}(\d{1,9})(?: {1,20}(.*))?$")
_RAISED = Pattern(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?::(?: (.*))?)?$", re.DOTALL)
_WARNED = Pattern(r"(?:[A-Z][a-z]{1,20}){0,8}Warning: ")
_NAMES = Pattern(
    r"(?:Error|Exception|Interrupt|Exit|Warning|Failure|Timeout|Cancelled|Unsupported|NotFound"
    r"|OutOfResources)\w{0,200}$"
)
# An exception's own line where the calls before it were cut away, or were never in the log.
_LOOSE = Pattern(
    # NIXL's classes begin with a small letter
    r"(?:(?:[a-z_]\w*\.)+(?:[A-Z]|nixl[A-Z])\w*(?:Error|Exception|Timeout|OutOfResources)"
    # a module of exceptions, whose classes need no such ending
    r"|(?:[a-z_]\w*\.)+(?:exc|errors|exceptions|_http|_errors)\.[A-Z]\w*"
    r"|(?:Runtime|Value|Assertion|OS|Key|Type|Import|ModuleNotFound|Attribute|NotImplemented|Index|Memory"
    r"|Permission|FileNotFound"
    r"|Timeout|ZeroDivision|Name|Lookup|Overflow|Connection|OutOfMemory|Accelerator|Inductor)Error):(?: |$)"
)  # a message of several lines may begin below it
# The class of an exception is capitalised, a call is not: this tells them apart where indentation was lost.
_CLASS = Pattern(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?::(?: |$)|$)")
_CALLED = Pattern(r"(?<!\w)(\w+)\(")
_CHAIN = ("The above exception was the direct cause", "During handling of the above exception")
_MESSAGE_LINES = 14
_LONGEST_PIECES, _PIECES = 2000, 2
# Its message is its key as Python writes it (`repr`), which holds no end of a line.
_ONE_LINE = "KeyError"
_KEY = Pattern(r"'[^']{1,300}(?:'|$)")
# A line of code that raises, with the literal that it raises in.
_RAISES = Pattern(
    r"raise ((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)\((?:[rbuf]{1,2}(?=['\"]))?['\"](.{1,600})['\"],?\)\s*(?:from .{1,80})?$"
)
# A check, with the sentence that is fixed in it.
_ASSERTS = Pattern(r"assert\b.{1,600}?(?:, f?['\"]([^{}'\"]{1,600})['\"]\)?)?$")
# Below what a build printed, which pip shows moved in (pip/_internal/exceptions.py).
_END_OF_BUILD = "[end of output]"
# An exception as `repr` writes it, with the one sentence or key that it holds.
_REPR = Pattern(
    r"((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Timeout))\((?:(?:['\"](.{1,600})['\"])|\d{1,20})?,?\)\s*$"
)
# The head of a record of torch's C++ logger (c10/util/Logging.cpp), which no message of an exception goes on with.
_C10 = Pattern(r"\[[WIEF](?:\d{3,4} [\d:.]{8,18})? [\w.]{1,60}\.(?:cpp|cc|cu|h):\d{1,5}\] ")
# A line that makes the exception which it raises: its class is capitalised, a variable is not.
_OF_A_CLASS = Pattern(r"raise (?:[a-z_]\w{0,60}\.){0,6}[A-Z]")
# How Python draws a group of exceptions (PEP 654): its own calls behind `|`, each member's one step further in.
_GROUP = "Exception Group Traceback"
_BRANCH = Pattern(r"\s{0,40}(?:\| ?|\+(?=[ -]))")
_MEMBER = Pattern(r"\s{0,40}\+[-+]{3,40}")
# Lines of a call that was broken, before the exception that it led to.
_BROKEN = 6
# What Python raises where a table lacks what was looked up: the key alone, or nothing.
LOOKUPS = frozenset({"KeyError", "IndexError", "StopIteration"})
# Where somebody cut calls out of a traceback.
_LEFT_OUT = frozenset({"...", "…", "[...]"})

# Where packages are installed; what stands before it is of the host, and may be named after anything.
_INSTALLED = Pattern(r".*(/(?:site|dist)-packages/)")

Stream: TypeAlias = tuple[str | None, int | None, bool]
_BARE: Stream = (None, None, False)


class Frame(msgspec.Struct, frozen=True):
    """One call: the file, parted by `/` whatever system printed it, the line and the function."""

    file: str
    line: int
    function: str
    code: str = ""

    @property
    def by_hand(self) -> bool:
        """Does the line itself raise or assert? What its exception says was foreseen."""
        return self.code.startswith(("raise ", "assert "))

    @property
    def passes_on(self) -> bool:
        """Does the line raise what another call, task or process raised before: `raise value.as_instanceof_cause()`?"""
        return self.code.startswith("raise ") and _OF_A_CLASS.match(self.code) is None


class Link(msgspec.Struct, frozen=True):
    """One exception of a chain, with the calls that led to it (outermost first). `at` is the index of its own line in
    the lines of the run; None where it was cut away."""

    name: str
    message: str
    frames: tuple[Frame, ...]
    at: int | None = None

    @property
    def kind(self) -> str:
        """The exception's class without its package."""
        return self.name.rsplit(".", 1)[-1]


class Crash(msgspec.Struct, frozen=True):
    """One traceback. The first link was raised first; `first` and `last` are indices into the lines of the run."""

    links: tuple[Link, ...]
    process: str | None
    pid: int | None
    first: int
    last: int
    level: str | None

    @property
    def root(self) -> Link:
        """What was raised first. A task that was cancelled is how asyncio ends a wait: what came of it says why.

        What a debugger raises in itself it catches itself. Ray heads the calls of an actor's creation with its word.
        A lookup that found nothing is told by the sentence that the same function raises for it.
        """
        told = (link for link in self.links if link.kind != "CancelledError" and not _of_a_debugger(link))
        first = next(
            (link for link in told if link.frames or not says(link.message, "heads-a-creation")), self.links[0]
        )
        return next((link for link in reversed(self.links) if _explains(link, first)), first)

    @property
    def functions(self) -> tuple[str, ...]:
        """Every function of every link, outermost first, link by link; at last what the innermost frame called."""
        return tuple(name for link in self.links for name in _names(link.frames))

    @property
    def steps(self) -> tuple[str, ...]:
        """The same, and behind each function the call that its code shows, where its frame was cut out."""
        return tuple(name for link in self.links for name in _with_cut_calls(link.frames))

    @property
    def files(self) -> tuple[str, ...]:
        """Every frame's file, in the same order."""
        return tuple(frame.file for link in self.links for frame in link.frames)


def path_of(printed: str) -> str:
    """A file as a `Frame` bears it: what Windows prints with `\\` is asked for with `/`."""
    return printed.replace("\\", "/")


def names_a_call(text: str) -> bool:
    """Is it the line of a call: `File "…", line 41, in main`?"""
    return _FRAME.match(text) is not None


def packages_folder(file: str) -> str:
    """The folder of packages that the file of a call lies in, with its last `/`; empty where it lies in none."""
    found = _INSTALLED.match(file)
    return found[0] if found is not None else ""


def in_packages(file: str) -> str:
    """The path of a call from the folder of packages on: an environment under `/opt/mamba` is no kernel of Mamba."""
    found = _INSTALLED.match(file)
    return file[found.start(1) :] if found is not None else file


def _explains(link: Link, first: Link) -> bool:
    """Did the function whose lookup failed raise a sentence for it?"""
    if first.kind not in LOOKUPS or " " in first.message.strip() or not first.frames or not link.frames:
        return False
    inner, failed = link.frames[-1], first.frames[-1]
    here = (inner.file, inner.function) == (failed.file, failed.function)
    return here and inner.by_hand and not failed.by_hand and " " in link.message.strip()


def _of_a_debugger(link: Link) -> bool:
    return bool(link.frames) and "pydevd" in link.frames[-1].file


def _names(frames: Sequence[Frame]) -> list[str]:
    """The frames' functions, and the call that the last one's code shows: a cut traceback lacks its frame."""
    called = _CALLED.search(frames[-1].code) if frames else None
    return [*(f.function for f in frames), *([called[1]] if called is not None else [])]


def _with_cut_calls(frames: Sequence[Frame]) -> Iterator[str]:
    for frame, after in zip_longest(frames, frames[1:]):
        called = _CALLED.search(frame.code)
        yield frame.function
        if called is not None and (after is None or after.function != called[1]):
            yield called[1]


class _Open(msgspec.Struct):
    process: str | None
    pid: int | None
    first: int
    last: int
    level: str | None
    links: list[Link] = []
    frames: list[Frame] = []
    message: list[str] = []
    name: str = ""
    at: int | None = None
    chained: bool = False
    # The last frame is a notebook's: numbered lines of code follow it.
    listing: bool = False
    # Begun in the middle: its head stands before the log's first line, or in lines that another process tore apart.
    torn: bool = False
    # A group of exceptions, or a member of one.
    drawn: bool = False
    # How far in the last call stands.
    inset: int = 0

    def close_link(self) -> None:
        if self.name:
            message = _in_one("\n".join(self.message).rstrip()) if self.name != _ONE_LINE else "".join(self.message)
            self.links.append(Link(self.name, message, tuple(self.frames), self.at))
        self.name, self.at, self.message, self.frames = "", None, [], []


def _in_one(message: str) -> str:
    """What was raised in pieces (`ValueError("a ", f"{b}")`, `assert x, ("%s is wrong", x)`) as the one sentence that
    it was meant to be: Python writes a tuple of them."""
    if not (message.startswith("(") and message.endswith(")") and len(message) <= _LONGEST_PIECES):
        return message
    try:
        pieces: object = ast.literal_eval(message)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return message
    texts = [one for one in pieces if isinstance(one, str)] if isinstance(pieces, tuple) else []
    if not isinstance(pieces, tuple) or len(pieces) < _PIECES or not isinstance(pieces[0], str):
        return message
    if pieces[0].count("%s") == len(pieces) - 1:
        return pieces[0] % pieces[1:] if pieces[0].count("%") == len(pieces) - 1 else message
    return "".join(texts) if len(texts) == len(pieces) else message


def exception_within(text: str) -> tuple[str, str] | None:
    """The class and the message of an exception behind a person's words, as a report's heading has it."""
    found = _LOOSE.compiled.search(text)
    raised = _RAISED.match(text[found.start() :].strip()) if found is not None else None
    if raised is None:
        return None
    said = raised[2] or ""
    key = _KEY.match(said) if raised[1] == _ONE_LINE else None  # a person goes on behind it, or leaves its end out
    return raised[1], f"'{key[0].strip(chr(39))}'" if key is not None else said


def raised_in_code(code: str) -> tuple[str, str] | None:
    """What a call's own line raises, with the words that are fixed in it: its exception, where that was cut away."""
    raises = _RAISES.match(code)
    return (raises[1], raises[2]) if raises is not None else None


def checked_in_code(code: str) -> tuple[str, str] | None:
    """What a call's own line checks, with the words that are fixed in it."""
    asserts = _ASSERTS.match(code)
    return ("AssertionError", asserts[1] or "") if asserts is not None and _is_whole(code) else None


def _is_whole(code: str) -> bool:
    """Does a statement end in its line?"""
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def named_above(text: str) -> tuple[str, str] | None:
    """The exception as Python writes it (`repr`) in the line above its traceback: V0's engine logs both."""
    named = _REPR.match(text)
    return (named[1], named[2] or "") if named is not None else None


def tracebacks(lines: Sequence[LogLine], *, torn: bool = False) -> tuple[Crash, ...]:
    """Every traceback of these lines, in the order in which they began; `torn`: those without head and end, too."""
    found: list[Crash] = []
    opened: dict[Stream, _Open] = {}
    # Calls in whose midst a line was broken, before the exception's own: first line, the broken one, the calls.
    unnamed: dict[Stream, tuple[int, int, list[Frame]]] = {}
    speaking: Stream = (None, None, False)
    for index, line in enumerate(lines):
        stream = (line.process, line.pid, line.module is not None and line.module != "uvicorn")
        text = line.text
        if stream == _BARE and line.module is None and _BARE not in opened and _broken_off(opened.get(speaking), text):
            stream = speaking  # a message that was broken into lines after its prefixes were written
        speaking = stream
        current = opened.get(stream)
        if current is not None and current.name and _another_record(lines[current.first], line):
            _close(current, found, torn=torn)
            del opened[stream]
            current = None
        drawn = current is not None and current.drawn
        text = _out_of_the_drawing(text) if drawn else text
        if START in text:
            if current is not None and current.chained:
                current.chained = False
                current.last = index
                current.drawn = drawn or _GROUP in text
                continue
            # A group only says that a member failed; its own calls stand outside of the member's.
            if current is not None and not (drawn and current.name.endswith("Group")):
                _close(current, found, torn=torn)
            opened[stream] = _Open(line.process, line.pid, index, index, line.level, drawn=drawn or _GROUP in text)
            continue
        if current is not None and not (current.name and not current.frames and _LOOSE.match(text)):
            # A warning is of another module, written in between; as an exception it would take `-W error`.
            beside = (_WARNED.match(text) and not _raises(current)) or _launcher(current, text)
            if beside or _feed(current, text, index):
                continue
            unnamed[stream] = (current.first, index, [] if current.name or not current.torn else current.frames)
        if current is not None:
            _close(current, found, torn=torn)
            del opened[stream]
        plain = text if drawn else _out_of_the_drawing(text)
        torn_out = plain != text and _call(plain) is not None  # the head of its drawing was cut away
        text = plain if torn_out else text
        frame = _call(text) is not None
        if frame or _LOOSE.match(text):
            opened[stream] = loose = _begun(line, index, unnamed.pop(stream, None), torn=frame)
            loose.drawn = torn_out
            _feed(loose, text, index)
    for current in opened.values():
        _close(current, found, torn=torn)
    return tuple(sorted(found, key=lambda c: c.first))


def _out_of_the_drawing(text: str) -> str:
    """A line of a group of exceptions without the branches before it; what parts two members says nothing."""
    return "" if _MEMBER.match(text) else _BRANCH.compiled.sub("", text, count=1)


def _begun(line: LogLine, index: int, before: tuple[int, int, list[Frame]] | None, *, torn: bool) -> _Open:
    """A crash whose head is missing: at a call, or (`before` is what was read of them) at the exception that calls, one
    of which was broken, led to."""
    loose = _Open(line.process, line.pid, index, index, line.level, torn=torn)
    if before is not None and not torn and index - before[1] <= _BROKEN:
        loose.first, loose.frames = before[0], before[2]
    return loose


def _broken_off(crash: _Open | None, text: str) -> bool:
    """Does a line without any prefix go on with the message of the crash that was speaking?"""
    return (
        crash is not None
        and bool(crash.name)
        and _call(text) is None
        and START not in text
        and not _LOOSE.match(text)
        and not says(text, "information-line", "python-warning", "heading-of-dead-process")
    )


def _launcher(crash: _Open, text: str) -> bool:
    """Did who started the process write it into the same stream, before the exception was named?"""
    return not crash.name and says(text.strip(), "launcher-line")


def _raises(crash: _Open) -> bool:
    """Does the last call's own code raise? Then what comes is its exception, even where its class is a warning's."""
    return not crash.name and bool(crash.frames) and crash.frames[-1].code.startswith("raise ")


def _call(text: str) -> "re.Match[str] | None":
    """A line that names a call, in any of its forms."""
    return _FRAME.match(text) or _CELL.match(text) or _SHORT.match(text) or _OLD_CELL.match(text)


def _frame(text: str) -> tuple[Frame, bool] | None:
    """The call that a line names, and whether a listing of its code follows, which then has the line's number."""
    plain = _FRAME.match(text) or _SHORT.match(text)
    if (found := plain or _CELL.match(text)) is not None:
        number = int(found[2]) if found[2].isdecimal() else 0
        return Frame(path_of(found[1]), number, (found[3] or "").strip()), plain is None
    old = _OLD_CELL.match(text)
    return (Frame(path_of(old[1]), 0, old[2]), True) if old is not None else None


def begins(text: str) -> bool:
    """Does a line begin a traceback or the next one of a chain, or name a call of one?"""
    return START in text or any(words in text for words in _CHAIN) or _call(text) is not None


def _another_record(first: LogLine, line: LogLine) -> bool:
    """Did another call of a logger write it? One record bears the same module on all its lines, and what Python itself
    writes bears no level on any."""
    if first.level is None and line.level is not None:
        return True
    return None not in {first.module, line.module} and first.module != line.module


def _feed(crash: _Open, text: str, index: int) -> bool:
    """Add one line of the crash's own stream; False once it no longer belongs to it."""
    stripped = text.strip()
    call = _frame(text)
    if call is not None:
        if crash.name:
            crash.close_link()
        crash.frames.append(call[0])
        crash.listing, crash.inset = call[1], _inset(text)
    elif crash.listing and not crash.name and (listed := _LISTED.match(text)) is not None:
        if listed[1] and crash.frames:
            last = crash.frames[-1]
            crash.frames[-1] = Frame(last.file, last.line or int(listed[2]), last.function, (listed[3] or "").strip())
    elif any(c in text for c in _CHAIN):
        crash.close_link()
        crash.chained = True
    elif crash.name:
        if _is_told(crash, stripped):
            return False
        crash.message.append(text)
    elif not crash.frames and not crash.links and not stripped:
        pass
    elif (
        (text[:1] in {" ", "\t"} and not _moved_in(crash, text, stripped))
        or not stripped
        or stripped.startswith("[…")
        or stripped in _LEFT_OUT
        or _unindented(crash, stripped)
    ):
        if crash.frames and stripped and set(stripped) - set("^~ ") and not crash.frames[-1].code:
            last = crash.frames[-1]
            crash.frames[-1] = Frame(last.file, last.line, last.function, stripped)
    else:
        raised = _RAISED.match(stripped)
        if raised is None or not (_NAMES.search(raised[1]) or "." in raised[1] or crash.frames) or " " in raised[1]:
            return False
        crash.name, crash.at = raised[1], index
        crash.message = [raised[2] or ""]
    crash.last = index
    return True


def _is_told(crash: _Open, stripped: str) -> bool:
    """Did the message end before this line?"""
    if stripped == _END_OF_BUILD and not any(crash.message):
        crash.name = ""  # a check without words is left to pip, which tells what was built
    return (
        stripped == _END_OF_BUILD
        or crash.chained
        or (crash.name == _ONE_LINE and bool(stripped))  # behind an empty line another exception may be chained
        or len(crash.message) >= _MESSAGE_LINES
        or _C10.match(stripped) is not None
        or says(stripped, "heading-of-dead-process", "launch-typed")
    )


def _inset(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _moved_in(crash: _Open, text: str, stripped: str) -> bool:
    """Is it the exception of a traceback that was pasted further in? It stands further out than the last call.

    One without words is left to who tells of it: pip, of a build whose output it moves in.
    """
    worded = ": " in stripped and crash.frames and 0 < _inset(text) < crash.inset
    raised = _RAISED.match(stripped) if worded else None
    return raised is not None and _CLASS.match(stripped) is not None and _NAMES.search(raised[1]) is not None


def _unindented(crash: _Open, stripped: str) -> bool:
    """Is it the code of the last frame, or the marks under it, in a log that lost its indentation?"""
    if not crash.frames:
        return False
    return not set(stripped) - set("^~ ") or (not crash.frames[-1].code and _CLASS.match(stripped) is None)


def _close(crash: _Open, found: list[Crash], *, torn: bool = False) -> None:
    unnamed = () if crash.name else tuple(crash.frames)
    crash.close_link()
    if crash.links and unnamed:
        # The log ends within the chain's next traceback: its calls stand further out than what they led to.
        last = crash.links[-1]
        crash.links[-1] = Link(last.name, last.message, (*unnamed, *last.frames), last.at)
    if not crash.links and unnamed and (torn or not crash.torn):
        crash.links.append(Link("", "", unnamed))
    if crash.links:
        found.append(Crash(tuple(crash.links), crash.process, crash.pid, crash.first, crash.last, crash.level))

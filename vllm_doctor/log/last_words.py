"""What speaks of an end, or of a host that is wedged, below the last line that shows that the engine worked.

vLLM's processes sign what they write in Python. What ends them from below does not: a runtime in C++ or Rust writes its
last line itself, and a shell, a supervisor, a scheduler or the kernel writes it for them. They cannot be listed. What
they have in common is the place and the few names that there are for an end.

The front end goes on when the engine is gone: it answers /health, /metrics and prints statistics. So the place is not
behind the last word of the server, but behind the last work of its engine.
"""

from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from itertools import chain, islice

from vllm_doctor.log.client import MEASURES, client
from vllm_doctor.log.match import kinds, milestones, read, says, stops
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.log.traceback import Crash, names_a_call
from vllm_doctor.records.log import LogLine

# Two or three processes that write at once leave as many lines in one.
_TOGETHER = 6
_SERIOUS = frozenset({"ERROR", "CRITICAL", "FATAL"})
# Parts of the front end that speak with the engine and with no user: what these call an error is no request's.
_ASK_THE_ENGINE = (
    "core_client.py",
    "async_llm.py",
    "coordinator.py",
    "launcher.py",
    "async_llm_engine.py",
    "client.py",
)
_ABOVE = 3
# So often has a line stood in a log that it tells nothing new at the end; and how wide a rule is.
_USUAL, _RULE = 3, 40
# So often has the engine reported an error of one form, and so few answers came after the last of them. Signs that tell
# the form.
_OFTEN, _FEW, _FORM = 3, 3, 24
# Lines that are looked at for what failed.
_TOLD = 6
# How containers of one pod ask each other.
_ITSELF = ("//localhost:", "//127.0.0.1:")
_ENGINE = ("process-of-engine", "process-of-worker")
# Of such a line its writer's level says nothing: it tells of another process, or of the host.
_ENDS = (
    "end-by-signal",
    "shell-tells-of-child",
    "end-by-library",
    "end-by-manager",
    "end-by-scheduler",
    "end-by-kernel",
    "end-by-memory-guard",
)
# Python's own last words of a process, however much of them there is.
_PYTHONS_LAST = ("heading-of-dead-process", "traceback-cut", "exception-line")
_OF_NO_CONCERN = (
    "information-line",
    "python-warning",
    "aside-heading",
    "survived-by-design",
    "says-it-goes-on",
    "event-in-order",
    "status-in-order",
)
_HARMLESS = (
    *_OF_NO_CONCERN,
    "warning-line",
    "ended-in-order",
    "calls-itself-harmless",
    "library-chat",
    "cut-mark",
    "shell-prompt",
    "wrapper-says-ready",
    "mark-of-a-runner",
    "exposition-line",
    "status-of-a-terminal",
    "command-typed",
    "figures-alone",
    "benchmark-figures",
    "unit-at-work",
)


def last_words(run: AnalysedRun) -> LogLine | None:
    """The first line after the engine's last work that says that something ended or failed; None where there is none.

    A traceback that is whole was judged by what it says. What stands between a stop and the last that the server said
    is the noise of the stop.
    """
    return next(_said(run), None) or _last_of_an_engine(run)


def _last_of_an_engine(run: AnalysedRun) -> LogLine | None:
    """The last call that an engine's error shows, where its traceback was cut before the exception and the engine wrote
    nothing else below it: what the front end answered below it was done before."""
    told = {i for crash in run.crashes if crash.root.name for i in range(crash.first, crash.last + 1)}
    ended: set[tuple[str | None, int | None]] = set()
    for index in reversed(range(len(run.lines))):
        line = run.lines[index]
        who = (line.process, line.pid)
        if who in ended or not says(line.process or "", "process-of-engine"):
            continue
        if line.level not in _SERIOUS or index in told:
            ended.add(who)
        elif names_a_call(line.text):
            return line
    return None


def complaints(run: AnalysedRun) -> tuple[LogLine, ...]:
    """That line and the next ones of their kind: the first may only say that something failed, and a later one what."""
    return tuple(islice(_said(run), _TOLD))


def _said(run: AnalysedRun) -> Iterator[LogLine]:
    lines = run.lines
    known = {h.index for h in run.hits if h.id in milestones() or h.id in stops() or _means_no_end(h.id)}
    cut = {i for crash in run.crashes if not crash.root.name for i in range(crash.first, crash.last + 1)}
    last = next((i for i in reversed(range(len(lines))) if i in known or (i not in cut and _own(lines[i]))), -1)
    whole = (crash for crash in run.crashes if crash.root.name and crash.root.frames)
    told = {i for crash in whole for i in (*_heading(run, crash), *range(crash.first, crash.last + 1))}
    stream = _stream(run, last)
    names = _hosts(stream)
    pod = _pod(stream)
    complete = run.first("app-stopped", "uvicorn-finished")
    stop = run.stopped if run.stopped is not None else len(lines)
    end = min(stop, complete.index if complete is not None else len(lines))
    for hit in run.hits:
        if hit.id in stops() and hit.index >= stop and says(lines[hit.index].text, "end-by-scheduler"):
            yield lines[hit.index]
            return
    for index in chain(range(run.worked + 1, end), range(max(last + 1, end), len(lines))):
        line = lines[index]
        beside = stream is not None and line.stream not in {None, stream}
        here = _ITSELF if pod and _pod(line.stream) == pod else ()
        watches = beside and any(mark in line.text for mark in (*names, *here))
        if not line.text.strip():
            continue  # a blank line of a traceback's code tells nothing
        if watches and says(line.text, *_ENDS, "end-in-any-words", "nobody-behind"):
            yield line
        if not beside and index in cut:
            yield line
        if beside or run.of_another_container(line) or index in told or index in known or index in cut or _own(line):
            continue
        if index > end and says(line.text, *_asked_for(run)):
            continue
        if _complains(run, index) or (index > last and says(line.text, "nobody-behind")):
            yield line


def _stream(run: AnalysedRun, own: int) -> str | None:
    """The name in front of the server's lines, of which `own` is the last. uvicorn's form is anybody's, a proxy's,
    too."""
    speaks = (line for line in reversed(run.lines) if line.process is not None or line.module not in {None, "uvicorn"})
    return next(speaks, run.lines[own]).stream if own >= 0 else None


def _pod(stream: str | None) -> str | None:
    """The pod of a container, where its name has one in front."""
    kind, slash, rest = (stream or "").partition("/")
    return f"{kind}/{rest.partition('/')[0]}" if slash else None


def _hosts(stream: str | None) -> tuple[str, ...]:
    """The names, as a log writes them, by which another program of the same network asks the server that writes this
    stream: its pod's, its container's, and its service's in a Compose file, which numbers the containers."""
    name = (stream or "").split("/")[1 if "/" in (stream or "") else 0]
    both = {one for one in (name, name.rstrip("0123456789").rstrip("-_")) if one}
    return tuple(mark.format(one) for one in sorted(both) for mark in ("//{}:", "'{}'", " {}/"))


def strange_end(run: AnalysedRun) -> LogLine | None:
    """The first line behind the server's last own word of which nothing says whose it is: who writes after a server
    that runs on, or has stopped? Ends cannot be listed, whoever tells of one has the last word, and a shell tells of it
    in its user's language. A script prints its answers there, and its neighbour in a log of several containers is
    another stream. The first, because whoever tells of an end may go on, with a prompt or a goodbye.
    """
    if run.is_script or run.first("eval-results") is not None:
        return None
    lines = run.lines
    known = {hit.index for hit in run.hits}
    own = next((i for i in reversed(range(len(lines))) if _own(lines[i])), -1)
    given = (i for i in reversed(range(own + 1, len(lines))) if says(lines[i].text, "answer-of-a-model"))
    last = max(own, run.worked, *(h.index for h in run.hits if h.id in stops() or _means_no_end(h.id)), -1)
    last = max(last, next(given, -1))
    stream = _stream(run, own)
    if (cut := _cut_error(run, known)) is not None:
        return cut
    final = next((line.text for line in reversed(lines) if line.text.strip()), "")
    if (_rule(final) is not None and says(final, "ended-in-order")) or says(final, "result-of-tests"):
        return None  # a harness has the last word, and says that all went well
    asked = _asked_for(run)
    spoke = _spoke_meanwhile(run, last)
    before = lines[: last + 1] if last + 1 < len(lines) else ()
    usual = Counter(_form(line.text) for line in before)
    outlived = _outlived(run) if before else frozenset()
    rules = {rule for line in before if (rule := _rule(line.text))}
    asked_by = client(line.text for line in lines[last + 1 :])
    if asked_by is not None and asked_by.name in MEASURES:  # somebody measured it from the same terminal
        at = asked_by.counted if asked_by.counted is not None else asked_by.mark
        return lines[last + 1 + at] if asked_by.failed else None
    for index in _unasked(run, last):
        line = lines[index]
        beside = stream is not None and line.stream not in {None, stream}
        beside = beside or _speaker(line) in spoke
        told = any(crash.first <= index <= crash.last for crash in run.crashes)
        if not line.text.strip() or beside or told or index in known or line.level is not None:
            continue
        signs = not any(letter.isalnum() for letter in line.text) and not says(line.text, "answer-of-token-zero")
        if usual[_form(line.text)] >= _USUAL or _form(line.text) in outlived or signs:
            continue  # it stood there while the server worked, or closes a document
        if says("".join(one.text for one in lines[index + 1 : index + 2]), "row-of-a-table"):
            continue  # the heading of a table
        if (rule := _rule(line.text)) is not None and any(rule[0] == s and abs(rule[1] - w) < 3 for s, w in rules):
            continue  # whose headings stand above the server's lines frames them: a harness
        whole = line.excerpt or line.text  # with the head that a logger of another form wrote, where its level stands
        if not says(line.text, *_HARMLESS, *asked) and not says(whole, *_HARMLESS, *asked):
            return line
    return None


def _unasked(run: AnalysedRun, last: int) -> Iterator[int]:
    """The lines below it, without what a host or the front end answers to a person's questions, up to the word of a
    harness that had stopped the server and says that all went well. What tells of an end there is a complaint."""
    over = run.first("app-stopped", "uvicorn-finished") is not None
    asks = False
    for index in range(last + 1, len(run.lines)):
        text = run.lines[index].text
        if over and says(text, "result-of-tests"):
            return
        if says(text, "command-typed", "shell-prompt"):
            asks = says(text, "asks-the-host")
        elif asks and not says(text, "curl-failed", "client-saw-server-error"):
            continue
        yield index


def _outlived(run: AnalysedRun) -> frozenset[str]:
    """The forms of lines that stood between two works of the engine once it was up, so that they tell of no end."""
    up = next((i for i, stage in run.miles if stage in {StartupPhase.READY, StartupPhase.SERVING}), run.worked)
    return frozenset(_form(line.text) for line in run.lines[up : max(run.worked, up)] if line.level is None)


def _means_no_end(message: str) -> bool:
    """Is it a message of a server that goes on? The name of its image stands in anybody's table."""
    return kinds()[message] == "benign" and message != "image-of-vllm"


def _form(text: str) -> str:
    """The line but for its numbers."""
    return "".join("#" if letter.isdigit() else letter for letter in text.strip())


def _rule(text: str) -> tuple[str, int] | None:
    """The sign and the width of a rule with a heading in it, 0 of a short one; None for any other line."""
    text = text.strip()
    sign = text[-1:]
    if not sign or sign.isalnum():
        return None
    if len(text) >= _RULE and text.endswith(sign * 4) and 2 * text.count(sign) >= len(text):
        return sign, len(text)
    short = len(text) < _RULE and text.startswith(sign * 2 + " ") and text.endswith(" " + sign * 2)
    return (sign, 0) if short else None


def _spoke_meanwhile(run: AnalysedRun, last: int) -> frozenset[str]:
    """The marks of other programs that spoke while the engine served, as a load generator does: they go on after it.
    Who starts and ends a server speaks before and after."""
    up = next((i for i, stage in run.miles if stage in {StartupPhase.READY, StartupPhase.SERVING}), last)
    named = (name for line in run.lines[:last] if (name := _actor(line)))
    return frozenset((*(name for line in run.lines[up:last] if (name := _speaker(line))), *named))


def _speaker(line: LogLine) -> str:
    """The mark that a program of another logger puts before each of its lines; empty where there is none."""
    told = read("speaker", line.text) if line.level is None and line.process is None else None
    return told["name"] if told is not None else _actor(line)


def _actor(line: LogLine) -> str:
    """The name of a process of Ray's that is none of vLLM's, with its number: the program within which the engine was
    made speaks above the engine's lines and below them."""
    if line.process is None or line.pid is None or line.module is not None or says(line.process, "process-of-vllm"):
        return ""
    return f"{line.process} {line.pid}"


def said_again(run: AnalysedRun) -> tuple[LogLine, int] | None:
    """The last error of the engine that it has reported again and again, and how often, where hardly a request was
    answered after it. One may be of one request; a stream that was answered with 200 may have been cut by it."""
    known = {hit.index for hit in run.hits}
    told: dict[tuple[str | None, str], list[int]] = {}
    for index, line in enumerate(run.lines):
        if line.level in _SERIOUS and _unknown_error(run, known, index) and _of_the_engine(line):
            told.setdefault((line.module, _form(line.text)[:_FORM]), []).append(index)
    last = max((where for where in told.values() if len(where) >= _OFTEN), key=lambda where: where[-1], default=None)
    if last is None or sum(h.index > last[-1] for h in run.all("request-ok")) >= _FEW:
        return None
    return run.lines[last[-1]], len(last)


def ended_before(run: AnalysedRun) -> LogLine | None:
    """What another program says of an end, above the start with which a server that had served took up again, where no
    request was answered since: why it ended may be why it will end again."""
    worked = {h.index for h in (*run.all("request-ok"), *run.all("stats"))}
    up_again = {StartupPhase.READY, StartupPhase.SERVING}
    up = next((i for i, stage in reversed(run.miles) if stage in up_again and i not in worked), -1)
    served = max((index for index in worked if index < up), default=None)
    if served is None or any(index > up for index in worked) or run.stopped is not None:
        return None
    between = (run.lines[i] for i in range(served + 1, up))
    others = (line for line in between if not says(line.process or "", "process-of-vllm") and line.module is None)
    return next((line for line in others if says(line.text, *_ENDS, "end-in-any-words")), None)


def torn_traceback(run: AnalysedRun) -> LogLine | None:
    """The last line that holds calls of a traceback behind other words, of no traceback that could be read, where no
    request was answered after it: a page joined the lines, and what failed stands in one of them."""
    ok = run.last("request-ok")
    first = ok.index + 1 if ok is not None else 0
    told = {index for crash in run.crashes for index in range(crash.first, crash.last + 1)}
    torn = (i for i in reversed(range(first, len(run.lines))) if i not in told)
    return next((run.lines[i] for i in torn if says(run.lines[i].text, "call-within-a-line")), None)


def run_together(run: AnalysedRun) -> LogLine | None:
    """The last line, where a store or a shell wrote a server's many lines into it. They are cut apart where a logger
    begins; what ends a process has no such head and stays a part of the message above it, unread."""
    last = run.lines[-1] if run.lines else None
    if last is None or last.level is None:
        return None
    one = [line for line in run.lines[-_TOGETHER:] if line.number == last.number and line.level is not None]
    return last if len(one) == _TOGETHER else None


def _cut_error(run: AnalysedRun, known: AbstractSet[int]) -> LogLine | None:
    """The last line of all, where it is an error of the server that no message here is: a page or a terminal may have
    cut it, and what it would have said. Above others, it is a request's, and the server went on."""
    index = next((i for i in reversed(range(len(run.lines))) if run.lines[i].text.strip()), -1)
    line = run.lines[index] if index >= 0 else None
    if line is None or (run.stopped is not None and index > run.stopped):
        return None
    return line if _unknown_error(run, known, index) else None


def last_error(run: AnalysedRun) -> LogLine | None:
    """The last line that vLLM's own logger wrote as an error and that no message here is; None where there is none."""
    known = {hit.index for hit in run.hits}
    found = (i for i in reversed(range(len(run.lines))) if _unknown_error(run, known, i))
    return next((run.lines[index] for index in found), None)


def _unknown_error(run: AnalysedRun, known: AbstractSet[int], index: int) -> bool:
    """Did vLLM's own logger write the line as an error, and is it no message here, of no traceback and not harmless?"""
    line = run.lines[index]
    if index in known or any(crash.first <= index <= crash.last for crash in run.crashes):
        return False
    if line.level not in _SERIOUS or line.module in {None, "uvicorn"} or not line.text.strip():
        return False
    return not says(line.text, *_HARMLESS) and not says(line.excerpt or line.text, *_HARMLESS)


def _asked_for(run: AnalysedRun) -> tuple[str, ...]:
    """How a stop is carried out. Whoever told the server to stop kills what does not; one that has stopped is gone
    without it."""
    if run.first("app-stopped", "uvicorn-finished") is not None:
        return ("stop-carried-out", "pod-taken-down", "shell-left")
    return ("stop-carried-out", "pod-taken-down", "kill-in-any-words") if run.stopped is not None else ()


def _heading(run: AnalysedRun, crash: Crash) -> Iterator[int]:
    """The line above a traceback, and what its process said right before, whoever wrote in between."""
    for index in range(max(0, crash.first - _ABOVE), crash.first):
        line = run.lines[index]
        own = line.process is not None and (line.process, line.pid) == (crash.process, crash.pid)
        if own or index == crash.first - 1:
            yield index


def _own(line: LogLine) -> bool:
    """Did vLLM or uvicorn write it with their own logger, or one of vLLM's processes, and not as an error?"""
    if line.level is None:
        return says(line.process or "", "process-of-vllm") and not says(line.text, *_PYTHONS_LAST) and not _native(line)
    # What the front end calls an error is mostly a request's, and was judged; uvicorn's form is anybody's, too: the
    # kernel's, and its own for a child that it lost.
    if line.module == "uvicorn":
        quiet = line.level not in _SERIOUS
        return quiet and (says(line.text, "access-line") or not says(line.text, *_ENDS))
    return line.level not in _SERIOUS or not _of_the_engine(line)


def _native(line: LogLine) -> bool:
    """Does a runtime below Python tell of a failure in one of the engine's processes? vLLM signs all that these write
    (utils/system_utils.py, decorate_logs), and knows no level of it."""
    if not _signed_by_the_engine(line) or says(line.text, *_OF_NO_CONCERN, "warning-line", "ended-in-order"):
        return False
    return says(line.text, "native-error", "end-in-any-words")


def _of_the_engine(line: LogLine) -> bool:
    """Is it of one of the engine's processes, or of who speaks with them?"""
    module = (line.module or "").rsplit("/", 1)[-1]
    return _signed_by_the_engine(line) or module.startswith(_ASK_THE_ENGINE)


def _signed_by_the_engine(line: LogLine) -> bool:
    return says(line.process or "", *_ENGINE)


def _ends_an_aside(run: AnalysedRun, index: int) -> bool:
    """Is it the exception that a destructor ended with? Python has its heading right above where no call is left."""
    above = run.lines[index - 1] if index else None
    return above is not None and above.pid == run.lines[index].pid and says(above.text, "aside-heading")


def _complains(run: AnalysedRun, index: int) -> bool:
    line = run.lines[index]
    text = line.text
    if line.level in _SERIOUS and _of_the_engine(line) and line.module != "uvicorn":
        stopped = run.is_script or (run.stopped is not None and index > run.stopped)
        if stopped and not _signed_by_the_engine(line):
            return False  # who loses an engine that was told to end, or that has answered all, is surprised by nothing
        return not says(line.excerpt or text, *_OF_NO_CONCERN, "calls-itself-harmless")
    if _ends_an_aside(run, index):
        return False
    if says(text, *_PYTHONS_LAST, "native-error") or (line.level is None and _native(line)):
        return True
    if says(text, "heading-of-nothing"):
        return not any(index < crash.first <= index + _ABOVE for crash in run.crashes)
    if says(text, *_OF_NO_CONCERN):
        return False
    if says(text, *_ENDS):
        return True
    if says(text, "warning-line", "ended-in-order") or says(line.excerpt, "warning-line"):
        return False  # the head of a line of glog's, which tells its level, stands in the line alone
    return says(text, "end-in-any-words") or (
        says(text, "something-failed", "resource-gone") and not says(line.excerpt or text, "calls-itself-harmless")
    )

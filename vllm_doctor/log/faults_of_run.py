"""Everything in a run that may have failed first: its tracebacks and its messages, each with what belongs to it."""

import itertools
from functools import cached_property

from msgspec.structs import replace

from vllm_doctor.log import traceback
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.fault_phase import CRASHES, FELLOWS, HEADING, RunWithPhases
from vllm_doctor.log.match import Hit, deferring, kinds, messages, of_exceptions, read, says, without
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.log.told_memory import kill_accounts, memory_accounts, memory_talk, told_of_another
from vllm_doctor.log.traceback import Crash, Link, checked_in_code, exception_within, named_above, raised_in_code
from vllm_doctor.log.unpickled import kind_of
from vllm_doctor.records.log import LogLine

_HANDLED = frozenset({"DEBUG", "INFO", "WARNING"})
_SERIOUS = frozenset({"ERROR", "CRITICAL"})
_BUILDS = frozenset({"build-failed", "build-failed-command"})
# A parent's lines that quote what its child said.
_QUOTES = frozenset({"worker-error-relay", "engine-loop"})
# So much of a message holds pydantic's heading and its first reason.
_PIECE = 1000
# Lines in which a sentence is looked for: of a text that no program signed, for people quote a few, and of a logger's
# errors the last, of which a server that runs for weeks writes many.
_QUOTED = 40
_WARNINGS = ("python-warning", "warning-line", "information-line", "compiles-in-a-step")
_WORDS = 4  # and no fewer between the words of a sentence that can be told
# Messages that are words alone, which people write as programs do.
_IN_WORDS = frozenset({"cuda-oom", "device-oom", "device-oom-capitals", "device-oom-retyped", "device-oom-words"})
_OF_ANY = _IN_WORDS | {"torch-oom", "device-oom-call"}
# The ids of a person's own words for it.
TOLD_MEMORY, TOLD_KILL = "told-memory", "told-killed"
IMPORTS = frozenset({"module-missing", "import-name"})


class RunWithFaults(RunWithPhases):
    """A run, and its faults in the order in which they were found."""

    @cached_property
    def faults(self) -> list[Fault]:
        """Everything that may have failed first. Only the first crashes are looked at: the root is among them."""
        owner: dict[int, Crash] = {}
        reports: set[int] = set()
        said: dict[int, list[Hit]] = {}
        for hit in self.hits:
            if kinds()[hit.id] == "cause" and not self._informs(hit) and not self._only_talked_of(hit):
                said.setdefault(hit.index, []).append(hit)
        found: list[Fault] = []
        for crash in self.crashes[:CRASHES]:
            own = self._own_lines(crash)
            owner.update(dict.fromkeys(own, crash))
            if _of_a_report(crash):
                reports.update(own)
            survived = crash.level in _HANDLED and not self._ended_its_process(crash)
            if survived or _symptom(crash) or reports.issuperset(own) or self._only_unwritten(crash):
                continue
            heading = self._heading(crash)
            owner.update(dict.fromkeys(heading, crash))
            told = self._without_code(crash, [h for i in (*heading, *own) for h in said.get(i, ())])
            built = any(h.id in _BUILDS for h in told)  # what a build asked a shell for, the build cannot do without
            hits = tuple(h for h in told if built or "shell" not in h.fields) or _wrapped(crash)
            if not hits and not crash.root.name:
                continue  # cut off before it said what it is
            stage = self._stage_in(crash, crash.first)
            found.append(Fault(crash.first, crash.last, crash, hits, stage))
        relayed: list[Fault] = []
        for index, here in said.items():
            asked = any("shell" in h.fields for h in here)  # a shell that was asked for a program ends nothing itself
            if (
                index in reports
                or self.lines[index].level in _HANDLED
                or (asked and not any(d.index > index for d in self.deaths))
            ):
                continue
            relay = owner.get(index)
            if says(self._heading_and_reason(index), "error-as-answer"):
                continue
            calls = relay or self._cut_off(index) or self._of_what_only_follows(index)
            stage = self._stage_in(calls, index)
            last, hits = self._with_why(index, here, said) if relay is None else (index, tuple(here))
            checked = self._checked(index) if relay is None and [h.id for h in hits] == ["validation-error"] else None
            last = max(last, checked.last) if checked is not None else last
            (relayed if asked or relay is not None else found).append(Fault(index, last, checked, hits, stage))
        return (
            self._without_titles(found)
            or relayed
            or self._quoted()
            or self._in_heading()
            or self._written()
            or self._bare()
            or self._told()
            or [fault for fault in self.cut_short if not fault.cut]
        )

    def _without_titles(self, found: list[Fault]) -> list[Fault]:
        """Without a report's heading that says in short what the log below it says whole."""
        heads = (f for f in found if f.crash is None and says(self.lines[f.index].text, "heading-of-report"))
        said = [f for f in heads if any(one is not f and one.ids & f.ids for one in found)]
        return [f for f in found if f not in said] or found

    def _ended_its_process(self, crash: Crash) -> bool:
        """Does Python's own word stand above it, that it was the end of a process, or did torch's hook for what nobody
        caught write it? The level is then of a program that passed on what it read from standard error."""
        if says(crash.process or "", "process-of-excepthook"):
            return True
        above = self.lines[crash.first - 1] if crash.first > 0 else None
        mine = above is not None and (above.process, above.pid) == (crash.process, crash.pid)
        return above is not None and mine and says(above.text, "heading-of-dead-process")

    def _only_unwritten(self, crash: Crash) -> bool:
        """Could a line of the log not be written, and no more than that?"""
        return crash.first > 0 and says(self.lines[crash.first - 1].text, "logging-failed")

    def _without_code(self, crash: Crash, told: list[Hit]) -> list[Hit]:
        """A traceback quotes the code that raised what the exception says in its own line: the line is the message."""
        code = {frame.code.strip() for link in crash.links for frame in link.frames}
        own = {h.id for h in told if self.lines[h.index].text.strip() not in code}
        return [h for h in told if h.id not in own or self.lines[h.index].text.strip() not in code]

    def _quoted(self) -> list[Fault]:
        """Where only the parent's line is left: the child's exception that it quotes, whose calls nobody kept."""
        told: list[Fault] = []
        for hit in self.hits:
            error = hit.fields.get("error", "").strip() if hit.id in _QUOTES else ""
            if not error or says(error, "says-nothing"):
                continue
            line = self.lines[hit.index]
            # Only the text is left: of a KeyError that is its key, in quotes.
            kind, error = _as_written(error) or (kind_of(error), error)
            step = read("step-of-v0", error)
            error = step["said"] if step is not None else error
            if not error.strip():
                continue  # a check without words, of which no call is left either
            if _is_symptom(kind, error):
                continue  # the child, too, only tells that another process died
            link = Link(kind, error, (), hit.index)
            crash = Crash((link,), line.process, line.pid, hit.index, hit.index, line.level)
            told.append(Fault(hit.index, hit.index, crash, (), self._stage_in(None, hit.index)))
        return told

    def _written(self) -> list[Fault]:
        """Where only the heading of a record is left: the engine logs `repr(error)` above its traceback (V0's engine,
        `_log_task_completion`), and people quote that line; or a program around vLLM caught the exception, and wrote
        it behind its own word for what failed."""
        told: list[Fault] = []
        for index, line in enumerate(self.lines):
            vllms = line.level in _SERIOUS and line.module
            behind = _behind_words(line.text) if line.level not in _HANDLED else None
            written = behind or (_as_written(line.text.strip()) if vllms else None)
            if written is not None and not _is_symptom(*written):
                link = Link(*written, (), index)
                crash = Crash((link,), line.process, line.pid, index, index, line.level)
                told.append(Fault(index, index, crash, (), self._stage_in(None, index)))
        return told

    def _in_heading(self) -> list[Fault]:
        """Where a report's heading, or a sentence that marks it as code, alone names the exception: the traceback below
        is cut, or was not kept."""
        for index, line in enumerate(self.lines[:_QUOTED]):
            shapes = () if line.module else ("exception-in-backticks", "heading-of-report")
            heading = next((told["what"] for shape in shapes if (told := read(shape, line.text)) is not None), "")
            link = _named_in(heading, index) if heading else None
            if link is None or _is_symptom(link.kind, link.message):
                continue
            # Only a call whose own line raises is the one that the exception left.
            calls = next(iter(self._cut), None)
            last = calls.root.frames[-1] if calls is not None else None
            ends = last is not None and last.by_hand and not last.passes_on
            link = replace(link, frames=calls.root.frames) if calls is not None and ends else link
            crash = Crash((link,), line.process, line.pid, index, index, line.level)
            at = calls.first if calls is not None else index
            return [Fault(index, index, crash, (), self._stage_in(calls, at))]
        return []

    @cached_property
    def cut_short(self) -> tuple[Fault, ...]:
        """The tracebacks that end before their exception: the calls still tell what failed, and a line of code that
        raises what it says."""
        told: list[Fault] = []
        for crash in self._cut:
            last = crash.root.frames[-1]
            # of a build's own check pip tells
            checked = checked_in_code(last.code) if says(last.file, "call-of-vllm") else None
            raised = raised_in_code(last.code) or checked or self._named_above(crash)
            named = Link(*raised, crash.root.frames, crash.last) if raised is not None else crash.root
            whole = replace(crash, links=(named,))
            hits = _said_in([": ".join(raised)], crash.last) if raised is not None else ()
            told.append(Fault(crash.first, crash.last, whole, hits, self._stage_in(whole, crash.first)))
        return tuple(told)

    def _named_above(self, crash: Crash) -> tuple[str, str] | None:
        """The exception of a traceback that was cut, by the line that the same logger wrote above it."""
        if crash.first == 0:
            return None
        above, first = self.lines[crash.first - 1], self.lines[crash.first]
        same = (above.process, above.pid, above.module) == (first.process, first.pid, first.module)
        return named_above(above.text) if same and above.module is not None else None

    @cached_property
    def _cut(self) -> tuple[Crash, ...]:
        """The tracebacks that end before their exception, with their head or without it."""
        cut = (c for c in traceback.tracebacks(self.lines, torn=True)[:CRASHES] if not c.root.name)
        return tuple(c for c in cut if c.level not in _HANDLED and not _of_a_report(c) and not self._of_a_warning(c))

    def _of_a_warning(self, crash: Crash) -> bool:
        """Is it the stack of a warning? An extension module for another NumPy prints it without an exception, and the
        library that loads it then warns at that very call."""
        below = self.lines[crash.last + 1 : crash.last + 2]
        return any(line.text.startswith(f"{crash.files[-1]}:") and says(line.text, "python-warning") for line in below)

    def _bare(self) -> list[Fault]:
        """A logger's error, or a text that no program signed, in the words of an exception that vLLM or a library
        raises, where nobody kept its class, or one that is not called an error."""
        signed = any(line.level for line in self.lines)
        known = {hit.index for hit in self.hits}
        passed_on = self._behind_its_own()
        wanted = [
            (index, line)
            for index, line in enumerate(self.lines if signed else self.lines[:_QUOTED])
            if not signed or index in passed_on or (line.level in _SERIOUS and line.module not in {None, "uvicorn"})
        ]
        told: list[Fault] = []
        for index, line in wanted[-_QUOTED:]:
            link = _as_raised(line.text.strip(), index) if index not in known else None
            if link is not None:
                crash = Crash((link,), line.process, line.pid, index, index, line.level)
                told.append(Fault(index, index, crash, (), self._stage_in(None, index)))
        return told

    def _behind_its_own(self) -> range:
        """The lines behind vLLM's last one of a start that did not come to an end: whoever started the engine within
        its own program catches the exception, and writes it into a log of its own form."""
        last = next((i for i in reversed(range(len(self.lines))) if self.lines[i].module is not None), -1)
        up = self.reached() in {StartupPhase.READY, StartupPhase.SERVING}
        return range(0) if last < 0 or up else range(last + 1, min(len(self.lines), last + 1 + _QUOTED))

    def _told(self) -> list[Fault]:
        """Where no program wrote a line: what a person says of a card's memory, or of a kill for the host's."""
        if not self.by_a_person:
            return []
        said = {hit.index for hit in self.hits if kinds()[hit.id] == "cause"}  # a program's sentence, no person's
        texts = [line.text for line in self.lines]
        told = [(i, TOLD_MEMORY) for i in memory_accounts(texts, of_server=self.of_server)]
        told = told or [(i, TOLD_KILL) for i in kill_accounts(texts, of_server=self.of_server)]
        return [Fault(i, i, None, (Hit(by, i, {}),), self._stage_in(None, i)) for i, by in told if i not in said]

    @cached_property
    def by_a_person(self) -> bool:
        """Are these a few lines of which no program signed one?"""
        return len(self.lines) <= _QUOTED and not any(line.level or line.module for line in self.lines)

    @cached_property
    def _talk(self) -> frozenset[int]:
        texts = [line.text for line in self.lines]
        return memory_talk(texts, of_server=self.of_server) if self.by_a_person else frozenset()

    def _only_talked_of(self, hit: Hit) -> bool:
        """Does a person have a program's words for memory, and no account of a failure?"""
        line = self.lines[hit.index]
        if hit.id in _IN_WORDS and hit.index in self._talk:
            return True
        return hit.id in _OF_ANY and line.level is None and line.module is None and told_of_another(line.text)

    def _informs(self, hit: Hit) -> bool:
        """Does its own writer call it no error: NCCL information, a warning that an optional import failed?"""
        text = self.lines[hit.index].text
        warned = hit.id in IMPORTS and (self._in_warning(hit.index) or says(text, "own-import-warning"))
        return warned or says(text, "information-line")

    def _in_warning(self, index: int) -> bool:
        """Is it a warning of Python's, or a further line of one? The code that warned ends it, two blanks further in
        (Lib/warnings.py, _formatwarnmsg_impl)."""
        if says(self.lines[index].text, "python-warning"):
            return True
        own = (self.lines[index].process, self.lines[index].pid)
        near = range(max(0, index - HEADING), min(len(self.lines), index + HEADING))
        same = [i for i in near if (self.lines[i].process, self.lines[i].pid) == own]
        begun = next((i for i in reversed(same) if i < index and says(self.lines[i].text, "python-warning")), None)
        ended = next((i for i in same if begun is not None and i > begun and self.lines[i].text[:2] == "  "), None)
        if begun is None or ended is None or ended <= index:
            return False
        return not any(self.lines[i].level or traceback.begins(self.lines[i].text) for i in same if begun < i <= ended)

    def _with_why(self, index: int, here: list[Hit], said: dict[int, list[Hit]]) -> tuple[int, tuple[Hit, ...]]:
        """Where pydantic's heading was quoted without its traceback: what the lines right below say is its reason."""
        if not any(h.id == "validation-error" for h in here):
            return index, tuple(here)
        hits = (*here, *(h for i in self._right_below(index) for h in said.get(i, ())))
        return max(h.index for h in hits), hits

    def _checked(self, index: int) -> Crash | None:
        """pydantic's heading in a line of a logger, with its reason right below: the exception, without its calls."""
        line = self.lines[index]
        told = itertools.takewhile(lambda i: not traceback.begins(self.lines[i].text), self._right_below(index))
        below = [i for i in told if self.lines[i].text[:1] == " "]
        if not any(says(self.lines[i].text, "pydantic-reason") for i in below):
            return None
        message = "\n".join((without("exception-head", line.text), *(self.lines[i].text for i in below)))
        link = Link("ValidationError", message, (), index)
        return Crash((link,), line.process, line.pid, index, below[-1], line.level)

    def _right_below(self, index: int) -> tuple[int, ...]:
        """The lines that the same process wrote next."""
        own = (self.lines[index].process, self.lines[index].pid)
        below = range(index + 1, min(len(self.lines), index + 1 + HEADING))
        return tuple(itertools.takewhile(lambda i: (self.lines[i].process, self.lines[i].pid) == own, below))

    def _heading_and_reason(self, index: int) -> str:
        """A line and those right below it, as one text."""
        return " ".join(self.lines[i].text for i in (index, *self._right_below(index)))

    def _cut_off(self, index: int) -> Crash | None:
        """A traceback of the same process right after a line, that the log leaves before it says what it is about."""
        line = self.lines[index]
        near = (c for c in self.crashes[:CRASHES] if index < c.first <= index + HEADING and not c.root.name)
        return next((c for c in near if (c.process, c.pid) == (line.process, line.pid)), None)

    def _of_what_only_follows(self, index: int) -> Crash | None:
        """The traceback right below a library's own word that only says that a call failed: the call that failed."""
        line = self.lines[index]
        if line.process or line.module:
            return None  # vLLM itself wrote it
        near = (c for c in self.crashes[:CRASHES] if index < c.first <= index + FELLOWS)
        return next((c for c in near if _symptom(c) or says(c.root.message, *deferring())), None)

    def _own_lines(self, crash: Crash) -> list[int]:
        """The lines of its process, without those that another call of the logger wrote in between."""
        speaker, module = (crash.process, crash.pid), self.lines[crash.first].module
        between = ((i, self.lines[i]) for i in range(crash.first, crash.last + 1))
        return [i for i, own in between if (own.process, own.pid) == speaker and own.module in {None, module}]

    def _heading(self, crash: Crash) -> list[int]:
        """The lines right before a traceback in which the same speaker already said what it is about (V0 logs both)."""
        speaker = self.lines[crash.first]
        before = range(crash.first - 1, max(-1, crash.first - 1 - HEADING), -1)
        same = itertools.takewhile(lambda i: _speaks_on(self.lines[i], speaker), before)
        return sorted(same)


def _as_raised(text: str, index: int, *, alone: bool = False) -> Link | None:
    """A line as the exception whose words it has: of its own class, which need not be called an error, or of the class
    that is raised in such words."""
    from vllm_doctor.knowledge.said_by import kind_that_says, said_by

    named = read("exception-of-any-class", text)
    if named is not None and said_by(named["kind"], named["message"]) is not None:
        return Link(named["kind"], named["message"], (), index)
    kind = kind_that_says(text, alone=alone) if _could_be_raised(text) else None
    if kind is not None:
        return Link(kind, text, (), index)
    python = read("python-said-alone", text)
    return next((Link(of, said, (), index) for of, said in (python or {}).items() if said), None)


def _named_in(heading: str, index: int) -> Link | None:
    """The exception that a heading names, by its class or in its words."""
    within = exception_within(heading)
    if within is not None:
        return Link(*within, (), index)
    marked = read("marked-as-code", heading)
    parts = (heading, *(heading.partition(mark)[2] for mark in (": ", " - ")))
    said = (marked["what"] if marked is not None else "", *reversed(parts))
    # a heading has no period, and the sentence that it quotes may have one
    links = (_as_raised(text + end, index, alone=True) for text in said if text for end in ("", "."))
    return next((link for link in links if link is not None), None)


def _could_be_raised(text: str) -> bool:
    """Has it words enough to tell a sentence, and is it no warning of Python's, of a shell's or of vLLM's, which raises
    the same words where it is told to?"""
    return text.count(" ") >= _WORDS and not says(text, *_WARNINGS)


def _as_written(text: str) -> tuple[str, str] | None:
    """The class and the message of an exception that its writer logged by `repr`; of a KeyError as its `str` is."""
    written = read("exception-written", text)
    if written is None:
        return None
    message = written.get("one") or written.get("two") or ""
    return written["kind"], repr(message) if written["kind"] == "KeyError" else message


def _behind_words(text: str) -> tuple[str, str] | None:
    """The exception at the end of a line that first says, in its writer's words, what failed."""
    behind = read("exception-behind-words", text)
    if behind is None:
        return None
    return _as_written(behind["what"]) or (behind["kind"], behind.get("message", ""))


def fetches(link: Link) -> bool:
    """Was the server itself the client, of a file that a request names? Then it is the other side that left."""
    return any(says(frame.file, "call-of-fetching") for frame in link.frames)


def _speaks_on(line: LogLine, then: LogLine) -> bool:
    """Did the same line of vLLM's code, in the same process, write both?"""
    return then.module is not None and (line.process, line.pid, line.module) == (then.process, then.pid, then.module)


def _wrapped(crash: Crash) -> tuple[Hit, ...]:
    """Messages that a terminal or a page has broken over several lines."""
    texts = [f"{k.name}: " + " ".join(k.message.split()) for k in crash.links if "\n" in k.message]
    return _said_in(texts, crash.last)


def _said_in(texts: list[str], index: int) -> tuple[Hit, ...]:
    """The messages in these texts."""
    causes = [m for m in messages() if m.kind == "cause" and m.scope == "log"] if texts else []
    read_of = ((m.id, fields) for text in texts for m in causes if (fields := read(m, text)) is not None)
    return tuple(Hit(i, index, fields) for i, fields in read_of)


def _symptom(crash: Crash) -> bool:
    primary = [k for k in crash.links if not _is_symptom(k.kind, k.message) or fetches(k)]
    return not primary


def _of_a_report(crash: Crash) -> bool:
    """Did the program fail that lists the environment for a report? Where torch is there and does not load, or vLLM's
    extension does not, nothing else of that environment will."""
    inner = crash.root.frames[-1].file if crash.root.frames else ""
    unbound = says(crash.root.message, "symbol-undefined")
    if crash.root.kind in {"ImportError", "OSError"} and ("/torch/" in inner or unbound):
        return False
    return any(says(file, "call-of-collect-env") for file in crash.files)


def _is_symptom(kind: str, message: str) -> bool:
    said = message.split("\n", 1)[0]
    return (
        says(kind, "class-that-follows")
        or any(told in said for told in of_exceptions("consequence"))
        or says(message[:_PIECE], "error-as-answer")
    )

"""What failed first in a run, what only followed from it, and whether it ended the run."""

import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from vllm_doctor.log.fault import Fault
from vllm_doctor.log.match import Hit, anchors, deferring, kinds, messages, of_exceptions, read, says
from vllm_doctor.log.run import Run
from vllm_doctor.log.startup_phase import StartupPhase, encodes, phase_at, startup_phase_of
from vllm_doctor.log.traceback import Crash, Link
from vllm_doctor.records.log import LogLine

if TYPE_CHECKING:
    from vllm_doctor.log.torch_oom import TorchOom

_CRASHES = 400
# Lines of an exception's message that its logger writes before the traceback.
_HEADING = 3
# Lines around one in which the other ranks report the same call.
_FELLOWS = 60
# Written at run time only: the notice of a dead engine to a request, and the modules that answer requests.
_RUN_TIME_DEATHS = frozenset({"engine-core-fatal", "engine-dead", "engine-task-failed"})
_ENDS_OF_ENGINES = frozenset({"engine-core-fatal", "engine-task-failed"})
_RUN_TIME_MODULES = ("serving_", "serving.py", "dump_input.py")
# The server's own process, in which no step of the engine runs.
_FRONT_END = ("APIServer", "ApiServer")
# Where a call that opens a capture, the last one that a cut traceback shows, says more than the log before it.
_BEFORE_GRAPHS = frozenset({StartupPhase.CONFIG, StartupPhase.PROFILE, StartupPhase.KV, StartupPhase.WARMUP})
# Calls that make the KV cache and then warm up and capture (V0's worker, V1's executor): what they had come to, the
# lines before tell where no call below them does.
_WITH_WARM_UP = frozenset({"initialize_cache", "initialize_from_config"})
_AFTER_CACHE = frozenset({StartupPhase.WARMUP, StartupPhase.GRAPHS})
# Steps of a start that a call names by itself.
_NAMED_STEPS = frozenset({StartupPhase.KV, StartupPhase.GRAPHS, StartupPhase.WARMUP, StartupPhase.WEIGHTS})
_HANDLED = frozenset({"DEBUG", "INFO", "WARNING"})
_BUILDS = frozenset({"build-failed", "build-failed-command"})
# A parent's lines that quote what its child said.
_QUOTES = frozenset({"worker-error-relay"})
# What people write of memory that ran out, as programs do.
_TOLD = frozenset({"device-oom", "device-oom-class", "cuda-oom"})
# What an allocator of native code prints itself, and what Python raises of it.
_OF_ALLOCATORS = frozenset({"cumem-oom"})
_OUT_OF_MEMORY = frozenset({"torch-oom", "cuda-oom"})
IMPORTS = frozenset({"module-missing", "import-name"})
# Answers, or figures with tokens, that show that others than the request which failed are served.
_OTHERS = 2
# What Python raises in a request whose client has left.
_GONE = frozenset({"CancelledError", "ClientDisconnect", "ConnectionResetError", "BrokenPipeError", "GeneratorExit"})
# No single request ends with these: the port is not had, or the CUDA context of the whole process is gone.
_NEVER_OF_A_REQUEST = frozenset(
    {"address-in-use", "illegal-access", "assert-device", "launch-failure", "misaligned", "ecc", "gpu-lost"}
)


class AnalysedRun(Run):
    """A run, and the fault at the root of it."""

    @cached_property
    def root(self) -> Fault | None:
        """What failed first and for good; None if nothing did."""
        found = [f for f in self.faults if self._fatal(f)]
        found = [f for f in found if not f.at_end] or found
        first = [f for f in found if not self._survivor(f)] or found
        first = [f for f in first if not _wraps(f)] or first
        first = [f for f in first if not self._retold(f)] or first
        first = [f for f in first if not self._announces(f)] or first
        if any(f.ids & IMPORTS for f in first):  # no warning of a device makes a module missing
            first = [f for f in first if not self._warns(f)] or first
        # An exception's line alone, without calls and unknown, is often a library's noise: what has either comes first.
        # So is what a thread or a forgotten task of its own said.
        told = [f for f in first if not f.bare and not self._headed(f, "aside-heading")]
        return min(told or first, key=lambda f: f.index, default=None)

    @cached_property
    def refused(self) -> Fault | None:
        """The last request that failed with a traceback, where nothing shows that another one was answered after it.

        The engine goes on, so it ended nothing; to who sends such requests the server is of no use all the same.
        """
        if self.root is not None or self.deaths or self.is_script:
            return None
        end = len(self.lines) if self.stopped is None else self.stopped
        told_by = ((f, f.crash.root) for f in reversed(self.faults) if f.index < end and f.crash is not None)
        raised = ((f, root) for f, root in told_by if root.frames or self._answers_requests(f.index))
        known = (f for f, root in raised if (root.kind not in _GONE or _fetches(root)) and not self.aside(f))
        found = next(known, None)
        if found is None or not self._request_level(found):
            return None
        if any(found.index <= h.index <= found.last for h in self.all("request-too-long")):
            return None  # anybody tries the limit once; many are a matter of the clients
        # One answer may be this request's own: a stream begins well, a text that no parser reads is sent as it is.
        # So may the first figures be, which tell of the time before, too. A refusal before an answer is its own.
        answered = [h.index for h in self.all("request-ok") if h.index > found.last]
        refusals = (*self.all("request-failed"), *self.all("request-refused"))
        own = bool(answered) and any(found.last < h.index < answered[-1] for h in refusals)
        told = (h.fields for h in self.all("stats") if h.index > found.last)
        working = sum(any(float(fields[f]) for f in ("prompt", "generation")) for fields in told)
        return found if len(answered) + own < _OTHERS and working < _OTHERS else None

    @cached_property
    def oom(self) -> "TorchOom | None":
        """torch's figures in the first fault."""
        root = self.root
        if root is None:
            return None
        texts = [self.lines[h.index].text for h in root.hits if h.id == "torch-oom"]
        from vllm_doctor.log.torch_oom import torch_oom

        links = root.crash.links if root.crash is not None else ()
        # A page breaks a message between words or within one.
        broken = [k.message.splitlines() for k in links if "\n" in k.message]
        whole = [sep.join(part.strip(" " if sep else "\r") for part in parts) for parts in broken for sep in (" ", "")]
        read = [o for o in map(torch_oom, (*texts[:1], *whole)) if o is not None]
        return max(read, key=lambda o: (o.free is not None, o.allocated is not None, o.mine is not None), default=None)

    @cached_property
    def faults(self) -> list[Fault]:
        """Everything that may have failed first. Only the first crashes are looked at: the root is among them."""
        owner: dict[int, Crash] = {}
        reports: set[int] = set()
        said: dict[int, list[Hit]] = {}
        for hit in self.hits:
            if kinds()[hit.id] == "cause" and not self._informs(hit):
                said.setdefault(hit.index, []).append(hit)
        found: list[Fault] = []
        for crash in self.crashes[:_CRASHES]:
            own = self._own_lines(crash)
            owner.update(dict.fromkeys(own, crash))
            if _of_a_report(crash):
                reports.update(own)
            survived = crash.level in _HANDLED and not self._ended_its_process(crash)
            if survived or _symptom(crash) or reports.issuperset(own):
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
            calls = relay or self._cut_off(index) or self._of_what_only_follows(index)
            stage = self._stage_in(calls, index)
            last, hits = self._with_why(index, here, said) if relay is None else (index, tuple(here))
            (relayed if asked or relay is not None else found).append(Fault(index, last, None, hits, stage))
        return found or relayed or self._quoted()

    def _ended_its_process(self, crash: Crash) -> bool:
        """Does Python's own word stand above it, that it was the end of a process? The level is then of a program that
        passed on what it read from standard error."""
        above = self.lines[crash.first - 1] if crash.first > 0 else None
        mine = above is not None and (above.process, above.pid) == (crash.process, crash.pid)
        return above is not None and mine and says(above.text, "heading-of-dead-process")

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
            # The text of a KeyError is its key, as Python prints it.
            link = Link("KeyError" if error[:1] == "'" else "RuntimeError", error, (), hit.index)
            crash = Crash((link,), line.process, line.pid, hit.index, hit.index, line.level)
            told.append(Fault(hit.index, hit.index, crash, (), self._stage_in(None, hit.index)))
        return told

    def _informs(self, hit: Hit) -> bool:
        """Does its own writer call it no error: NCCL information, a warning that an optional import failed?"""
        text = self.lines[hit.index].text
        return says(text, "information-line") or (hit.id in IMPORTS and says(text, "python-warning"))

    def _warns(self, fault: Fault) -> bool:
        """Is it a warning of Python's alone? The program went on."""
        return fault.crash is None and says(self.lines[fault.index].text, "python-warning")

    def _retold(self, fault: Fault) -> bool:
        """Is it a person's title or sentence? No program signed the line, and it begins with other words."""
        line = self.lines[fault.index]
        if fault.crash is not None or not fault.ids <= _TOLD or line.process or line.level or line.module:
            return False
        return not says(line.text.lstrip(), "begins-as-device-oom")

    def _announces(self, fault: Fault) -> bool:
        """Is it an allocator's own line right above the traceback of the same refusal, which has calls and figures?"""
        line = self.lines[fault.index]
        if fault.crash is not None or not fault.ids <= _OF_ALLOCATORS or line.process or line.module:
            return False
        near = (f for f in self.faults if f.crash is not None and 0 < f.index - fault.last <= _HEADING)
        return any(f.ids & _OUT_OF_MEMORY for f in near)

    def _with_why(self, index: int, here: list[Hit], said: dict[int, list[Hit]]) -> tuple[int, tuple[Hit, ...]]:
        """Where pydantic's heading was quoted without its traceback: what the lines right below say is its reason."""
        if not any(h.id == "validation-error" for h in here):
            return index, tuple(here)
        own = (self.lines[index].process, self.lines[index].pid)
        below = range(index + 1, min(len(self.lines), index + 1 + _HEADING))
        why = tuple(itertools.takewhile(lambda i: (self.lines[i].process, self.lines[i].pid) == own, below))
        hits = (*here, *(h for i in why for h in said.get(i, ())))
        return max(h.index for h in hits), hits

    def _cut_off(self, index: int) -> Crash | None:
        """A traceback of the same process right after a line, that the log leaves before it says what it is about."""
        line = self.lines[index]
        near = (c for c in self.crashes[:_CRASHES] if index < c.first <= index + _HEADING and not c.root.name)
        return next((c for c in near if (c.process, c.pid) == (line.process, line.pid)), None)

    def _of_what_only_follows(self, index: int) -> Crash | None:
        """The traceback right below a library's own word that only says that a call failed: the call that failed."""
        line = self.lines[index]
        if line.process or line.module:
            return None  # vLLM itself wrote it
        near = (c for c in self.crashes[:_CRASHES] if index < c.first <= index + _FELLOWS)
        return next((c for c in near if _symptom(c) or says(c.root.message, *deferring())), None)

    def _of_the_parent(self, index: int) -> Sequence[str]:
        """The call that a worker's line is about: as the line names it, or the parent's traceback shows it."""
        line = self.lines[index]
        if (named := read("method-of-worker", line.text)) is not None:
            return (named["method"],)
        if not (line.process or "").startswith(("VllmWorkerProcess", "RayWorkerWrapper")):
            return ()
        parents = (c for c in self.crashes[:_CRASHES] if c.first > index and c.process in {None, "rank0"})
        told = next((c.functions for c in parents if startup_phase_of(c.functions) is not None), ())
        return told or self._of_its_fellows(index)

    def _of_its_fellows(self, index: int) -> Sequence[str]:
        """The call that another worker names in the lines around: all ranks run the same one at a time."""
        near = self.lines[max(0, index - _FELLOWS) : index + _FELLOWS]
        kind = self.lines[index].process
        named = (read("method-of-worker", line.text) for line in near if line.process == kind)
        return next(((said["method"],) for said in named if said is not None), ())

    def _own_lines(self, crash: Crash) -> list[int]:
        """The lines of its process, without those that another call of the logger wrote in between."""
        speaker, module = (crash.process, crash.pid), self.lines[crash.first].module
        between = ((i, self.lines[i]) for i in range(crash.first, crash.last + 1))
        return [i for i, own in between if (own.process, own.pid) == speaker and own.module in {None, module}]

    def _heading(self, crash: Crash) -> list[int]:
        """The lines right before a traceback in which the same speaker already said what it is about (V0 logs both)."""
        speaker = self.lines[crash.first]
        before = range(crash.first - 1, max(-1, crash.first - 1 - _HEADING), -1)
        same = itertools.takewhile(lambda i: _speaks_on(self.lines[i], speaker), before)
        return sorted(same)

    def _stage_in(self, calls: Crash | None, index: int) -> StartupPhase:
        """The stage by a traceback, else by what the parent called."""
        functions = calls.steps if calls is not None else ()
        where = _placed(calls) if calls is not None and startup_phase_of(functions) is None else None
        # A worker's own loop names no step; the line above it, or the parent, may.
        names = () if where is None and startup_phase_of(functions) is None else functions
        stage = where or self._stage(names or self._of_the_parent(index) or functions, index)
        if calls is None:
            return stage
        above = (line.text for line in self.lines[max(0, calls.first - 2) : calls.first])
        frames = [frame for link in calls.links for frame in link.frames]
        codes = [*above, *(frame.code for frame in frames)]
        if stage not in _NAMED_STEPS and any(says(code, "code-of-v0-profile") for code in codes):
            stage = StartupPhase.PROFILE
        if stage in _BEFORE_GRAPHS and any(says(code, "code-of-capture") for code in codes):
            stage = StartupPhase.GRAPHS
        if stage is StartupPhase.CONFIG and calls.files and says(calls.files[-1], "call-of-default-device"):
            stage = StartupPhase.WEIGHTS
        made_in = [frame.function for frame in frames]
        return StartupPhase.PROFILE_ENCODER if encodes(stage, calls.files, codes, made_in) else stage

    def _stage(self, functions: Sequence[str], index: int) -> StartupPhase:
        said = startup_phase_of(functions)
        if said is StartupPhase.KV and startup_phase_of([f for f in functions if f not in _WITH_WARM_UP]) is None:
            reached = self.reached(index + 1)
            return reached if reached in _AFTER_CACHE else said
        if said is not None:
            return said
        near = self.lines[max(0, index - _HEADING) : index + 1]
        if any(says(line.text, "method-of-engine") for line in near):
            return StartupPhase.SERVING  # a client called it: the engine was up
        reached = self.reached(index + 1) or StartupPhase.CONFIG  # the line that fails may itself say how far it came
        return StartupPhase.SERVING if reached is StartupPhase.CONFIG and self._at_run_time(index) else reached

    def _at_run_time(self, index: int) -> bool:
        """In an excerpt without its start: does what stands around the line come from a server that was serving?"""
        near = self.lines[max(0, index - _HEADING) : index + 1]
        if any(line.level == "ERROR" and says(line.text, "v0-step-error") for line in near):
            return True
        dead = any(h.id in _RUN_TIME_DEATHS and h.index - 3 < index + 400 for h in self.deaths)
        return dead or self._answers_requests(index)

    def _answers_requests(self, index: int) -> bool:
        """Did the code that answers requests write this line?"""
        module = (self.lines[index].module or "").rsplit("/", 1)[-1]
        return module.startswith(_RUN_TIME_MODULES)

    def _headed(self, fault: Fault, heading: str) -> bool:
        """Does such a heading stand right above its traceback?"""
        if fault.crash is None:
            return False
        above = self.lines[max(0, fault.crash.first - 2) : fault.crash.first + 1]
        return any(says(line.text, heading) for line in above)

    @cached_property
    def unsettled(self) -> Fault | None:
        """What failed last before any stop, where nothing shows that it was one request: no name of the server's own
        process, and nothing that was served after it."""
        end = len(self.lines) if self.stopped is None else self.stopped
        found = next((f for f in reversed(self.faults) if f.index < end and not self.aside(f)), None)
        if found is None or (self.lines[found.index].process or "").startswith(_FRONT_END):
            return None
        answered = any(a in line.text for line in self.lines[found.last :] for a in anchors("request-ok"))
        return None if answered or self.served(found.last) else found

    def _of_the_server(self, fault: Fault) -> bool:
        """Did the server's own process write it, or one that signs nothing?"""
        return (self.lines[fault.index].process or _FRONT_END[0]).startswith(_FRONT_END)

    def aside(self, fault: Fault) -> bool:
        """Is it the end of a thread, a task or a destructor, and of no process?"""
        return not fault.ids and self._headed(fault, "aside-heading")

    def _survivor(self, fault: Fault) -> bool:
        """Is it a rank that only noticed that another one was gone?"""
        lines = (
            self.lines[i].text for i in (self._own_lines(fault.crash) if fault.crash is not None else (fault.index,))
        )
        return any(told in text for text in lines for told in of_exceptions("symptom"))

    def _fatal(self, fault: Fault) -> bool:
        """It ended the run: nothing was served between it and the death that followed, or the end of the log."""
        death = next((h.index for h in self.deaths if h.index > fault.last), None)
        if self.stopped is not None and fault.index > self.stopped:
            return False
        if fault.crash is not None and self._ended_its_process(fault.crash):
            return True  # others may serve on: another node's front end, another rank of data parallelism
        if not fault.ids and self._headed(fault, "unclaimed-heading"):
            return False
        if fault.ids & _NEVER_OF_A_REQUEST:
            # That the engine became ready says nothing of the server's port.
            port = "address-in-use" in fault.ids and self._of_the_server(fault)
            return not self.served(fault.last, death, least=StartupPhase.SERVING if port else StartupPhase.READY)
        if self._ends_the_engine(fault):
            return True
        outlived = self.stopped is not None and (death is None or death > self.stopped)
        if outlived and fault.startup_phase in {StartupPhase.READY, StartupPhase.SERVING}:
            return False
        if death is None and self._request_level(fault):
            return False
        # An engine becomes ready once: one that was, and failed, starts before it is ready again.
        again = fault.startup_phase in {StartupPhase.READY, StartupPhase.SERVING} and not self._starts(fault.last)
        return not self.served(fault.last, death, least=StartupPhase.SERVING if again else StartupPhase.READY)

    def up_at(self, fault: Fault) -> bool:
        """Was the engine up when this failed? It had become ready, it was in a step of the engine or in a request's.

        Of an excerpt that lacks its start, the calls alone tell.
        """
        return fault.of_a_request or fault.startup_phase is StartupPhase.SERVING or self.served(-1, fault.index)

    def _starts(self, after: int) -> bool:
        """Does a step of a start follow?"""
        return any(i > after and s not in {StartupPhase.READY, StartupPhase.SERVING} for i, s in self.miles)

    def _ends_the_engine(self, fault: Fault) -> bool:
        """Does the engine itself call it fatal? Its process ends then, whatever the server goes on to answer."""
        heads = (h.index for h in self.deaths if h.id in _ENDS_OF_ENGINES)
        return any(fault.index - _HEADING <= i <= fault.last for i in heads)

    def _request_level(self, fault: Fault) -> bool:
        """An error that the API server wrote about one request while the engine went on."""
        line = self.lines[fault.index]
        ready = fault.startup_phase in {StartupPhase.READY, StartupPhase.SERVING} and self.served(-1, fault.index)
        if not ready or line.level not in {"ERROR", "CRITICAL"}:
            return False
        process = line.process or ""
        if process:
            return process.startswith(_FRONT_END)
        # One process is all of them: what the engine's own step raised, or what says what it is, ends the engine.
        return not fault.ids and startup_phase_of(fault.functions) is not StartupPhase.SERVING


def _fetches(link: Link) -> bool:
    """Was the server itself the client, of a file that a request names? Then it is the other side that left."""
    return any(says(frame.file, "call-of-fetching") for frame in link.frames)


def _placed(crash: Crash) -> StartupPhase | None:
    """The stage by the places of the calls, and by what the last line of each shows that it calls."""
    frames = [frame for link in crash.links for frame in link.frames]
    found = phase_at([frame.file for frame in frames], [frame.function for frame in frames])
    return found or (
        StartupPhase.WEIGHTS if any(says(name, "function-of-weights") for name in crash.functions) else None
    )


def _speaks_on(line: LogLine, then: LogLine) -> bool:
    """Did the same line of vLLM's code, in the same process, write both?"""
    return then.module is not None and (line.process, line.pid, line.module) == (then.process, then.pid, then.module)


def _wrapped(crash: Crash) -> tuple[Hit, ...]:
    """Messages that a terminal or a page has broken over several lines."""
    texts = [f"{k.name}: " + " ".join(k.message.split()) for k in crash.links if "\n" in k.message]
    causes = [m for m in messages() if m.kind == "cause" and m.scope == "log"] if texts else []
    read_of = ((m.id, fields) for text in texts for m in causes if (fields := read(m, text)) is not None)
    return tuple(Hit(i, crash.last, fields) for i, fields in read_of)


def _symptom(crash: Crash) -> bool:
    primary = [k for k in crash.links if not _is_symptom(k.kind, k.message) or _fetches(k)]
    return not primary


def _wraps(fault: Fault) -> bool:
    """Does it only tell that a child failed, which says itself what it is?"""
    links = fault.crash.links if fault.crash is not None and not fault.hits else ()
    return bool(links) and all(says(f"{k.kind}: {k.message}", "wraps-a-child") for k in links)


def _of_a_report(crash: Crash) -> bool:
    """Did the program fail that lists the environment for a report?"""
    return any(says(file, "call-of-collect-env") for file in crash.files)


def _is_symptom(kind: str, message: str) -> bool:
    said = message.split("\n", 1)[0]
    return says(kind, "class-that-follows") or any(told in said for told in of_exceptions("consequence"))

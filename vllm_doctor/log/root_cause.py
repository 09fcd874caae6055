"""What failed first in a run, what only followed from it, and whether it ended the run."""

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from vllm_doctor.log.between_ranks import without_those_that_waited
from vllm_doctor.log.failing_page import page_fails
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.fault_phase import HEADING
from vllm_doctor.log.faults_of_run import IMPORTS, TOLD_MEMORY, RunWithFaults, fetches
from vllm_doctor.log.match import Hit, anchors, of_exceptions, places, read, said_as_warning, says
from vllm_doctor.log.run import ANNOUNCED
from vllm_doctor.log.sentence_call import with_its_call
from vllm_doctor.log.startup_phase import OF_A_START, StartupPhase, startup_phase_of
from vllm_doctor.log.told_calls import BEFORE, BEHIND, told_calls
from vllm_doctor.log.told_step import told_step, with_memory
from vllm_doctor.log.told_text import is_prose
from vllm_doctor.log.traceback import Crash, Link
from vllm_doctor.log.unpickled import as_raised
from vllm_doctor.records.log import FRONT_END, LogLine

if TYPE_CHECKING:
    from vllm_doctor.log.torch_oom import TorchOom

_ENDS_OF_ENGINES = frozenset({"engine-core-fatal", "engine-task-failed"})
# The loop of V1's engine, in its own process: what leaves it ends the engine (v1/engine/core.py, run_engine_core).
_ENGINE_LOOP = frozenset({"run_busy_loop", "_process_engine_step"})
# What people write of memory that ran out, as programs do.
_TOLD = frozenset({"device-oom", "device-oom-class", "device-oom-async", "cuda-oom"})
# What an allocator of native code prints itself, and what Python raises of it.
_OF_ALLOCATORS = frozenset({"cumem-oom"})
_OUT_OF_MEMORY = frozenset({"torch-oom", "cuda-oom"})
_OF_XLA = frozenset({"device-oom-xla", "device-oom-program"})
_MEMORY = (
    _TOLD
    | _OF_ALLOCATORS
    | _OUT_OF_MEMORY
    | _OF_XLA
    | {TOLD_MEMORY, "oom-nvml", "device-oom-retyped", "device-oom-words", "cpu-allocator"}
)
# Messages that say how much was asked for.
_WITH_FIGURES = frozenset({"torch-oom", "device-oom-class", *_OF_XLA})
# Answers, or figures with tokens, that show that others than the request which failed are served.
_OTHERS = 2
# The answers that a server writes to its access log, and the one that says that the request is wrong.
_WRONG = "request-refused"
_ANSWERS = ("request-ok", "request-failed", _WRONG)
# What Python raises in a request whose client has left.
_GONE = frozenset({"CancelledError", "ClientDisconnect", "ConnectionResetError", "BrokenPipeError", "GeneratorExit"})
# No single request ends with these: the port is not had, or the CUDA context of the whole process is gone.
_NEVER_OF_A_REQUEST = frozenset(
    {"address-in-use", "illegal-access", "assert-device", "launch-failure", "misaligned", "ecc", "gpu-lost"}
)

# Who asked for the memory; whom the kernel killed for it, another line says.
_ASKED = frozenset({"oom-invoked"})
# Where a program's own code begins: a script, and `python -m`.
_OUTERMOST = frozenset({"<module>", "_run_module_as_main"})


class AnalysedRun(RunWithFaults):
    """A run, and the fault at the root of it."""

    @cached_property
    def root(self) -> Fault | None:
        """What failed first and for good; None if nothing did."""
        found = [f for f in self.faults if self._fatal(f)]
        found = [f for f in found if not f.at_end] or found
        found = [f for f in found if not self._goes_on(f)] or found
        first = [f for f in found if not self._survivor(f)] or found
        first = [f for f in first if not _wraps(f)] or first
        first = without_those_that_waited(first, self.lines)
        first = [f for f in first if not self._retold(f)] or first
        first = [f for f in first if not self._announces(f)] or first
        if any(f.ids & IMPORTS for f in first):  # no warning of a device makes a module missing
            first = [f for f in first if not self._warns(f)] or first
        first = [f for f in first if not self._outlived(f, first)] or first
        # An exception's line alone, without calls and unknown, is often a library's noise: what has either comes first.
        # So is what a thread or a forgotten task of its own said.
        told = [f for f in first if not f.bare and not self._headed(f, "aside-heading")]
        root = min(told or first, key=lambda f: f.index, default=None)
        if root is None:
            return None
        return with_its_call(self._retold_calls(as_raised(root)), self.version or self.told_version)

    @cached_property
    def cut_root(self) -> Fault | None:
        """Where nothing says what failed: the first traceback for good that ends before its exception."""
        if self.root is not None:
            return None
        return next((fault for fault in self.cut_short if fault.cut and self._fatal(fault)), None)

    @cached_property
    def placed_by_words(self) -> bool:
        """Does a person's sentence alone tell what failed, or in which step memory ran out?"""
        root = self.root
        if root is not None and root.ids & _MEMORY:
            return TOLD_MEMORY in root.ids or self.told_only(root.index, root.crash)
        if not self.by_a_person or (root is not None and root.crash is not None and root.crash.root.frames):
            return False
        said = self.hits if root is None else root.hits
        return bool(said) and all(self._within_a_sentence(hit) for hit in said)

    def _within_a_sentence(self, hit: Hit) -> bool:
        """Does a person's sentence have a program's words in its middle, or retell them?"""
        line = self.lines[hit.index]
        own = line.text[: line.text.rfind(" [")] if line.text.endswith("]") else line.text
        if read(hit.id, line.text) is not None and read(hit.id, own) is None:
            return True
        begins = min((first for first, _ in places(hit.id, own)), default=0)
        return not hit.fields and is_prose(own[:begins])

    def _retold_calls(self, fault: Fault) -> Fault:
        """Memory that ran out, with the calls that people name beside it where no traceback of it was kept."""
        crash = fault.crash
        if not fault.ids & _MEMORY or (crash is not None and any(link.frames for link in crash.links)):
            return fault
        first = max(0, fault.index - BEFORE)
        near = [(i, line) for i, line in enumerate(self.lines[first : fault.last + BEHIND + 1], first)]
        # What a program's logger wrote names its own code; another traceback has its own calls, as has each behind it.
        others = [
            c
            for c in self.crashes
            if c is not crash and any((link.name or c.first > fault.index) and link.frames for link in c.links)
        ]
        # Python's own warning names who warns, and shows that line below.
        warned = {j for i, line in near if says(line.text, "python-warning") for j in (i, i + 1)}
        frames = told_calls(
            line
            for i, line in near
            if (i == fault.index or (line.module is None and i not in warned))
            and not any(c.first <= i <= c.last for c in others)
        )
        own = self.lines[fault.index]
        if not any(frame.function or frame.file for frame in frames) or _says_where(own):
            return fault
        link = crash.root if crash is not None else Link("RuntimeError", own.text.strip(), (), fault.index)
        told = Crash(
            (Link(link.name, link.message, frames, link.at),), own.process, own.pid, fault.index, fault.last, own.level
        )
        stage = self._stage_in(told, fault.index)
        return Fault(fault.index, fault.last, told, fault.hits, stage)

    @cached_property
    def refused(self) -> Fault | None:
        """The last request that failed with a traceback, where nothing shows that another one was answered after it.

        The engine goes on, so it ended nothing; to who sends such requests the server is of no use all the same.
        """
        if self.root is not None or self.deaths or self.is_script:
            return None
        end = len(self.lines) if self.stopped is None else self.stopped
        all_told = self.faults or self.cut_short
        told_by = ((f, f.crash.root) for f in reversed(all_told) if f.index < end and f.crash is not None)
        told_by = ((f, root) for f, root in told_by if not self._goes_on(f))
        raised = ((f, root) for f, root in told_by if root.frames or self._answers_requests(f.index))
        known = (f for f, root in raised if (root.kind not in _GONE or fetches(root)) and not self.aside(f))
        found = next(known, None)
        if found is None or not self._request_level(found):
            return None
        if any(found.index <= h.index <= found.last for h in self.all("request-too-long")):
            return None  # anybody tries the limit once; many are a matter of the clients
        if page_fails(self.lines, found):
            return found  # other requests say nothing of this page
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
        texts = [self.lines[h.index].text for h in root.hits if h.id in _WITH_FIGURES]
        from vllm_doctor.log.torch_oom import torch_oom

        links = root.crash.links if root.crash is not None else ()
        # A page breaks a message between words or within one.
        broken = [k.message.splitlines() for k in links if "\n" in k.message]
        whole = [sep.join(part.strip(" " if sep else "\r") for part in parts) for parts in broken for sep in (" ", "")]
        read = [o for o in map(torch_oom, (*texts[:1], *whole)) if o is not None]
        return max(read, key=lambda o: (o.free is not None, o.allocated is not None, o.mine is not None), default=None)

    def _warns(self, fault: Fault) -> bool:
        """Is it a warning of Python's alone? The program went on."""
        return fault.crash is None and says(self.lines[fault.index].text, "python-warning")

    def warned_of(self, fault: Fault) -> bool:
        """Does its writer call it a warning, and no call belong to it? The program went on from there."""
        called = fault.crash is not None and any(link.frames for link in fault.crash.links)
        if called or says(self.lines[fault.index].text, "warning-that-explains"):
            return False
        line = self.lines[fault.index]  # of some loggers the level is read away with the time
        return any(says(told, "signed-as-warning") for told in (line.text, line.excerpt))

    def _outlived(self, fault: Fault, among: list[Fault]) -> bool:
        """Did something fail behind a warning which, as far as the catalogue knows, nobody writes as one?

        What is a warning in its own samples may be the reason of what follows.
        """
        if fault.ids & said_as_warning() or not self.warned_of(fault):
            return False
        later = [f for f in among if f.index > fault.index and not self.warned_of(f)]
        if not says(self.lines[fault.index].text, "warning-of-nccl"):
            return bool(later)
        # What NCCL warns of last is the reason that its own error leaves out.
        return any(not _of_nccl(f) or self._nccl_went_on(fault.index, f.index) for f in later)

    def _nccl_went_on(self, first: int, last: int) -> bool:
        """Did NCCL tell of its next step between these lines, and not only pass an error on?"""
        return any(says(line.text, "nccl-goes-on") for line in self.lines[first + 1 : last])

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
        near = (f for f in self.faults if f.crash is not None and 0 < f.index - fault.last <= HEADING)
        return any(f.ids & _OUT_OF_MEMORY for f in near)

    def _headed(self, fault: Fault, heading: str) -> bool:
        """Does such a heading stand right above its traceback?"""
        if fault.crash is None:
            return False
        above = self.lines[max(0, fault.crash.first - 2) : fault.crash.first + 1]
        return any(says(line.text, heading) for line in above)

    @cached_property
    def of_another(self) -> Fault | None:
        """What no request explains and nobody says to have survived, beside a server that serves: another process
        failed, whose lines stand in the same text."""
        end = len(self.lines) if self.stopped is None else self.stopped
        told = (f for f in self.faults if f.index < end and (f.ids - _ASKED or f.functions) and not self.aside(f))
        told = (f for f in told if not self._beside(f))
        told = (f for f in told if not (self._goes_on(f) or self._request_level(f) or self._begun_again(f.last)))
        # What vLLM can do without it tries to import, and logs that it could not.
        return next((f for f in told if f.functions or not f.ids <= IMPORTS or not self.lines[f.index].module), None)

    @cached_property
    def unsettled(self) -> Fault | None:
        """What failed last before any stop, where nothing shows that it was one request: no name of the server's own
        process, and nothing that was served after it."""
        end = len(self.lines) if self.stopped is None else self.stopped
        told = (f for f in reversed(self.faults) if f.index < end and not self.aside(f) and not self._goes_on(f))
        found = next((f for f in told if not self._beside(f)), None)
        if found is None or (self.lines[found.index].process or "").startswith(FRONT_END):
            return None
        answered = any(a in line.text for line in self.lines[found.last :] for a in anchors("request-ok"))
        return None if answered or self.served(found.last) else found

    def _beside(self, fault: Fault) -> bool:
        """Did a container write it in which nothing of vLLM's speaks, beside one in which it does?"""
        stream = self.lines[fault.index].stream
        return stream is not None and bool(self.own_streams) and stream not in self.own_streams

    def _of_the_server(self, fault: Fault) -> bool:
        """Did the server's own process write it, or one that signs nothing?"""
        return (self.lines[fault.index].process or FRONT_END[0]).startswith(FRONT_END)

    def aside(self, fault: Fault) -> bool:
        """Is it the end of a thread, a task or a destructor, and of no process?"""
        return not fault.ids and self._headed(fault, "aside-heading")

    def _goes_on(self, fault: Fault) -> bool:
        """Does the record that holds its traceback say that the program goes on without what failed?"""
        crash = fault.crash
        if crash is None or self._ended_its_process(crash):
            return False
        return any(says(self.lines[i].text, "says-it-goes-on") for i in self._heading(crash))

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
        if self._beside(fault) and self.served():
            return False
        if fault.crash is not None and self._ended_its_process(fault.crash):
            return True  # others may serve on: another node's front end, another rank of data parallelism
        if death is None and self._goes_on(fault):
            return False
        if not fault.ids and self._headed(fault, "unclaimed-heading"):
            return False
        if self._ends_a_start(fault):
            return not self._begun_again(fault.last)  # who serves on is another server, which has no name here either
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
        least = StartupPhase.SERVING if again else StartupPhase.READY
        engine = (fault.crash.process, fault.crash.pid) if fault.crash is not None else (None, None)
        return not self.served(fault.last, death, least=least, engine=engine)

    def up_at(self, fault: Fault) -> bool:
        """Was the engine up when this failed? It had become ready, it was in a step of the engine or in a request's.

        Of an excerpt that lacks its start, the calls alone tell.
        """
        told = fault.of_a_request or fault.startup_phase is StartupPhase.SERVING or self.served(until=fault.index)
        # V0's engine has its background task once requests come
        heads = (hit.index for hit in self.deaths if hit.id == "engine-task-failed")
        told = told or any(fault.index - HEADING <= i <= fault.last for i in heads)
        # statistics below it, and no start between them, are those of a server that was up before
        return told or (any(h.index > fault.last for h in self.all("stats")) and not self._starts(fault.last))

    def _starts(self, after: int) -> bool:
        """Does a step of a start follow?"""
        return any(i > after and s not in {StartupPhase.READY, StartupPhase.SERVING} for i, s in self.miles)

    def _ends_the_engine(self, fault: Fault) -> bool:
        """Does the engine itself call it fatal? Its process ends then, whatever the server goes on to answer."""
        heads = (h.index for h in self.deaths if h.id in _ENDS_OF_ENGINES)
        in_its_loop = not _ENGINE_LOOP.isdisjoint(fault.functions)
        return in_its_loop or any(fault.index - HEADING <= i <= fault.last for i in heads)

    def _ends_a_start(self, fault: Fault) -> bool:
        """Is it what no server outlives: a step of its start that failed, or an exception that left its command?"""
        crash = fault.crash
        if crash is None or fault.of_a_request:
            return False
        if self._start_failed(crash) or startup_phase_of(fault.functions) in OF_A_START:
            return True
        raw = self.lines[crash.first].module is None and self.lines[crash.first].level is None
        return (
            raw
            and any(link.frames[0].function in _OUTERMOST for link in crash.links if link.frames)
            and (any(says(file, "call-of-the-command", "call-of-a-server") for file in fault.files))
        )

    def _begun_again(self, after: int) -> bool:
        """Does another start begin below this line, and come to its end?"""
        begun = next((h.index for h in self.hits if h.index > after and h.id in ANNOUNCED), None)
        return begun is not None and self.served(begun)

    def answered_as_wrong(self, fault: Fault) -> bool:
        """Does the server call the request itself wrong (400), in the next answer that it writes?"""
        answers = (hit for told in _ANSWERS for hit in self.all(told) if hit.index > fault.last)
        return getattr(min(answers, key=lambda hit: hit.index, default=None), "id", "") == _WRONG

    def _request_level(self, fault: Fault) -> bool:
        """An error that the API server wrote about one request while the engine went on."""
        line = self.lines[fault.index]
        serving = fault.startup_phase in {StartupPhase.READY, StartupPhase.SERVING} or self.answered_as_wrong(fault)
        ready = serving and (fault.of_a_request or self.served(until=fault.index))
        near = reversed(self.lines[max(0, fault.index - HEADING) : fault.index])
        above = next((one for one in near if one.process == line.process), line)  # others write in between
        signed = above if line.level is None and above.module == "uvicorn" else line  # it writes its heading above
        if not ready or signed.level not in {"ERROR", "CRITICAL"}:
            return False
        process = line.process or ""
        if process:
            return process.startswith(FRONT_END)
        # One process is all of them: what the engine's own step raised, or what says what it is, ends the engine.
        return not fault.ids and startup_phase_of(fault.functions) is not StartupPhase.SERVING


def _of_nccl(fault: Fault) -> bool:
    """Is it an error of NCCL's?"""
    root = fault.crash.root if fault.crash is not None else None
    named = root is not None and "nccl" in f"{root.kind} {root.message}".lower()
    return named or any(told.startswith("nccl") for told in fault.ids)


def _wraps(fault: Fault) -> bool:
    """Does it only tell that a child failed, which says itself what it is?"""
    links = fault.crash.links if fault.crash is not None and not fault.hits else ()
    return bool(links) and all(says(f"{k.kind}: {k.message}", "wraps-a-child") for k in links)


def _says_where(line: LogLine) -> bool:
    """Does the sentence that speaks of memory name the step itself, and no call? A call in another one is talk."""
    said = [msgspec.structs.replace(line, text=line.text[first:last]) for first, last in with_memory(line.text)]
    whole = len(said) == 1 and said[0].text.strip() == line.text.strip()
    return bool(said) and not whole and not told_calls(said) and told_step([one.text for one in said], 0) is not None

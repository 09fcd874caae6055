"""What a life's log tells, in order: how far the start came, what failed first, what followed from it, how it ended."""

import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from vllm_doctor.knowledge.messages import Hit, messages, mile_stages, read, roles, scan
from vllm_doctor.knowledge.pattern import Pattern
from vllm_doctor.knowledge.stages import Stage, stage_of
from vllm_doctor.knowledge.tracebacks import Crash, tracebacks
from vllm_doctor.records.host import Launch
from vllm_doctor.records.log import Log, LogLine

if TYPE_CHECKING:
    from vllm_doctor.knowledge.clients import Client
    from vllm_doctor.knowledge.stats import Stats
    from vllm_doctor.knowledge.torch_oom import TorchOom

_ORDER = {stage: rank for rank, stage in enumerate(Stage)}

# Exceptions that only say that another process, or a person, ended this one.
_SYMPTOM_KINDS = frozenset(
    {
        "EngineDeadError",
        "AsyncEngineDeadError",
        "MQEngineDeadError",
        "EngineGenerateError",
        "SystemExit",
        "CancelledError",
        "BrokenPipeError",
        "ConnectionResetError",
        "ClientDisconnect",
        "BrokenProcessPool",
        "ExceptionGroup",
        "TaskGroupError",
    }
)
_SYMPTOM_TEXTS = (
    "initialization failed. See root cause above",
    "WorkerProc initialization failed",
    "Engine process failed to start",
    "Worker failed with error",
    "Background loop is not running",
    "Background loop has errored",
    "Background loop is stopped",
    "Engine loop is not running",
    "cancelled",
    "Failed core proc",
    "Task finished unexpectedly. This should never happen",
    "VllmWorker rank",
    "worker died",
    "ensure_kv_transfer_shutdown",
)
_CRASHES = 400
# Lines of an exception's message that its logger writes before the traceback.
_HEADING = 3
# Written at run time only: the notice of a dead engine to a request, and the modules that answer requests.
_RUN_TIME_DEATHS = frozenset({"engine-core-fatal", "engine-dead"})
_RUN_TIME_MODULES = ("serving_", "serving.py", "dump_input.py")
# How the V0 engine's loop logs what a step raised; its start logs the message alone.
_REPR = Pattern(r"[A-Z]\w*(?:Error|Exception)\(['\"]")
_HANDLED = frozenset({"DEBUG", "INFO", "WARNING"})
# As Python's `warnings` write one: a library that warns of an import that failed goes on without it.
_WARNED = Pattern(r"\S+:\d+: \w*Warning: ")
_IMPORTS = frozenset({"module-missing", "import-name"})
# What only vLLM writes, or lm-eval of it, though it is no step of a start: its own end, a batch and its results.
_OWN_WORDS = ("server-shutdown", "shutdown-marker", "engine-shutdown", "offline-progress", "eval-results")
_PROCESSES = Pattern(r"APIServer|ApiServer|EngineCore|VllmWorker|RayWorkerWrapper|Worker(?:_|$)")
# What an API server and an engine say once, when they begin.
_ANNOUNCED = ("server-version", "banner-version", "args-non-default", "args-namespace", "engine-config")
# What uvicorn writes of an answered request.
_ANSWERED = '" 200 OK'
# Calls of vLLM's own that no client makes.
_OF_A_SERVER = Pattern(
    r"[/\\]vllm[/\\](?:v1|engine|worker|executor|model_executor|distributed|compilation|entrypoints[/\\](?!cli))"
)
# What torch writes when the interpreter of a process with NCCL comes to its end.
_EXITS = ("exit-group-left", "exit-group-left-24")
# Headings of what ends a thread, a task or a destructor, and no process.
_ASIDE = Pattern(r"Exception in thread |Exception ignored in|Task exception was never retrieved|future: <Task ")
_UNCLAIMED = Pattern(r"Exception ignored in|Task exception was never retrieved|future: <Task ")
# What a rank says whose partner is gone: it did not fail first, whatever the order of the lines.
_SURVIVOR_TEXTS = (
    "ncclRemoteError",
    "remote process exited",
    "Connection closed by peer",
    "Did the remote server shutdown or crash",
    "store->get('0') got error",
    "recvValue failed",
    "failed to recv, got 0 bytes",
)
# Functions that take the ranks' groups down: what fails in them comes after what ended the server.
_TEARDOWN = frozenset(
    {
        "destroy_process_group",
        "destroy_model_parallel",
        "destroy_distributed_environment",
        "cleanup_dist_env_and_memory",
        "_shutdown_backend",
    }
)
# As V0's processes name the call that a worker did not survive.
_METHOD = Pattern(r"(?:while processing method|Error executing method) (\w+)")
# No single request ends with these: the port is not had, or the CUDA context of the whole process is gone.
_NEVER_OF_A_REQUEST = frozenset(
    {"address-in-use", "illegal-access", "assert-device", "launch-failure", "misaligned", "ecc", "gpu-lost"}
)


class Fault(msgspec.Struct, frozen=True):
    """What failed first: the lines `index` to `last`, with its traceback and the messages in it."""

    index: int
    last: int
    crash: Crash | None
    hits: tuple[Hit, ...]
    stage: Stage

    @property
    def bare(self) -> bool:
        """Is it only an exception's own line, that nothing here knows?"""
        return not self.hits and self.crash is not None and not any(k.frames for k in self.crash.links)

    @property
    def ids(self) -> frozenset[str]:
        """Ids of the messages in it."""
        return frozenset(h.id for h in self.hits)

    def fields(self, message: str) -> dict[str, str]:
        """The fields of its first message of this id; empty if there is none."""
        return next((h.fields for h in self.hits if h.id == message), {})

    @property
    def functions(self) -> tuple[str, ...]:
        """Functions of its traceback, outermost first."""
        return self.crash.functions if self.crash is not None else ()

    @property
    def at_end(self) -> bool:
        """Did it fail while the ranks' groups were taken down?"""
        return not _TEARDOWN.isdisjoint(self.functions)

    @property
    def files(self) -> tuple[str, ...]:
        """Files of its traceback, outermost first."""
        return tuple(f.file for link in self.crash.links for f in link.frames) if self.crash is not None else ()


class Story:
    """One life, read once; every part is computed when a rule first asks for it."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.lines: Sequence[LogLine] = log.last.lines

    @cached_property
    def hits(self) -> tuple[Hit, ...]:
        """Every known message of this life."""
        return scan(self.lines)

    @cached_property
    def crashes(self) -> tuple[Crash, ...]:
        """Every traceback of this life."""
        return tracebacks(self.lines)

    def all(self, message: str) -> tuple[Hit, ...]:
        """The hits of one message, in order."""
        return self._by_id.get(message, ())

    def first(self, *wanted: str) -> Hit | None:
        """The first hit of any of these messages."""
        found = [h for m in wanted for h in self.all(m)[:1]]
        return min(found, key=lambda h: h.index, default=None)

    def last(self, *wanted: str) -> Hit | None:
        """The last hit of any of these messages."""
        found = [h for m in wanted for h in self.all(m)[-1:]]
        return max(found, key=lambda h: h.index, default=None)

    def number(self, message: str, field: str) -> float | None:
        """A figure that this life printed; of several the last one stands."""
        hit = self.last(message)
        text = hit.fields.get(field) if hit is not None else None
        return float(text.replace(",", "")) if text else None

    @cached_property
    def _by_id(self) -> dict[str, tuple[Hit, ...]]:
        grouped: dict[str, list[Hit]] = {}
        for hit in self.hits:
            grouped.setdefault(hit.id, []).append(hit)
        return {k: tuple(v) for k, v in grouped.items()}

    @cached_property
    def is_vllm(self) -> bool:
        """Does anything here come from vLLM? A log of another program says nothing about it."""
        if any(mile_stages().get(h.id) not in {None, "serving"} or roles().get(h.id) == "death" for h in self.hits):
            return True
        if self._own:
            return True
        if any(
            "vllm" in f.file.replace("\\", "/").split("/") or "/vllm/" in f.file
            for c in self.crashes
            for k in c.links
            for f in k.frames
        ):
            return True
        return self.first("stats", "args-non-default", "args-namespace") is not None or any(
            "vllm" in line.text.lower() for line in self.lines[:2000]
        )

    @cached_property
    def by_vllm(self) -> bool:
        """Did vLLM itself write here, rather than a program that speaks of it? Only then can it be said to be well."""
        stages = mile_stages()
        own = any(stages.get(h.id, "serving") != "serving" for h in self.hits)
        return own or self._own or self.first("stats", "args-non-default", "args-namespace") is not None

    @cached_property
    def _own(self) -> bool:
        """Do its processes sign the lines, or is there a sentence that no other program has?"""
        return self.first(*_OWN_WORDS) is not None or any(_PROCESSES.match(line.process or "") for line in self.lines)

    @cached_property
    def answered(self) -> bool:
        """Were requests answered? An answer begins before a token is made, so it says nothing of a fault beside it."""
        return any(_ANSWERED in line.text for line in self.lines)

    @cached_property
    def client(self) -> "Client | None":
        """Is it the log of a program that asks a server? What wrote a line as a server does is none."""
        if self.by_vllm or self.answered or any(_OF_A_SERVER.search(f) for c in self.crashes for f in _files(c)):
            return None
        from vllm_doctor.knowledge.clients import MEASURES, client

        found = client(line.text for line in self.lines)
        return found if found is not None and (self.is_vllm or found.name in MEASURES) else None

    @cached_property
    def exited(self) -> bool:
        """Did the program come to its end by itself, with its engine made, or with the results of an evaluation?"""
        reached = self.reached()
        made = reached is not None and _ORDER[reached] >= _ORDER[Stage.KV]
        return self.first("eval-results") is not None or (made and self.first(*_EXITS) is not None)

    @cached_property
    def is_script(self) -> bool:
        """Is it a script that had its answers, whose engine ends with it?"""
        return (
            self.first("offline-progress") is not None and self.first("app-started", "uvicorn-running", "stats") is None
        )

    @cached_property
    def version(self) -> str | None:
        """The version that the log prints."""
        hit = self.last("engine-config") or self.last("server-version") or self.last("banner-version")
        return hit.fields.get("version") if hit is not None else None

    @cached_property
    def engine(self) -> str | None:
        """V0 or V1 where the log says it."""
        hit = self.last("engine-config")
        return hit.fields.get("engine") if hit is not None else None

    @cached_property
    def launch(self) -> Launch | None:
        """The launch as the server printed it; None where it did not."""
        from vllm_doctor.knowledge.launchline import from_log_arguments

        hit = self.last("args-non-default", "args-namespace")
        return from_log_arguments(self.lines[hit.index].text) if hit is not None else None

    @cached_property
    def config(self) -> dict[str, str | bool]:
        """What the engine said it runs with."""
        from vllm_doctor.knowledge.launchline import from_engine_config

        hit = self.first("engine-config")
        return from_engine_config(self.lines[hit.index].text) if hit is not None else {}

    @cached_property
    def miles(self) -> tuple[tuple[int, Stage], ...]:
        """(index, stage) of each milestone."""
        stages = mile_stages()
        return tuple((h.index, Stage(stages[h.id])) for h in self.hits if h.id in stages)

    def reached(self, before: int | None = None) -> Stage | None:
        """The furthest stage that was reached (before a line)."""
        found = [s for i, s in self.miles if before is None or i < before]
        return max(found, key=_ORDER.__getitem__, default=None)

    def served(self, after: int, until: int | None = None) -> bool:
        """Did it serve, or become ready to, between two lines?"""
        ready = _ORDER[Stage.READY]
        return any(after < i and (until is None or i < until) and _ORDER[s] >= ready for i, s in self.miles)

    @cached_property
    def stats(self) -> "tuple[Stats, ...]":
        """The statistics that the server printed every few seconds, in order."""
        from vllm_doctor.knowledge.stats import parse_stats

        read = (parse_stats(self.lines[h.index].text) for h in self.all("stats"))
        return tuple(s for s in read if s is not None)

    @cached_property
    def stopped(self) -> int | None:
        """Where an orderly end begins: a signal from outside, a person's interrupt, a job that was cancelled.

        What stands before a line with which a start announces itself ended something else, in the same terminal.
        """
        begun = self.last(*_ANNOUNCED)
        after = begun.index if begun is not None else -1
        return next((h.index for h in self.hits if roles().get(h.id) == "stop" and h.index > after), None)

    @cached_property
    def deaths(self) -> tuple[Hit, ...]:
        """Notices that something died; effects, never causes."""
        return tuple(h for h in self.hits if roles().get(h.id) == "death")

    @cached_property
    def root(self) -> Fault | None:
        """What failed first and for good; None if nothing did."""
        found = [f for f in self._candidates() if self._fatal(f)]
        found = [f for f in found if not f.at_end] or found
        first = [f for f in found if not self._survivor(f)] or found
        # An exception's line alone, without calls and unknown, is often a library's noise: what has either comes first.
        # So is what a thread or a forgotten task of its own said.
        told = [f for f in first if not f.bare and not self._headed(f, _ASIDE)]
        return min(told or first, key=lambda f: f.index, default=None)

    @cached_property
    def oom(self) -> "TorchOom | None":
        """torch's figures in the first fault."""
        root = self.root
        if root is None:
            return None
        texts = [self.lines[h.index].text for h in root.hits if h.id == "torch-oom"]
        from vllm_doctor.knowledge.torch_oom import torch_oom

        links = root.crash.links if root.crash is not None else ()
        whole = [" ".join(k.message.split()) for k in links if "\n" in k.message]
        read = [o for o in map(torch_oom, (*texts[:1], *whole)) if o is not None]
        return next((o for o in read if o.free is not None), read[0] if read else None)

    def _candidates(self) -> list[Fault]:
        """Everything that may have failed first. Only the first crashes are looked at: the root is among them."""
        owner: dict[int, Crash] = {}
        said: dict[int, list[Hit]] = {}
        for hit in self.hits:
            if roles()[hit.id] == "cause":
                said.setdefault(hit.index, []).append(hit)
        found: list[Fault] = []
        for crash in self.crashes[:_CRASHES]:
            own = self._own_lines(crash)
            owner.update(dict.fromkeys(own, crash))
            if crash.level in _HANDLED or _symptom(crash):
                continue
            heading = self._heading(crash)
            owner.update(dict.fromkeys(heading, crash))
            hits = tuple(h for i in (*heading, *own) for h in said.get(i, ())) or _wrapped(crash)
            if not hits and not crash.root.name:
                continue  # cut off before it said what it is
            stage = self._stage(crash.functions or self._of_the_parent(crash.first), crash.first)
            found.append(Fault(crash.first, crash.last, crash, hits, stage))
        relayed: list[Fault] = []
        for index, here in said.items():
            if self.lines[index].level in _HANDLED or self._did_without(index, here):
                continue
            relay = owner.get(index)
            calls = relay or self._cut_off(index)
            stage = self._stage(calls.functions if calls is not None else self._of_the_parent(index), index)
            last, hits = self._with_why(index, here, said) if relay is None else (index, tuple(here))
            (relayed if relay is not None else found).append(Fault(index, last, None, hits, stage))
        return found or relayed

    def _did_without(self, index: int, said: Sequence[Hit]) -> bool:
        """A warning that something optional could not be imported."""
        return _WARNED.match(self.lines[index].text) is not None and {h.id for h in said} <= _IMPORTS

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

    def _of_the_parent(self, index: int) -> Sequence[str]:
        """The call that a worker's line is about: as the line names it, or the parent's traceback shows it."""
        line = self.lines[index]
        if (named := _METHOD.search(line.text)) is not None:
            return (named[1],)
        if not (line.process or "").startswith(("VllmWorkerProcess", "RayWorkerWrapper")):
            return ()
        parents = (c for c in self.crashes[:_CRASHES] if c.first > index and c.process in {None, "rank0"})
        return next((c.functions for c in parents if stage_of(c.functions) is not None), ())

    def _own_lines(self, crash: Crash) -> list[int]:
        speaker = (crash.process, crash.pid)
        return [i for i in range(crash.first, crash.last + 1) if (self.lines[i].process, self.lines[i].pid) == speaker]

    def _heading(self, crash: Crash) -> list[int]:
        """The lines right before a traceback in which the same speaker already said what it is about (V0 logs both)."""
        speaker = self.lines[crash.first]
        before = range(crash.first - 1, max(-1, crash.first - 1 - _HEADING), -1)
        same = itertools.takewhile(lambda i: _speaks_on(self.lines[i], speaker), before)
        return sorted(same)

    def _stage(self, functions: Sequence[str], index: int) -> Stage:
        said = stage_of(functions)
        if said is not None:
            return said
        reached = self.reached(index + 1) or Stage.CONFIG  # the line that fails may itself say how far it came
        return Stage.SERVING if reached is Stage.CONFIG and self._at_run_time(index) else reached

    def _at_run_time(self, index: int) -> bool:
        """In an excerpt without its start: does what stands around the line come from a server that was serving?"""
        module = (self.lines[index].module or "").rsplit("/", 1)[-1]
        near = self.lines[max(0, index - _HEADING) : index + 1]
        if any(_REPR.match(line.text) and line.level == "ERROR" for line in near):
            return True
        dead = any(h.id in _RUN_TIME_DEATHS and h.index - 3 < index + 400 for h in self.deaths)
        return dead or module.startswith(_RUN_TIME_MODULES)

    def _headed(self, fault: Fault, heading: Pattern) -> bool:
        """Does such a heading stand right above its traceback?"""
        if fault.crash is None:
            return False
        above = self.lines[max(0, fault.crash.first - 2) : fault.crash.first + 1]
        return any(heading.match(line.text) for line in above)

    def _survivor(self, fault: Fault) -> bool:
        """Is it a rank that only noticed that another one was gone?"""
        lines = (
            self.lines[i].text for i in (self._own_lines(fault.crash) if fault.crash is not None else (fault.index,))
        )
        return any(told in text for text in lines for told in _SURVIVOR_TEXTS)

    def _fatal(self, fault: Fault) -> bool:
        """It ended the life: nothing was served between it and the death that followed, or the end of the log."""
        death = next((h.index for h in self.deaths if h.index > fault.last), None)
        if self.stopped is not None and fault.index > self.stopped:
            return False
        if not fault.ids and self._headed(fault, _UNCLAIMED):
            return False
        if fault.ids & _NEVER_OF_A_REQUEST:
            return not self.served(fault.last, death)
        outlived = self.stopped is not None and (death is None or death > self.stopped)
        if outlived and fault.stage in {Stage.READY, Stage.SERVING}:
            return False
        if death is None and self._request_level(fault):
            return False
        return not self.served(fault.last, death)

    def _request_level(self, fault: Fault) -> bool:
        """An error that the API server wrote about one request while the engine went on."""
        line = self.lines[fault.index]
        ready = fault.stage in {Stage.READY, Stage.SERVING} and self.served(-1, fault.index)
        if not ready or line.level not in {"ERROR", "CRITICAL"}:
            return False
        process = line.process or ""
        if process:
            return process.startswith(("APIServer", "ApiServer"))
        # One process is all of them: what the engine's own step raised, or what says what it is, ends the engine.
        return not fault.ids and stage_of(fault.functions) is not Stage.SERVING


def _speaks_on(line: LogLine, then: LogLine) -> bool:
    """Did the same line of vLLM's code, in the same process, write both?"""
    return then.module is not None and (line.process, line.pid, line.module) == (then.process, then.pid, then.module)


def _wrapped(crash: Crash) -> tuple[Hit, ...]:
    """Messages that a terminal or a page has broken over several lines."""
    texts = [f"{k.name}: " + " ".join(k.message.split()) for k in crash.links if "\n" in k.message]
    causes = [m for m in messages() if m.role == "cause"] if texts else []
    read_of = ((m.id, fields) for text in texts for m in causes if (fields := read(m, text)) is not None)
    return tuple(Hit(i, crash.last, fields) for i, fields in read_of)


def _files(crash: Crash) -> list[str]:
    return [f.file for k in crash.links for f in k.frames]


def _symptom(crash: Crash) -> bool:
    primary = [k for k in crash.links if not _is_symptom(k.kind, k.message)]
    return not primary


def _is_symptom(kind: str, message: str) -> bool:
    return (
        kind in _SYMPTOM_KINDS
        or kind == "KeyboardInterrupt"
        or any(t in message.split("\n", 1)[0] for t in _SYMPTOM_TEXTS)
    )

"""What a run's log says of itself: whose it is, what was launched, how far it came, how it served and ended."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from vllm_doctor.knowledge.images import release_of
from vllm_doctor.log.code_release import releases_by_code
from vllm_doctor.log.helping_words import without_help
from vllm_doctor.log.match import Hit, anchors, catalogue, each, kinds, milestones, read, says, scan, stops
from vllm_doctor.log.pybind_calls import with_calls_of_pybind
from vllm_doctor.log.report_title import report_title
from vllm_doctor.log.startup_phase import StartupPhase
from vllm_doctor.log.traceback import Crash, tracebacks
from vllm_doctor.records.host import Launch
from vllm_doctor.records.log import Log, LogLine

if TYPE_CHECKING:
    from vllm_doctor.log.client import Client
    from vllm_doctor.log.stats import Stats

# The steps of a start by their place in it.
ORDER = {stage: rank for rank, stage in enumerate(StartupPhase)}
# What only vLLM writes, or lm-eval of it, though it is no step of a start: its own end, a batch and its results.
_OWN_WORDS = (
    "engine-awaited",
    "server-shutdown",
    "shutdown-marker",
    "engine-shutdown",
    "offline-progress",
    "batch-file-progress",
    "eval-results",
    "broadcast-wait",
)
# The bars of a batch: what a script asks for, what `vllm run-batch` reads of a file, what lm-eval asks.
_BARS = ("offline-progress", "batch-file-progress", "eval-progress")
# What an API server and an engine say once, when they begin.
ANNOUNCED = ("server-version", "banner-version", "args-non-default", "args-namespace", "engine-config")
# What the executor of V0 alone calls; V1's asks for bytes instead.
_ONLY_IN_V0 = frozenset({"determine_num_available_blocks", "profile_num_available_blocks"})
# Lines in which the name or the version of vLLM is looked for.
_HEAD = 2000
_ASKS_VERSION = "vllm.__version__"
# Where the code of a server and of its ranks lies.
_FILES = ("/vllm/", "/ray/", "ray::", "ray.exceptions")
# What torch writes when the interpreter of a process with NCCL comes to its end.
_EXITS = ("exit-group-left", "exit-group-left-24")


class Run:
    """One run, read once; every part is computed when a rule first asks for it."""

    def __init__(self, log: Log, *, of_server: bool = False) -> None:
        self.log = log
        self.of_server = of_server  # somebody gave a launch, or a card, with it
        self.lines: Sequence[LogLine] = log.last.lines

    @cached_property
    def hits(self) -> tuple[Hit, ...]:
        """Every known message of this run."""
        return scan(self.lines)

    @cached_property
    def crashes(self) -> tuple[Crash, ...]:
        """Every traceback of this run."""
        return with_calls_of_pybind(self.lines, tracebacks(self.lines))

    def all(self, message: str) -> tuple[Hit, ...]:
        """The hits of one message, in order; of one that is not looked for in every run, when first asked."""
        if message not in self._by_id and catalogue()[message].scope != "log":
            self._by_id[message] = scan(self.lines, (catalogue()[message],))
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
        """A figure that this run printed; of several the last one stands."""
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
        if any(
            milestones().get(h.id) not in {None, "serving"} or kinds().get(h.id) == "consequence" for h in self.hits
        ):
            return True
        if self._own:
            return True
        if any("vllm" in f.split("/") or "/vllm/" in f for c in self.crashes for f in c.files):
            return True
        return self.first("stats", "args-non-default", "args-namespace") is not None or any(
            "vllm" in line.text.lower() for line in self.lines[:_HEAD]
        )

    @cached_property
    def by_vllm(self) -> bool:
        """Did vLLM itself write here, rather than a program that speaks of it? Only then can it be said to be well."""
        stages = milestones()
        own = any(stages.get(h.id, "serving") != "serving" for h in self.hits)
        return own or self._own or self.first("stats", "args-non-default", "args-namespace") is not None

    @cached_property
    def is_server(self) -> bool:
        """Is it the log of a server, rather than of one more worker of a server that has a log of its own?"""
        return self.by_vllm and (self.announced or self.served())

    @property
    def announced(self) -> bool:
        """Is the beginning of a server or an engine in the log?"""
        return self.first(*ANNOUNCED) is not None

    @property
    def made_by_a_program(self) -> bool:
        """Does an engine of the program's own process begin here, and no server? Its next line is the program's, which
        need not have any."""
        hit = self.first("engine-config")
        servers = [one for one in ANNOUNCED if one != "engine-config"]
        if hit is None or self.first(*servers) is not None:
            return False
        return not says(self.lines[hit.index].process or "", "process-of-vllm")

    @cached_property
    def _own(self) -> bool:
        """Do its processes sign the lines, or is there a sentence that no other program has, or a line of the file
        that configures an engine?"""
        if self.first(*_OWN_WORDS) is not None or any(says(name, "process-of-vllm") for name in self._names):
            return True
        if any(line.module and says(line.excerpt, "header-of-vllm") for line in self.lines):
            return True
        return any(says(file, "file-of-an-engine") for file in {line.module for line in self.lines if line.module})

    @cached_property
    def answered(self) -> bool:
        """Were requests answered? An answer begins before a token is made, so it says nothing of a fault beside it."""
        return any(a in line.text for line in self.lines for a in anchors("request-ok"))

    @cached_property
    def client(self) -> "Client | None":
        """Is it the log of a program that asks a server? What wrote a line as a server does is none."""
        if self.by_vllm or self.answered or any(says(f, "call-of-a-server") for c in self.crashes for f in c.files):
            return None
        from vllm_doctor.log.client import ASKS, MEASURES, client

        found = client(line.text for line in self.lines)
        return found if found is not None and (self.is_vllm or found.name in ASKS | MEASURES) else None

    @cached_property
    def another(self) -> str | None:
        """The other inference server whose code failed here, in a log in which nothing is vLLM's."""
        files = [file for crash in self.crashes for file in crash.files]
        if self.by_vllm or any(says(file, "call-of-a-server") for file in files):
            return None
        found = (read("call-of-another-server", file) for file in files)
        return next((told["name"] for told in found if told is not None), None)

    @cached_property
    def exited(self) -> bool:
        """Did the program come to its end by itself, with its engine made, or with the results of an evaluation?"""
        reached = self.reached()
        made = reached is not None and ORDER[reached] >= ORDER[StartupPhase.KV]
        return self.first("eval-results") is not None or (made and self.first(*_EXITS) is not None)

    @cached_property
    def is_script(self) -> bool:
        """Is it a script that had its answers, whose engine ends with it?"""
        return self.first(*_BARS) is not None and self.first("app-started", "uvicorn-running", "stats") is None

    @cached_property
    def version(self) -> str | None:
        """The version that the log prints."""
        told = (self.last(one) for one in ("engine-config", "server-version", "banner-version", "engine-configured"))
        return next((hit.fields["version"] for hit in told if hit is not None and "version" in hit.fields), None)

    @cached_property
    def told_version(self) -> str | None:
        """The version that stands beside what the server printed: in collect_env's report, in a list of packages or a
        line of its own, as the tag of vLLM's own image, or in a report's title. None where several differ: nobody can
        tell which one ran."""
        told = {hit.fields["version"] for hit in self.all("environment-version")}
        told = told or set(self._noted)
        told = told or {release_of(hit.fields["image"]) or "" for hit in self.all("image-of-vllm")} or self._titled
        return next(iter(told)) or None if len(told) == 1 else None

    @property
    def _titled(self) -> set[str]:
        """The releases with which a report's title says that it fails; a plugin counts its own."""
        title = report_title(self.lines)
        if title is None or says(title.words, "names-a-plugin"):
            return set()
        return {told["version"] for told in each("release-in-words", without_help(title.words))}

    @cached_property
    def releases_by_code(self) -> tuple[str, ...]:
        """The releases that have their code where this log says it stands; none where too little of it agrees."""
        return releases_by_code(self.lines, self.crashes)

    @property
    def _noted(self) -> Iterator[str]:
        """The versions that unsigned lines have for themselves."""
        asked = False
        for line in self.lines[:_HEAD]:
            # what Python prints where somebody asks it for vllm.__version__ is the version alone
            noted = f"vllm {line.text.strip()}" if asked else line.text
            told = read("version-noted", noted) if line.module is None else None
            asked = _ASKS_VERSION in line.text
            if told is not None:
                yield told["version"]

    @cached_property
    def engine(self) -> str | None:
        """V0 or V1 where the log says it, or where only one of them has the process that signs or the calls."""
        hit = self.last("engine-config")
        if hit is not None and (told := hit.fields.get("engine")) is not None:
            return told
        if any(says(name, "process-of-engine") for name in self._names):
            return "V1"
        if any(says(file, "call-of-v1") for crash in self.crashes for file in crash.files):
            return "V1"
        old = (
            any(says(name, "process-of-v0") for name in self._names)
            or any(says(file, "call-of-v0") for crash in self.crashes for file in crash.files)
            or any(name in _ONLY_IN_V0 for crash in self.crashes for name in crash.functions)
        )
        return "V0" if old else None

    @cached_property
    def launch(self) -> Launch | None:
        """The launch as the server printed it; None where it did not."""
        from vllm_doctor.knowledge.launchline import from_log_arguments

        hit = self.last("args-non-default", "args-namespace")
        return from_log_arguments(self.lines[hit.index].text) if hit is not None else None

    @cached_property
    def ranks(self) -> int:
        """How many ranks there are at least, by the processes that sign lines; 1 where none does."""
        least = 1 if any(says(name, "process-of-other-worker") for name in self._names) else 0
        return max(self._numbered("process-of-rank"), least) + 1

    @cached_property
    def tensor(self) -> int:
        """Over how many ranks each layer is split at least, by the names of the workers; 0 where none tells."""
        # v1/executor/multiproc_executor.py names the rank only where there are more than one.
        shown = any("_TP" in name for name in self._names)
        return max(self._numbered("process-of-tensor-rank") + 1, 2) if shown else 0

    @property
    def replicas(self) -> int:
        """How many replicas there are at least, by the names of the processes: each has its own ranks."""
        return self._numbered("process-of-replica") + 1

    @cached_property
    def pipeline(self) -> int:
        """In how many stages of layers the ranks stand at least, by the names of the workers."""
        return self._numbered("process-of-stage") + 1

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(line.process for line in self.lines if line.process is not None)

    def _numbered(self, message: str) -> int:
        numbers = (int(told["rank"]) for name in self._names if (told := read(message, name)) is not None)
        return max(numbers, default=0)

    @cached_property
    def config(self) -> dict[str, str | bool]:
        """What the engine said it runs with."""
        from vllm_doctor.knowledge.launchline import from_engine_config

        hit = self.first("engine-config", "engine-configured")
        return from_engine_config(self.lines[hit.index].text) if hit is not None else {}

    @cached_property
    def miles(self) -> tuple[tuple[int, StartupPhase], ...]:
        """(index, stage) of each milestone."""
        stages = milestones()
        return tuple((h.index, StartupPhase(stages[h.id])) for h in self.hits if h.id in stages)

    def reached(self, before: int | None = None) -> StartupPhase | None:
        """The furthest stage that was reached (before a line)."""
        found = [s for i, s in self.miles if before is None or i < before]
        return max(found, key=ORDER.__getitem__, default=None)

    def served(
        self,
        after: int = -1,
        until: int | None = None,
        *,
        least: StartupPhase = StartupPhase.READY,
        engine: "tuple[str | None, int | None]" = (None, None),
    ) -> bool:
        """Did it serve, or become ready to (`least`), between two lines? Without any: at all. Of several engines under
        one server each tells of itself that it is ready (`engine`: the one that is asked about).

        After a line that failed, statistics count only with tokens, and only the second ones: the server prints them
        whether its engine runs or not, and the first ones tell of the time before, too.
        """
        found = {i for i, s in self.miles if after < i and (until is None or i < until) and ORDER[s] >= ORDER[least]}
        found -= self._without_progress(after)
        found -= {i for i in found if self._of_another_engine(i, *engine)}
        if after < 0:
            return bool(found)
        told = {h.index: h.fields for h in self.all("stats")}
        with_tokens = [i for i in found if i in told and any(float(told[i][f]) for f in ("prompt", "generation"))]
        return bool(found - set(told)) or len(with_tokens) > 1

    def _of_another_engine(self, index: int, process: str | None, pid: int | None) -> bool:
        line = self.lines[index]
        engines = all(says(name or "", "process-of-engine") for name in (process, line.process))
        return engines and None not in {pid, line.pid} and pid != line.pid

    @cached_property
    def stalled(self) -> int:
        """The requests that run, as the last statistics count them, where these show not one token; else 0."""
        last = self.stats[-1] if self.stats else None
        return last.running if last is not None and not last.prompt and not last.generation else 0

    @cached_property
    def worked(self) -> int:
        """The last line that shows that the engine works; -1 where none does.

        Steps of a start, answers, and of the statistics with tokens the last but one: the last tells of the time
        before, too. An answer begins before a token is made: it shows nothing where the last statistics count requests
        that run and not one token.
        """
        shown = [h.index for h in self.hits if h.id in milestones() and h.id not in {"stats", "request-ok"}]
        told = self.all("stats")
        shown += [h.index for h in told if any(float(h.fields[f]) for f in ("prompt", "generation"))][-2:-1]
        shown += [] if self.stalled else [h.index for h in self.all("request-ok")[-1:]]
        shown += [h.index for h in self.all("eval-results")[-1:]]  # after the last answer
        return max(shown, default=-1)

    @cached_property
    def waits(self) -> tuple[Hit, ...]:
        """The lines by which one process waits for another. Before 0.11 the ranks of an idle engine write them, too, at
        the level DEBUG (shm_broadcast.py, `acquire_read`): once it serves, these tell nothing."""
        up = next((i for i, stage in self.miles if ORDER[stage] >= ORDER[StartupPhase.READY]), len(self.lines))
        told = self.all("broadcast-wait")
        return tuple(hit for hit in told if hit.index < up or self.lines[hit.index].level != "DEBUG")

    @cached_property
    def streams(self) -> frozenset[str]:
        """The names that stand in front of lines."""
        return frozenset(line.stream for line in self.lines if line.stream is not None)

    @cached_property
    def own_streams(self) -> frozenset[str]:
        """Those in front of lines that vLLM's logger wrote, or that name a file of its own or of Ray's, which runs its
        ranks in other containers."""
        return frozenset(
            line.stream
            for line in self.lines
            if line.stream is not None
            and (any(one in line.text for one in _FILES) or says(line.excerpt, "header-of-vllm"))
        )

    def of_another_container(self, line: LogLine) -> bool:
        """Does Compose tell of a container that writes into this text under another name than the server's?"""
        if not self.own_streams or line.stream is not None or line.module is not None:
            return False
        return line.text.split(" ", 1)[0] in self.streams - self.own_streams

    def _without_progress(self, after: int) -> set[int]:
        """Lines after `after` in which a batch's bar is written again with no prompt more than before it: at none, or
        for the last time while the program ends."""
        bars = [(h.index, int(h.fields["done"])) for one in _BARS for h in self.all(one) if "done" in h.fields]
        before = max((done for index, done in bars if index <= after), default=0)
        return {index for index, done in bars if index > after and done <= before}

    @cached_property
    def stats(self) -> "tuple[Stats, ...]":
        """The statistics that the server printed every few seconds, in order."""
        from vllm_doctor.log.stats import parse_stats

        read = (parse_stats(self.lines[h.index].text) for h in self.all("stats"))
        return tuple(s for s in read if s is not None)

    @cached_property
    def stopped(self) -> int | None:
        """Where an orderly end begins: a signal from outside, a person's interrupt, a job that was cancelled.

        What stands before a line with which a start announces itself ended something else, in the same terminal.
        """
        begun = self.last(*ANNOUNCED)
        after = begun.index if begun is not None else -1
        return next((h.index for h in self.hits if h.id in stops() and h.index > after), None)

    @cached_property
    def deaths(self) -> tuple[Hit, ...]:
        """Notices that something died; effects, never causes. Where an engine reports a failure, the front end of 0.7
        and 0.8 kills itself and its children (kill_process_tree), and its shell tells of that."""
        signalled = self.first("engine-signalled")
        return tuple(
            h
            for h in self.hits
            if kinds().get(h.id) == "consequence"
            and not self.of_another_container(self.lines[h.index])
            and (signalled is None or h.index <= signalled.index or h.id != "shell-killed")
        )

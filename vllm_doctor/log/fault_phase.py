"""In which phase a fault stands: by its calls, by its parent's, and by how far the log had come."""

from collections.abc import Sequence

from vllm_doctor.log.match import kinds, places, read, says
from vllm_doctor.log.run import Run
from vllm_doctor.log.startup_phase import StartupPhase, encodes, phase_at, startup_phase_of
from vllm_doctor.log.told_step import ENCODER, told_step
from vllm_doctor.log.traceback import Crash

# A log of thousands of crashes: the root is among the first.
CRASHES = 400
# Lines of an exception's message that its logger writes before the traceback.
HEADING = 3
# Lines around one in which the other ranks report the same call.
FELLOWS = 60
# Lines before and behind one in which people say in which step it failed.
TOLD = 8
# Written at run time only: the notice of a dead engine to a request, and the modules that answer requests.
_RUN_TIME_DEATHS = frozenset({"engine-core-fatal", "engine-dead", "engine-task-failed"})
_OF_A_STEP = "dump_input.py"
_RUN_TIME_MODULES = ("serving_", "serving.py", _OF_A_STEP)
# Where a call that opens a capture, the last one that a cut traceback shows, says more than the log before it.
_BEFORE_GRAPHS = frozenset({StartupPhase.CONFIG, StartupPhase.PROFILE, StartupPhase.KV, StartupPhase.WARMUP})
# Calls that make the KV cache and then warm up and capture (V0's worker, V1's executor): what they had come to, the
# lines before tell where no call below them does.
_WITH_WARM_UP = frozenset({"initialize_cache", "initialize_from_config"})
_AFTER_CACHE = frozenset({StartupPhase.WARMUP, StartupPhase.GRAPHS})
# What the server calls of an engine that is up before it answers anybody (entrypoints/openai/api_server.py).
_OF_SET_UP = frozenset({"init_static_loras", "init_app_state"})
# Steps of a start that a call names by itself.
_NAMED_STEPS = frozenset({StartupPhase.KV, StartupPhase.GRAPHS, StartupPhase.WARMUP, StartupPhase.WEIGHTS})


class RunWithPhases(Run):
    """A run, and the phase of each of its crashes."""

    def _stage_in(self, calls: Crash | None, index: int) -> StartupPhase:
        """The stage by a traceback, else by what the parent called."""
        functions = calls.steps if calls is not None else ()
        where = _placed(calls) if calls is not None and startup_phase_of(functions) is None else None
        # A worker's own loop names no step; the line above it, or the parent, may.
        names = () if where is None and startup_phase_of(functions) is None else functions
        stage = where or self._stage(names or self._of_the_parent(index) or functions, index)
        if calls is None:
            return stage
        if stage is StartupPhase.SERVING and self._start_failed(calls):
            stage = StartupPhase.WARMUP  # a start runs steps of its own making
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
        if any(says(file, "call-of-a-request") for file in calls.files):
            return stage  # the front end reads a request with the model's own class; encoders run in the engine
        by_words = stage is StartupPhase.PROFILE and says("\n".join(self.told(index)[0]), ENCODER)
        return StartupPhase.PROFILE_ENCODER if by_words or encodes(stage, calls.files, codes, made_in) else stage

    def _start_failed(self, calls: Crash) -> bool:
        """Does the engine's record itself say that its start failed?"""
        near = self.lines[max(0, calls.first - HEADING) : calls.first + 1]
        return any(says(line.text, "heading-of-failed-start") for line in near if line.process == calls.process)

    def _stage(self, functions: Sequence[str], index: int) -> StartupPhase:
        said = startup_phase_of(functions)
        if said is StartupPhase.KV and startup_phase_of([f for f in functions if f not in _WITH_WARM_UP]) is None:
            reached = self.reached(index + 1)
            return reached if reached in _AFTER_CACHE else said
        if said is not None:
            return said
        near = self.lines[max(0, index - HEADING) : index + 1]
        if any(says(line.text, "method-of-engine") for line in near):
            # Somebody called it: the engine was up, and the server too where it is not its own set-up that did.
            set_up = any(not _OF_SET_UP.isdisjoint(c.functions) for c in self.crashes[:CRASHES] if c.first > index)
            return StartupPhase.READY if set_up else StartupPhase.SERVING
        reached = self.reached(index + 1) or StartupPhase.CONFIG  # the line that fails may itself say how far it came
        if reached is not StartupPhase.CONFIG:
            return reached
        return StartupPhase.SERVING if self._at_run_time(index) else told_step(*self.told(index)) or reached

    def told_only(self, index: int, calls: Crash | None) -> bool:
        """Do a person's words alone tell the step: no call, and no line of the log before?"""
        if calls is not None and (startup_phase_of(calls.functions) or _placed(calls)) is not None:
            return False
        unplaced = self.reached(index + 1) in {None, StartupPhase.CONFIG} and not self._at_run_time(index)
        return unplaced and told_step(*self.told(index)) is not None

    def told(self, index: int) -> tuple[list[str], int]:
        """The sentences around a line, those that nobody signed and that are no code, and where it is among them."""
        code = {i for c in self.crashes[:CRASHES] if any(k.frames for k in c.links) for i in range(c.first, c.last + 1)}
        near = range(max(0, index - TOLD), min(len(self.lines), index + TOLD + 1))
        told = [i for i in near if i == index or (i not in code and self.lines[i].module is None)]
        return [self._words(i) if i not in code else "" for i in told], told.index(index)

    def _words(self, index: int) -> str:
        """The text of a line that no program signed, and that is none's answer to a call that it names."""
        line = self.lines[index]
        if line.module is not None or says(line.text, "method-of-engine", "signed-by-program"):
            return ""
        return "" if self._known(index) and not places("told-memory", line.text) else line.text

    def _known(self, index: int) -> bool:
        """Is it a program's sentence, with its figures? `To serve at least one request` is no word for a step."""
        return any(hit.index == index and hit.fields and kinds()[hit.id] == "cause" for hit in self.hits)

    def _at_run_time(self, index: int) -> bool:
        """In an excerpt without its start: does what stands around the line come from a server that was serving?"""
        near = self.lines[max(0, index - HEADING) : index + 1]
        if any(line.level == "ERROR" and says(line.text, "v0-step-error") for line in near):
            return True
        dead = any(h.id in _RUN_TIME_DEATHS and h.index - 3 < index + 400 for h in self.deaths)
        return dead or self._answers_requests(index) or self._dumped(index)

    def _answers_requests(self, index: int) -> bool:
        """Did the code that answers requests write this line?"""
        module = (self.lines[index].module or "").rsplit("/", 1)[-1]
        return module.startswith(_RUN_TIME_MODULES)

    def _dumped(self, index: int) -> bool:
        """Did the engine write down the step that failed here? It does so of a step with requests alone
        (v1/engine/core.py: log_error_detail)."""
        near = self.lines[max(0, index - FELLOWS) : index + FELLOWS]
        return any((line.module or "").rsplit("/", 1)[-1].startswith(_OF_A_STEP) for line in near)

    def _of_the_parent(self, index: int) -> Sequence[str]:
        """The call that a worker's line is about: as the line names it, or the parent's traceback shows it."""
        line = self.lines[index]
        if (named := read("method-of-worker", line.text)) is not None:
            return (named["method"],)
        if not says(line.process or "", "process-of-other-worker"):
            return ()
        parents = (c for c in self.crashes[:CRASHES] if c.first > index and c.process in {None, "rank0"})
        told = next((c.functions for c in parents if startup_phase_of(c.functions) is not None), ())
        return told or self._of_its_fellows(index)

    def _of_its_fellows(self, index: int) -> Sequence[str]:
        """The call that another worker names in the lines around: all ranks run the same one at a time."""
        near = self.lines[max(0, index - FELLOWS) : index + FELLOWS]
        kind = self.lines[index].process
        named = (read("method-of-worker", line.text) for line in near if line.process == kind)
        return next(((said["method"],) for said in named if said is not None), ())


def _placed(crash: Crash) -> StartupPhase | None:
    """The stage by the places of the calls, and by what the last line of each shows that it calls."""
    frames = [frame for link in crash.links for frame in link.frames]
    found = phase_at([frame.file for frame in frames], [frame.function for frame in frames])
    return found or (
        StartupPhase.WEIGHTS if any(says(name, "function-of-weights") for name in crash.functions) else None
    )

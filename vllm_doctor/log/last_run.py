"""Which run of a log is judged: what the processes of a stopped run cannot have written is another run, with or
without a line that announces it."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum, auto
from functools import lru_cache

import msgspec

from vllm_doctor.log.clock import seconds_between
from vllm_doctor.log.fault import Fault
from vllm_doctor.log.faults_of_run import IMPORTS
from vllm_doctor.log.match import Hit, kinds, milestones, read, says, stops
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.startup_phase import OF_A_START, StartupPhase, startup_phase_of
from vllm_doctor.records.log import FRONT_END, Log, LogLine, RunLines

# What uvicorn says when nothing is served any more; after it the process only takes down what it had.
_COMPLETE = ("app-stopped", "uvicorn-finished")
# A process by its number in its pod.
_Number = tuple[str | None, int]
_SERIOUS = frozenset({"ERROR", "CRITICAL"})
# Deaths that a stop brings about: a process notices that another one, which was told to stop as well, is gone.
_NOTICED = frozenset(
    {
        "engine-dead",
        "engine-core-fatal",
        "engine-process-died",
        "engine-exited",
        "process-died",
        "worker-died-v0",
        "worker-failed",
        "worker-error-relay",
        "output-handler",
        "engine-loop",
        "background-loop",
    }
)
# Python's own ways to the end of a process, and the names that vLLM and its executors give to theirs.
_EXIT_CALLS = frozenset(
    {"__del__", "_exitfunc", "_run_exitfuncs", "_python_exit", "_exit_function", "_shutdown", "shutdown"}
)
# A process that has said its last takes this long at most to end; what bears its number later is another one.
_ENDING_S = 300.0
# Of each kind of edge; each look reads the rest of the text again.
_MOST_EDGES = 8


class _After(Enum):
    """What stands above the place where another run may begin."""

    TOLD = auto()  # a process was told to stop; nothing says that it has
    ENDED = auto()  # a stop that came to its end
    REPLACED = auto()  # the last line of a process whose name another one has from here on
    SERVED = auto()  # a sign of service; below, a start is at one of its steps


def judged(log: Log, *, of_server: bool = False) -> AnalysedRun:
    """The last run of the log that says anything of itself, analysed.

    The reader has cut the log where a start announces itself. Another run may follow without such a line: after a stop,
    or where a process of the same name has another number. It is one if it reached a step of a start, or failed, and
    the processes of the run before cannot have written that. Service alone, below a start that failed, is of another
    server, whose beginning is not here: none serves that has not begun.
    """
    whole = AnalysedRun(log, of_server=of_server)
    for begin, after in _worth_a_look(whole):
        rest = _part(log, begin)
        theirs = _Theirs(whole.lines[:begin], after)
        found = _first_of_its_own(rest, theirs)
        stop = after in {_After.TOLD, _After.ENDED}
        if found is not None and (not stop or _in_order(_part(log, 0, begin))):
            own = next((i + 1 for i in reversed(range(found)) if theirs.wrote(rest.lines[i])), 0)
            last = _part(log, begin + own)
            if last.announced or last.deaths or last.root:
                return last
            if whole.root is None:
                above = _part(log, 0, begin + own)
                return above if above.announced and above.root is not None else last
    return whole


def _worth_a_look(whole: AnalysedRun) -> list[tuple[int, _After]]:
    """The edges of which one may begin the run that is judged, the last first.

    Between one edge and the next of its kind something must be told, or a process be new: else both begin the same. A
    text of ten thousand stops is looked at a few times only. Below the last one a client may speak, which tells nothing
    that is known of a server.
    """
    telling = {fault.index for fault in whole.faults}
    telling |= {
        hit.index for hit in whole.hits if hit.id in milestones() or kinds()[hit.id] in {"cause", "consequence"}
    }
    telling.update({line.pid: i for i, line in reversed([*enumerate(whole.lines)]) if line.pid is not None}.values())
    marks = sorted(telling)
    following: dict[_After, int] = {}
    left = dict.fromkeys(_After, _MOST_EDGES)
    found: list[tuple[int, _After]] = []
    for begin, after in sorted(set(_edges(whole)), key=lambda edge: edge[0], reverse=True):
        last = after not in following
        told = last or bisect_left(marks, begin) < bisect_left(marks, following[after])
        following[after] = begin
        if told and left[after]:
            left[after] -= 1
            found.append((begin, after))
    return found


class _Theirs:
    """The processes of the run before: what they may have written after a stop."""

    def __init__(self, lines: Sequence[LogLine], after: _After) -> None:
        self.after = after
        self._pids = {line.pid for line in lines if line.pid is not None}
        self._last = next((line.at for line in reversed(lines) if line.at is not None), None)

    def wrote(self, line: LogLine) -> bool:
        """Does it bear one of their numbers? Some time after their end a number is given to another process."""
        return line.process == "systemd" or (line.pid in self._pids and not self.late(line))

    def late(self, line: LogLine) -> bool:
        """Was it written when they must have been gone? Where nothing says that they ended, they may go on speaking."""
        if self.after in {_After.TOLD, _After.SERVED}:
            return False
        waited = seconds_between(self._last, line.at)
        return waited is not None and waited > _ENDING_S


def _part(log: Log, begin: int, end: int | None = None) -> AnalysedRun:
    run = RunLines(log.last.lines[begin:end], begin > 0 or log.last.complete_head, log.last.skipped_bytes)
    return AnalysedRun(msgspec.structs.replace(log, last=run, earlier_runs=log.earlier_runs + (begin > 0)))


def _edges(whole: AnalysedRun) -> Iterator[tuple[int, _After]]:
    ends = {h.index for name in _COMPLETE for h in whole.all(name)}
    ends |= {
        i for i, line in enumerate(whole.lines) if line.process == "systemd" and says(line.text, "systemd-unit-ended")
    }
    yield from ((h.index + 1, _After.TOLD) for h in whole.hits if h.id in stops())
    yield from ((index + 1, _After.ENDED) for index in ends)
    yield from ((index, _After.REPLACED) for index in _replaced(whole.lines, ends))
    yield from ((index, _After.SERVED) for index in _started_over(whole))


def _replaced(lines: Sequence[LogLine], ends: AbstractSet[int]) -> Iterator[int]:
    """Where the processes of a run have said their last, of which one has the name of a later one in its own pod."""
    last = {(line.stream, line.pid): index for index, line in enumerate(lines) if line.pid is not None}
    present: dict[tuple[str | None, str], _Number] = {}
    known: set[_Number] = set()
    for index, line in enumerate(lines):
        if index in ends:
            present = {}
        role = _role(line.process) if line.pid is not None and line.process is not None else None
        if role is None or line.pid is None:
            continue
        mine = (line.stream, line.pid)
        other = present.get((line.stream, role))
        # a server may have several engines of one name (vllm-omni's stages): it goes on speaking itself
        of_one = any(name in FRONT_END and last[one] > index for (_, name), one in present.items())
        if other not in {None, mine} and last[other] < index and not of_one:
            yield max(last[one] for one in present.values() if last[one] < index) + 1
            present = {}
        if other is not None or mine not in known:
            present[line.stream, role] = mine
        known.add(mine)


@lru_cache(maxsize=256)
def _role(name: str) -> str | None:
    """What one process at a time is called; asked of every line, and a log has few names."""
    told = read("process-of-one-role", name)
    return told["role"] if told is not None else None


def _started_over(whole: AnalysedRun) -> Iterator[int]:
    """Where a server that served is followed by steps of a start. One that wakes up only loads its weights again."""
    served: int | None = None
    phases = milestones()
    for hit in whole.hits:
        phase = phases.get(hit.id)
        if phase == StartupPhase.SERVING:
            served = hit.index
        elif served is not None and phase is not None and phase != StartupPhase.READY and hit.id != "weights-shards":
            yield served + 1
            served = None


def _in_order(before: AnalysedRun) -> bool:
    """Had nothing failed before the stop? Else what follows it may tell of that."""
    return before.root is None and not any(before.stopped is None or d.index < before.stopped for d in before.deaths)


def _first_of_its_own(rest: AnalysedRun, theirs: _Theirs) -> int | None:
    """The first line that tells of another run: a failure that no end of a process brings about, a step of a start."""
    found = [f.index for f in rest.faults if not _of_a_stop(rest, f, theirs)]
    if theirs.after is not _After.TOLD:
        found += [h.index for h in rest.hits if _tells(h, rest.lines[h.index], theirs)]
        if not found and rest.client is not None:
            found = [0]
    if theirs.after is _After.ENDED:
        known = {h.index for h in rest.hits}
        found += [i for i, line in enumerate(rest.lines) if i not in known and _of_another(line, theirs)]
    return min(found, default=None)


def _of_another(line: LogLine, theirs: _Theirs) -> bool:
    """Does one of vLLM's processes report that it failed, of which the run before knows no number? All that belonged to
    that run spoke while it started, and none of them is made when it has come to its end."""
    named = line.pid is not None and says(line.process or "", "process-of-vllm")
    return named and line.level in _SERIOUS and not theirs.wrote(line)


def _tells(hit: Hit, line: LogLine, theirs: _Theirs) -> bool:
    """Does a message show that its process starts, serves, or died of its own?"""
    if theirs.wrote(line):
        return False
    kind = kinds()[hit.id]
    if kind == "consequence" and hit.id in _NOTICED:
        return line.pid is not None or theirs.late(line)
    return (
        kind == "consequence"
        or hit.id in milestones()
        or (kind == "cause" and line.level == "WARNING" and hit.id not in IMPORTS)
    )


def _of_a_stop(rest: AnalysedRun, fault: Fault, theirs: _Theirs) -> bool:
    """May a process that ends have written this?"""
    line = rest.lines[fault.index]
    if theirs.wrote(line):
        return True
    stage = startup_phase_of(fault.functions)
    if stage in OF_A_START or theirs.late(line):
        return False
    if fault.at_end or rest.aside(fault) or not _EXIT_CALLS.isdisjoint(fault.functions):
        return True
    # As long as a stop is under way, what was in flight fails: whatever it says there, it says with its calls.
    return theirs.after is _After.TOLD and (not fault.ids or bool(fault.functions))

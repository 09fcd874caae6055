"""VD601: a process of the engine is gone without a word of its own: it was killed from outside."""

from vllm_doctor.knowledge.answers import Answer, applies
from vllm_doctor.knowledge.layers import Layer, layer_of
from vllm_doctor.knowledge.layers.headings import part_of_title
from vllm_doctor.log.match import Hit, says
from vllm_doctor.log.native_crash import NATIVE
from vllm_doctor.log.report_title import failing_title
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.records.finding import Change, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.deaths import signal_of
from vllm_doctor.rules.gates.host_claims import host_claims
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.answer import changes_of
from vllm_doctor.rules.remedies.cpp_exception import uncaught
from vllm_doctor.rules.remedies.layer import cut_off_in
from vllm_doctor.rules.say import environment, finding, set_flag, thing, upgrade

_SILENT = frozenset(
    {
        "engine-process-died",
        "worker-died-v0",
        "process-died",
        "engine-init-failed",
        "engine-process-failed",
        "core-abort",
        "native-crash",
        "native-dump",
        "fatal-python",
        "signal-received",
        "ucx-signal",
        "engine-exited",
        "shell-killed",
        "child-killed",
        "exit-minus-nine",
        "killed-suspects-memory",
        "exit-by-signal",
        "exit-by-signal-told",
        "shell-signal",
        "shell-arithmetic",
        "kernel-segfault",
        "ray-actor-died",
        "ray-actor-gone",
    }
)
# What native code writes as it ends its own process: glibc of a heap or a stack, C's assert of a check.
_HEAP = frozenset({"heap-broken", "heap-freed-twice", "heap-size", "stack-smashed"})
_OWN_WORDS = _HEAP | {"c-assertion", "cpp-exception"}
# What stands above an engine's own error: where nothing follows it, the error was cut off.
_HEADINGS = frozenset({"engine-core-failed", "engine-core-fatal", "engine-dead", "engine-signalled", "worker-failed"})
_OF_A_WORKER = "worker-failed"
_OF_RAY = frozenset({"ray-actor-died", "ray-actor-gone"})
# Only an engine that had started says so.
_OF_THE_SERVICE = "engine-dead"
# Who started the script says of it, not of its engine.
_OF_THE_SCRIPT = frozenset({"shell-killed", "child-killed", "exit-minus-nine"})
# Lines above a death that are looked at.
_ABOVE = 30
_SIGNALS = {
    "9": "killed (SIGKILL; only the kernel log can say by whom)",
    "11": "a crash in native code (SIGSEGV)",
    "6": "an abort in native code (SIGABRT)",
}
# Nothing but the kernel, a container's runtime or a person sends it; the first is the most frequent by far.
_WHO_KILLS = (
    "ask the kernel whether the host's memory ran out: journalctl -k -g 'Killed process' (a container: docker inspect "
    "or kubectl describe), and give that with --kernel-log; if memory ran out, give the host more, or use less of "
    "its memory (--cpu-offload-gb, --swap-space)"
)
# A signal from outside and a crash in native code look alike to the process that waits for the dead one.
_WHAT_ENDED = (
    "ask the kernel: journalctl -k -g 'segfault|Killed process' tells a crash in native code from a kill; "
    "PYTHONFAULTHANDLER=1 in the environment of the next start prints the calls of a crash"
)
# Signals that the process's own code ends it with; the kernel's log tells nothing of them.
_ILLEGAL = "4"
_CRASHES = {
    _ILLEGAL: "A process met an instruction that its processor lacks (SIGILL)",
    "8": "A process divided by zero in native code (SIGFPE)",
    "11": "A process crashed in native code (SIGSEGV); the log lacks its calls",
}


def judge(case: Case) -> Outcome:
    """Did a process die while nothing failed in the log, and nobody stopped the service?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    title = failing_title(run.lines)
    entitled = title is not None and any(death.index == title.at for death in run.deaths)
    if run.root is not None or (cut_off_in(case) is not None and not entitled):
        return NotHere("the log says what failed")
    mute = _SILENT | _OWN_WORDS
    silent = [h for h in run.deaths if h.id in mute or (h.id == "container-exited" and signal_of(h) is not None)]
    silent = silent or [h for h in run.deaths if h.id in _HEADINGS and _lacks_its_error(run, h)]
    said = next((h for h in silent if h.id in _OWN_WORDS), None)
    first = next((h for h in silent if h.id in NATIVE), said or (silent[0] if silent else None))
    if first is None or (run.stopped is not None and run.stopped < first.index):
        return NotHere("no process died without an error message")
    if run.is_script and first.id not in NATIVE and first.id not in _OF_THE_SCRIPT:
        return NotHere("the script got its answers, and the engine ended with the script")
    if first.id == _OF_A_WORKER and title is not None and part_of_title(title.words) is not None:
        return NotHere("the title of the report names the part that failed")
    number = signal_of(first)
    ending = next((i for i in range(first.index) if says(run.lines[i].text, "uvicorn-stops")), None)
    if number == "9" and ending is not None and run.served(until=ending):
        return NotHere("the server was told to stop, took too long, and was killed")
    if number == "7":
        return NotHere("SIGBUS: a page of shared memory could not be allocated")
    if number != "9" and (above := _said_above(case, run, first)) is not None:
        return above
    if _lacks_its_error(run, first):
        return _error_elsewhere(case, run, first)
    if number in {None, "6"} and (thrown := _thrown(case, run, first)) is not None:
        return thrown
    if said is not None and number in {None, "6"}:
        return _ended_itself(case, run, said)
    if number is not None and number in _CRASHES:
        return _crashed(case, run, first, number)
    how = _SIGNALS.get(number, f"signal {number} ended it") if number is not None else "the log shows no cause"
    return finding(
        RULE,
        title=f"An engine process died without a traceback: {how}",
        severity=_severity(run, first),
        confidence=Confidence.POSSIBLE,
        evidence=(case.line(first.index),),
        refute="the kernel log of that minute (journalctl -k) shows no OOM kill, and an earlier line shows a failure",
        then=(_WHO_KILLS if number == "9" or first.id in _OF_RAY else _WHAT_ENDED if number is None else "")
        + _asked_of_host(case, run, first, number),
    )


def _severity(run: AnalysedRun, first: Hit) -> Severity:
    return Severity.WILL_FAIL_UNDER_LOAD if run.served(until=first.index) else Severity.BLOCKS_START


def _said_above(case: Case, run: AnalysedRun, first: Hit) -> Finding | None:
    """A line above the death that a part of vLLM is known by, with that part's answer."""
    told = _above(run, first.index)
    if told is None:
        return None
    at, part, answer = told
    return finding(
        RULE,
        title=answer.title,
        severity=_severity(run, first),
        confidence=Confidence.LIKELY,
        evidence=(case.line(at), case.line(first.index)),
        changes=changes_of(case, part.answers, run.lines[at].text),
        refute="the same line stands in the log of a start that serves",
        layer=part.id,
        then=part.next,
    )


def _error_elsewhere(case: Case, run: AnalysedRun, first: Hit) -> Finding:
    """A heading of an error, without the error."""
    of_worker = first.id == _OF_A_WORKER
    return finding(
        RULE,
        title=("A worker" if of_worker else "The engine") + " failed with an error that is not in this log",
        severity=Severity.WILL_FAIL_UNDER_LOAD if first.id == _OF_THE_SERVICE else Severity.BLOCKS_START,
        confidence=Confidence.LIKELY,
        evidence=(case.line(_said_at(run, first)),),
        refute="the log is whole: then something outside ended the engine",
        then="judge the whole log, from the start of the server: its own error stands "
        + ("in the lines of that worker" if of_worker else "above this line"),
    )


def _thrown(case: Case, run: AnalysedRun, first: Hit) -> Finding | None:
    """An exception of C++ that nothing caught ended the process."""
    thrown = uncaught(case, run)
    if thrown is None:
        return None
    return finding(
        RULE,
        title=thrown.title,
        severity=_severity(run, first),
        confidence=Confidence.LIKELY,
        evidence=tuple(case.line(at) for at in thrown.lines),
        changes=(_uncompiled(case, run, first), *thrown.changes),
        refute="an earlier line of another process shows a failure",
    )


def _asked_of_host(case: Case, run: AnalysedRun, first: Hit, number: str | None) -> str:
    """The large pools of host memory that the launch asks for, where a start ended that makes them: nothing is proved,
    and they are the first thing to make smaller where the kernel says that memory ran out."""
    if number not in {None, "9"} or run.served(until=first.index):
        return ""
    asked = [claim.sum_ for claim in host_claims(case) if claim.large and claim.sum_ is not None]
    return "".join(
        f"; this start asks for {one.value:.0f} GiB of the host ({one.formula}): if its memory ran out, halve that"
        for one in asked
    )


def _uncompiled(case: Case, run: AnalysedRun, first: Hit) -> Change | None:
    """Eager mode, where the process ended while it compiled or captured graphs, which eager mode leaves out."""
    above = (line.text for line in run.lines[max(0, first.index - _ABOVE) : first.index])
    if run.served(until=first.index) or case.effective("enforce-eager") is True:
        return None
    if not any(says(text, "compiles-graphs") for text in above):
        return None
    why = "the process ended while it compiled or captured graphs; eager mode does neither, and decodes slower"
    return set_flag(case, "enforce-eager", True, Direction.ADD, why)


def _ended_itself(case: Case, run: AnalysedRun, said: Hit) -> Finding:
    """Native code found itself in a state that cannot be and ended its process, without a dump of its calls."""
    heap = said.id in _HEAP
    file = next((value for name, value in said.fields.items() if name.startswith("file") and value), "")
    alone = environment(
        "LD_PRELOAD",
        Direction.REMOVE,
        "an allocator or a library that is loaded first mixes its memory with that of other libraries",
        command="tr '\\0' '\\n' < /proc/PID/environ | grep -E 'LD_PRELOAD|LD_LIBRARY_PATH'",
    )
    newer = upgrade(
        case, "native code has a defect, or two builds do not fit together: a newer release may be free of it"
    )
    return finding(
        RULE,
        title="Native code damaged its own memory, and glibc ended the process"
        if heap
        else f"A check in native code ended the process: {file.rpartition('/')[2]}",
        severity=Severity.WILL_FAIL_UNDER_LOAD if run.served(until=said.index) else Severity.BLOCKS_START,
        confidence=Confidence.LIKELY,
        evidence=(case.line(said.index),),
        changes=(_dump(), alone, newer) if heap else (newer, _dump()),
        refute="an earlier line of another process shows a failure",
    )


def _dump() -> Change:
    return environment(
        "PYTHONFAULTHANDLER",
        Direction.SET,
        "Python then writes the calls of the next crash: judge that log",
        to="1",
        command="coredumpctl info   # the calls of this one, where the host keeps core dumps",
    )


def _crashed(case: Case, run: AnalysedRun, first: Hit, number: str) -> Finding:
    """Its own code ended it, and the log lacks the calls: how to get them, and what such crashes are cured with."""
    dump = _dump()
    build = thing(
        ChangeKind.OS,
        "image",
        Direction.CHANGE,
        "a wheel (most often torch) was built for newer processors: an image or a build for this one, or another host",
        command="lscpu | grep -E 'Model name|Flags'; python -c 'import torch; print(torch.__version__)'",
    )
    return finding(
        RULE,
        title=_CRASHES[number],
        severity=Severity.WILL_FAIL_UNDER_LOAD if run.served(until=first.index) else Severity.BLOCKS_START,
        confidence=Confidence.LIKELY,
        evidence=(case.line(first.index),),
        changes=(
            build if number == _ILLEGAL else dump,
            dump if number == _ILLEGAL else upgrade(case, "native code crashed: a newer release may have fixed it"),
        ),
        refute="an earlier line of another process shows a failure",
    )


def _lacks_its_error(run: AnalysedRun, first: Hit) -> bool:
    """Does the line point to an error above it that was cut off? A log that shows the whole service has none."""
    if first.id == _OF_THE_SERVICE:
        return not run.served(until=first.index)
    return first.id in _HEADINGS or (first.id == "engine-init-failed" and _told_above(run, first))


def _said_at(run: AnalysedRun, hit: Hit) -> int:
    """The exception's own line, where the word was met in the code that a traceback quotes."""
    ends = (c.root.at for c in run.crashes if c.first <= hit.index <= c.last)
    return next((at for at in ends if at is not None), hit.index)


def _told_above(run: AnalysedRun, end: Hit) -> bool:
    """Did the engine end by itself, or is there nothing of vLLM's above the line that points there?"""
    codes = [one.rpartition(":")[2].strip() for one in end.fields.get("procs", "").split(",")]
    itself = any(code.isdecimal() for code in codes)
    return itself or not any(line.module is not None for line in run.lines[: end.index])


def _above(run: AnalysedRun, at: int) -> tuple[int, Layer, Answer] | None:
    """What a library of native code wrote before the process died: a line of no logger that a part has a name for."""
    for index in range(at, max(-1, at - 1 - _ABOVE), -1):
        line = run.lines[index]
        if line.level is not None or line.module is not None or not line.text.strip():
            continue
        part = layer_of((line.text,), ())
        found = (a for a in part.answers if a.title and a.said and applies(a, line.text)) if part is not None else ()
        answer = next(iter(found), None)
        if part is not None and answer is not None:
            return index, part, answer
    return None


RULE = rule("VD601", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)

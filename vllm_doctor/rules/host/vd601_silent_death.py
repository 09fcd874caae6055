"""VD601: a process of the engine is gone without a word of its own: it was killed from outside."""

from vllm_doctor.knowledge.layers.switches import switches_of
from vllm_doctor.log.match import read
from vllm_doctor.records.finding import Change
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import Confidence, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.deaths import signal_of
from vllm_doctor.rules.outcome import NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.remedies.answer import changes_of
from vllm_doctor.rules.say import finding

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
        "engine-exited",
        "shell-killed",
        "ray-actor-gone",
    }
)
# A fault in native code ends no script in order.
_NATIVE = frozenset({"native-crash", "native-dump", "fatal-python", "signal-received", "core-abort"})
# Lines of a dump that are looked at.
_DUMP = 80
_SIGNALS = {
    "9": "killed (SIGKILL; only the kernel log can say by whom)",
    "11": "a crash in native code (SIGSEGV)",
    "6": "an abort in native code (SIGABRT)",
}


def judge(case: Case) -> Outcome:
    """Did a process die while nothing failed in the log, and nobody stopped the service?"""
    run = case.run
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    if run.root is not None:
        return NotHere("the log says what failed")
    silent = [h for h in run.deaths if h.id in _SILENT or (h.id == "container-exited" and signal_of(h) is not None)]
    first = next((h for h in silent if h.id in _NATIVE), silent[0] if silent else None)
    if first is None or (run.stopped is not None and run.stopped < first.index):
        return NotHere("no process died without an error message")
    if run.is_script and first.id not in _NATIVE:
        return NotHere("the script got its answers, and the engine ended with the script")
    number = signal_of(first)
    if number == "7":
        return NotHere("SIGBUS: a page of shared memory could not be allocated")
    how = _SIGNALS.get(number, f"signal {number} ended it") if number is not None else "something outside ended it"
    changes = _switches(case, first.index) if first.id in _NATIVE else ()
    return finding(
        RULE,
        title=f"An engine process died without a traceback: {how}",
        severity=Severity.WILL_FAIL_UNDER_LOAD if run.served(-1, first.index) else Severity.BLOCKS_START,
        # Where the dump names the component, only its version and its input are open.
        confidence=Confidence.LIKELY if changes else Confidence.POSSIBLE,
        evidence=(case.line(first.index),),
        changes=changes,
        refute="the kernel log of that minute (journalctl -k) shows no OOM kill, and an earlier line shows a failure",
    )


def _switches(case: Case, at: int) -> tuple[Change, ...]:
    """Python's own dump below names the calls: what turns the component off in which the native code crashed."""
    lines = case.run.lines[at : at + _DUMP] if case.run is not None else ()
    told = [found["file"] for line in lines if (found := read("native-frame", line.text)) is not None]
    return changes_of(case, switches_of(told[::-1], ""), "")[:1]


RULE = rule("VD601", reads=frozenset({Signal.LOG, Signal.LAUNCH, Signal.VERSION}), judge=judge)

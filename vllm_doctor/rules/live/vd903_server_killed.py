"""VD903: the server itself was killed from outside: systemd saw it end by a signal that nobody asked systemd for."""

from vllm_doctor.log.match import read, says
from vllm_doctor.records.finding import Evidence, Finding
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.deaths import signal_of
from vllm_doctor.rules.gates.kernel_said import oom_killer_was_at_work
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, thing

# Who tells of the end, where nobody said what starts the server.
_WHOSE = {"container-exited": "compose", "command-terminated": "pod", "exit-by-signal": "pod"}
# The number of SIGKILL.
_KILL = "9"
# Where each medium says how long a stop may take.
_PATIENCE = {
    "unit": ("TimeoutStopSec", "300"),
    "pod": ("terminationGracePeriodSeconds", "300"),
    "docker": ("stop-timeout", "300"),
    "compose": ("stop_grace_period", "300s"),
}


def judge(case: Case) -> Outcome:
    """Does systemd tell of a signal, and no one of a reason?"""
    run, kernel = case.run, case.kernel
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    late = _while_it_stopped(case)
    if late is not None:
        return late
    told = [(i, line.text) for i, line in enumerate(run.lines) if line.process == "systemd"]
    ended = next(((i, found) for i, text in told if (found := read("systemd-main-killed", text))), None)
    if ended is None and not told:
        return NotHere("the doctor read no line of systemd")
    if ended is None:
        return Clear("systemd saw no signal end the main process")
    index, found = ended
    if run.root is not None:
        return NotHere("the log says what failed before")
    if any(says(text, "systemd-stopping", "systemd-stop-signal") for i, text in told if i < index):
        return NotHere("somebody asked systemd to stop the server")
    if any(says(text, "systemd-oom-kill") for _, text in told):
        return NotHere("the kernel's out-of-memory killer ended the process")
    if oom_killer_was_at_work(case):
        return NotHere("the kernel's out-of-memory killer was at work")
    seen = kernel is not None
    note = "the kernel's log shows no out-of-memory kill" if seen else "the kernel's log could not be read"
    return finding(
        RULE,
        title=f"A signal from outside killed the server ({found['signal']}); {note}",
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.LIKELY if seen else Confidence.POSSIBLE,
        evidence=(case.line(index), *((Evidence("kernel log", "this boot", "no out-of-memory kill"),) if seen else ())),
        changes=(
            thing(
                ChangeKind.OS,
                "who-killed-it",
                Direction.STOP,
                "look for the sender: a person, a watchdog, systemd-oomd (journalctl -u systemd-oomd), a container; "
                "an audit rule (auditctl -a always,exit -S kill) names it next time",
                command="journalctl -u systemd-oomd --since -1h; auditctl -a always,exit -F arch=b64 -S kill",
            ),
        ),
        refute="the kernel log of that minute has an oom-kill line, or the service's log an error just before",
    )


def _while_it_stopped(case: Case) -> Finding | None:
    """Was it told to stop, and killed before it had? Whoever stops a service waits so long and no longer."""
    run = case.run
    if run is None or run.root is not None or run.stopped is None or oom_killer_was_at_work(case):
        return None
    killed = next((hit for hit in run.deaths if hit.index > run.stopped and signal_of(hit) == _KILL), None)
    waited = next((i for i, line in enumerate(run.lines) if says(line.text, "systemd-stop-signal")), None)
    if waited is None and killed is None:
        return None
    index = waited if waited is not None else killed.index if killed is not None else run.stopped
    who = _WHOSE.get(killed.id, "docker") if waited is None and killed is not None else "unit"
    name, to = _PATIENCE.get(case.launch.medium if case.launch is not None else "", _PATIENCE[who])
    why = (
        "give the server this long between SIGTERM and SIGKILL: it must finish its requests and free the GPU "
        "(default: docker 10 s, Kubernetes 30 s, systemd 90 s)"
    )
    return finding(
        RULE,
        title="The server was told to stop, and killed before it had stopped",
        severity=Severity.ADVICE,
        confidence=Confidence.LIKELY,
        evidence=(case.line(run.stopped), case.line(index)),
        changes=(thing(ChangeKind.OS, name, Direction.RAISE, why, to=to),),
        refute="the kernel log of that minute has an oom-kill line",
    )


RULE = rule("VD903", reads=frozenset({Signal.LOG, Signal.KERNEL, Signal.LAUNCH}), judge=judge)

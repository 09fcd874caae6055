"""VD903: the server itself was killed from outside: systemd saw it end by a signal that nobody asked systemd for."""

from vllm_doctor.log.match import read, says
from vllm_doctor.records.finding import Evidence
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.kernel_said import oom_killer_was_at_work
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, thing


def judge(case: Case) -> Outcome:
    """Does systemd tell of a signal, and no one of a reason?"""
    run, kernel = case.run, case.kernel
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    told = [(i, line.text) for i, line in enumerate(run.lines) if line.process == "systemd"]
    ended = next(((i, found) for i, text in told if (found := read("systemd-main-killed", text))), None)
    if ended is None and not told:
        return NotHere("what was read contains no line of systemd")
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


RULE = rule("VD903", reads=frozenset({Signal.LOG, Signal.KERNEL}), judge=judge)

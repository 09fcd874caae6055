"""VD905: the engine process ended without a word of its own, and its server noticed; nobody had asked it to stop."""

from vllm_doctor.log.match import says
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.records.finding import Evidence
from vllm_doctor.records.log import FRONT_END
from vllm_doctor.records.snapshot import Signal
from vllm_doctor.records.verdict import ChangeKind, Confidence, Direction, Severity
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.gates.kernel_said import oom_killer_was_at_work
from vllm_doctor.rules.outcome import Clear, NotHere, Outcome, Unseen, rule
from vllm_doctor.rules.say import finding, thing


def judge(case: Case) -> Outcome:
    """Did the server find its engine gone, while no failure stands in the log and systemd was not asked to stop it?"""
    run, kernel, probe = case.run, case.kernel, case.probe
    if run is None:
        return Unseen(frozenset({Signal.LOG}))
    if run.root is not None:
        return NotHere("the log says what failed")
    index = _noticed(run)
    if index is None:
        return Clear("the server never reported that its engine died")
    before = run.lines[:index]
    if not any(line.process == "systemd" for line in run.lines):
        return NotHere("without systemd's lines an orderly stop looks the same")
    if any(line.process == "systemd" and says(line.text, "systemd-stopping") for line in before):
        return NotHere("systemd was stopping the service")
    if any((line.process or "").startswith(FRONT_END) and says(line.text, "shutdown-marker") for line in before):
        return NotHere("the server itself was told to stop")
    if oom_killer_was_at_work(case):
        return NotHere("the kernel's out-of-memory killer was at work")
    evidence = [case.line(index)]
    if probe is not None and probe.health_status == 503:
        evidence.append(Evidence("probe", "/health", "503: the server runs without its engine"))
    if kernel is not None:
        evidence.append(Evidence("kernel log", "this boot", "no out-of-memory kill"))
    return finding(
        RULE,
        severity=Severity.WILL_FAIL_UNDER_LOAD,
        confidence=Confidence.LIKELY if kernel is not None else Confidence.POSSIBLE,
        evidence=tuple(evidence),
        changes=(
            thing(
                ChangeKind.OS,
                "who-killed-it",
                Direction.STOP,
                "look for the sender of the signal: a person, a watchdog, systemd-oomd, a container's limit; "
                "Restart=always brings the service back (exit status 0 after such a death escapes on-failure)",
                command="journalctl -u systemd-oomd --since -1h; journalctl -k --since -1h",
            ),
        ),
        refute="a traceback of the engine stands before that line, or the kernel's log has an oom-kill or a segfault",
    )


def _noticed(run: AnalysedRun) -> int | None:
    """The first line in which the server misses its engine, as each release words it; a worker's end is none."""
    ends = (h for h in run.all("engine-process-died") if says(h.fields["who"], "is-engine-core"))
    hits = (*run.all("engine-exited"), *ends, *run.all("engine-dead-noticed"))
    return min((h.index for h in hits), default=None)


RULE = rule("VD905", reads=frozenset({Signal.LOG, Signal.KERNEL, Signal.PROBE}), judge=judge)

"""Judges one snapshot: every rule is asked, the root cause comes first, the walk is written down."""

from collections.abc import Sequence

import msgspec

from vllm_doctor.log import silence
from vllm_doctor.log.another_server import another_server
from vllm_doctor.log.last_words import last_words, run_together, strange_end
from vllm_doctor.log.root_cause import AnalysedRun
from vllm_doctor.log.startup_phase import StartupPhase, startup_phase_of
from vllm_doctor.log.unanswered import unanswered
from vllm_doctor.records import excerpt
from vllm_doctor.records.finding import Diagnosis, Evidence, Finding, Missing, Scalar, Step, Subject
from vllm_doctor.records.log import Log
from vllm_doctor.records.reading import NOT_GIVEN, Absent, Known, Unknown
from vllm_doctor.records.snapshot import Signal, Snapshot
from vllm_doctor.records.verdict import Cause, Confidence, Phase, Severity, Verdict
from vllm_doctor.redact.records import answer_to_show
from vllm_doctor.rules import placed, surroundings
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.first_command import with_commands
from vllm_doctor.rules.foresight import foreseen, planned_kv_gib
from vllm_doctor.rules.memory_use import memory_use
from vllm_doctor.rules.order import INTERNAL, by_code
from vllm_doctor.rules.outcome import Outcome, Rule
from vllm_doctor.rules.registry import rules
from vllm_doctor.rules.served_nobody import served_nobody
from vllm_doctor.rules.strays import unjudged as strays_of
from vllm_doctor.rules.trial import tried
from vllm_doctor.rules.walk import Asked, walk

# How to give a signal that was not given.
_GIVE = {
    Signal.LOG: "--log FILE (journalctl -u UNIT > FILE)",
    Signal.KERNEL: "--kernel-log FILE (journalctl -k > FILE)",
    Signal.LAUNCH: "--launch 'vllm serve …'",
    Signal.VERSION: "--vllm-version V",
    Signal.METRICS: "--metrics FILE (curl -s http://HOST:PORT/metrics > FILE)",
    Signal.GPUS: "--nvidia-smi FILE, or --gpu NAME --gpu-memory-gib N",
}
_WORST = {verdict: rank for rank, verdict in enumerate((Verdict.FINDING, Verdict.UNKNOWN, Verdict.OK))}
_SEVERITY = {severity: rank for rank, severity in enumerate(Severity)}


# What these rules name happens at a start as well as at any request: their own words do not tell when it was.
_AT_ANY_TIME = frozenset({"VD208", "VD516", "VD518", "VD526", "VD527", "VD599", "VD606", "VD705"})


def diagnose(snapshot: Snapshot, *, preview: bool = False, memory: bool = False) -> Diagnosis:
    """The verdict on a snapshot, with everything that led to it; what is secret in it stays behind.

    `preview` also asks the rules that are in preview; `memory` says where the GPUs' memory went, as is always said of a
    live server.
    """
    each = [(judged(one, preview=preview, memory=memory), one) for one in _servers(snapshot)]
    (worst, of), *rest = sorted(each, key=lambda pair: _WORST.get(pair[0].verdict, len(_WORST)))
    others = tuple(answer_to_show(told, one) for told, one in rest)
    return msgspec.structs.replace(answer_to_show(worst, of), others=others)


def _servers(snapshot: Snapshot) -> list[Snapshot]:
    """The same host with the log of each server in it; what announces none counts where it serves, or failed."""
    log = snapshot.log
    if not isinstance(log, Known) or not log.value.others:
        return [snapshot]
    logs = (msgspec.structs.replace(log.value, others=()), *log.value.others)
    each = [
        msgspec.structs.replace(snapshot, log=Known(one, log.source), subject=_named(snapshot.subject, one))
        for one in logs
    ]
    runs = [(one, Case(one).run) for one in each]
    return [one for one, run in runs if run is not None and (run.is_server or run.root or run.deaths)] or each


def _named(who: Subject, log: Log) -> Subject:
    """Of several servers in one text, the one that these lines name."""
    stream = next((line.stream for line in log.last.lines if line.stream is not None), None)
    known = who.unit is not None or who.place is not None
    return who if known or stream is None else msgspec.structs.replace(who, place=stream)


def judged(snapshot: Snapshot, *, preview: bool = False, memory: bool = False) -> Diagnosis:
    """The same as the rules say it, for nobody's eyes."""
    case = Case(snapshot)
    asked = [_asked(rule, case) for rule in rules() if preview or not rule.preview]
    found = _ordered(_without_fallbacks([(one.rule, one.outcome) for one in asked]))
    run = case.run
    another = run.another if run is not None else None
    findings = with_commands(case, foreseen(case, tried(case, found))) if another is None else []
    missing = _missing(case, snapshot)
    verdict, because = _verdict(case, snapshot, findings)
    if verdict is Verdict.OK and isinstance(snapshot.metrics, Known):
        against = served_nobody(snapshot.metrics.value)
        verdict, because = (Verdict.UNKNOWN, against) if against is not None else (verdict, because)
    quiet = run is not None and run.served(-1) and not run.stats
    steps = walk(asked, findings, _read(case, snapshot), quiet=quiet)
    path = (*steps, Step("verdict", "What is the verdict?", verdict.value, because))
    return Diagnosis(
        verdict=verdict,
        phase=findings[0].phase if findings else None,
        findings=tuple(msgspec.structs.replace(f, subject=snapshot.subject) for f in findings),
        path=path,
        unknown=missing,
        subject=snapshot.subject,
        facts=_facts(case) | _undated(case, findings),
        memory=surroundings.memory(case, findings),
        launch=surroundings.launch(case),
        medium=surroundings.medium(case),
        made=surroundings.made(case),
        memory_use=memory_use(case, snapshot.subject.unit, snapshot.subject.place) if memory or snapshot.live else None,
    )


def _asked(rule: Rule, case: Case) -> Asked:
    case.forget()
    outcome = ask(rule, case)
    return Asked(rule, outcome, frozenset(case.touched))


def _read(case: Case, snapshot: Snapshot) -> frozenset[Signal]:
    """What was read, or is known not to exist. A log in which vLLM itself says nothing is no source about vLLM."""
    found = {signal for signal in Signal if not isinstance(getattr(snapshot, signal.value), Unknown)}
    run = case.run
    if run is not None and not (run.by_vllm or run.root is not None):
        found.discard(Signal.LOG)
    if strays_of(snapshot):  # it has a log and answers, somewhere
        found -= {Signal.LOG, Signal.LAUNCH, Signal.METRICS, Signal.PROBE}
    return frozenset(found)


def ask(rule: Rule, case: Case) -> Outcome:
    """One rule's outcome. A rule that breaks is a finding about us (VD0001), never silence."""
    try:
        return rule.judge(case)
    except MemoryError:  # what was given is too much, and no rule's defect
        raise
    except Exception as bug:  # noqa: BLE001 - whatever it is, it must be seen
        where = Evidence("vllm-doctor", rule.code, f"{type(bug).__name__}: {bug}")
        return Finding(
            code=INTERNAL,
            cause=Cause.OTHER,
            phase=Phase.NOT_MEMORY,
            title=f"The rule {rule.code} itself failed: this is a defect of vllm-doctor, please report it",
            severity=Severity.ADVICE,
            confidence=Confidence.CONFIRMED,
            evidence=(where,),
            refute="the rule does not fail on the same input",
            doc=INTERNAL,
        )


def _without_fallbacks(outcomes: Sequence[tuple[Rule, Outcome]]) -> list[Finding]:
    """What was found; the rules of last resort only where no other explains why the service failed."""
    found = [(rule, o) for rule, o in outcomes if isinstance(o, Finding)]
    explained = any(
        not r.fallback and o.code != INTERNAL and _SEVERITY[o.severity] < _SEVERITY[Severity.ADVICE] for r, o in found
    )
    return [o for rule, o in found if not (rule.fallback and explained)]


def _ordered(found: Sequence[Finding]) -> list[Finding]:
    """The root cause first. What a more exact or an earlier cause explains says so."""
    known = by_code()
    refined = {code: f.code for f in found if f.code in known for code in known[f.code].refines}

    def key(f: Finding) -> tuple[bool, bool, bool, int]:
        place = known[f.code].position if f.code in known else len(known)
        return f.code == INTERNAL, f.code in refined, _SEVERITY[f.severity] > 1, place

    ordered = sorted(found, key=key)
    return [
        f
        if index == 0 or f.code == INTERNAL
        else msgspec.structs.replace(f, explained_by=refined.get(f.code, _explains(ordered[0], f)))
        for index, f in enumerate(ordered)
    ]


def _explains(root: Finding, other: Finding) -> str | None:
    """Both stand on the same lines of the same log: then the root is the cause of the other."""
    lines = {(e.source, e.locator) for e in root.evidence}
    shared = any((e.source, e.locator) in lines for e in other.evidence)
    weaker = _SEVERITY[root.severity] <= _SEVERITY[other.severity]
    return root.code if shared and weaker else None


def _missing(case: Case, snapshot: Snapshot) -> tuple[Missing, ...]:
    """What was not read. What the log says itself need not be given beside it."""
    told = {Signal.VERSION} if case.version_text is not None else set()
    told |= {Signal.LAUNCH} if case.run is not None and case.run.launch is not None else set()
    found = []
    for signal in Signal:
        reading = getattr(snapshot, signal.value)
        if isinstance(reading, Unknown) and not (reading == NOT_GIVEN and signal in told):
            remedy = reading.remedy or (_GIVE.get(signal, "") if reading == NOT_GIVEN else "")
            found.append(Missing(signal.value, reading.reason, remedy))
    return (*found, *strays_of(snapshot), *(one for one in snapshot.unread if one not in found))


def _verdict(case: Case, snapshot: Snapshot, findings: Sequence[Finding]) -> tuple[Verdict, str]:
    real = [f for f in findings if f.code != INTERNAL]
    if real:
        return Verdict.FINDING, f"{real[0].code}: {real[0].title}"
    if findings:
        return Verdict.UNKNOWN, "a rule of vllm-doctor failed, so the answer is not complete"
    if snapshot.unread:
        return (
            Verdict.UNKNOWN,
            f"a file that was named could not be read: {'; '.join(m.reason for m in snapshot.unread)}",
        )
    if (told := placed.verdict(snapshot)) is not None:
        return told
    if snapshot.live and snapshot.subject.place is None:
        return _live_verdict(case, snapshot)
    run = case.run
    if run is None:
        reason = snapshot.log.reason if not isinstance(snapshot.log, Known) else ""
        given = (snapshot.metrics, snapshot.kernel, snapshot.gpus, snapshot.unit, snapshot.container)
        others = [s for s in given if isinstance(s, Known)]
        if others and reason == "not given":
            return Verdict.OK, "the given input shows no problem; no log was given"
        if reason == "not given" and isinstance(snapshot.launch, Known):
            return Verdict.UNKNOWN, f"{_of_the_launch(case)}; no log was given, so the server's state is not known"
        return Verdict.UNKNOWN, reason or "no log was read"
    verdict, because = _log_verdict(run)
    if snapshot.live and verdict is Verdict.OK:
        because += "; no completion was tried, because the server cannot be asked from here"
    return verdict, because


def _of_the_launch(case: Case) -> str:
    if case.version is None:
        return "no release was given to judge the launch by (--vllm-version V)"
    return f"vLLM {case.version_text} refuses no part of this launch that the doctor checks"


def _unsure(run: AnalysedRun) -> str | None:
    """What stands against an ok: something failed, or somebody unknown had the last word."""
    if run.unsettled is not None:
        number = run.lines[run.unsettled.index].number
        return f"line {number} reports a failure, and nothing shows that the server answered after it"
    if (told := last_words(run)) is not None:
        still = f" (its last statistics: {run.stalled} requests run, and no token)" if run.stalled else ""
        return (
            f"line {told.number} says that something ended or failed, and nothing after it shows that the engine "
            f"works{still}: {excerpt.said(told.text.strip())}"
        )
    if (together := run_together(run)) is not None:
        return f"line {together.number} is many lines of a server in one; give the log with one line for each"
    ended = run.served(-1) or run.answered or run.stopped is not None
    if ended and (told := strange_end(run)) is not None:
        if told.level is not None:
            return (
                f"the log ends with an error that no rule knows, perhaps cut short: {excerpt.said(told.text.strip())}"
            )
        return (
            "after the server's last line stands a line of another program, which may know why the server ended: "
            f"{excerpt.said(told.text.strip())}"
        )
    return unanswered(run) or another_server(run)


def _log_verdict(run: AnalysedRun) -> tuple[Verdict, str]:
    if run.client is not None:
        return Verdict.UNKNOWN, (
            f"this is a client's log ({run.client.name}): {run.client.answers}; "
            "a client's log says nothing more about the server: give the server's own log"
        )
    if run.another is not None:
        return (
            Verdict.UNKNOWN,
            f"this is a log of {run.another}, and no line in it is vLLM's; the doctor judges vLLM only",
        )
    if not run.is_vllm:
        return Verdict.UNKNOWN, "no line of this log comes from vLLM"
    if run.deaths and (run.stopped is None or run.stopped > run.deaths[0].index) and not run.is_script:
        return Verdict.UNKNOWN, "a process died, and the log does not contain what failed before it"
    if not run.by_vllm:
        return (
            Verdict.UNKNOWN,
            "this log mentions vLLM, but vLLM wrote no line of it: give the server's own log",
        )
    if (against := _unsure(run)) is not None:
        return Verdict.UNKNOWN, against
    if run.served(-1, least=StartupPhase.SERVING) or (run.served(-1) and run.answered):
        end = (
            "the server was stopped from outside"
            if run.stopped is not None
            else "the log shows no failure after that line"
        )
        return Verdict.OK, f"the server became ready, and {end}"
    if run.answered and (run.reached() is None or run.stopped is not None):
        return Verdict.OK, "the server answered requests, and the given input shows no failure"
    if run.exited:
        return Verdict.OK, "the program ended by itself after its engine was made, and nothing failed"
    if run.stopped is not None:
        return Verdict.OK, "the start was stopped from outside before it was complete; nothing had failed"
    reached = run.reached()
    late = silence.behind(run)
    if late is not None:
        where = f"line {run.lines[late.index].number}"
        return Verdict.UNKNOWN, (
            f"the log ends during the start, and {late} ({where}): look at that rank's own lines and at its GPU; "
            f"{silence.usual(run).look}"
        )
    return Verdict.UNKNOWN, (
        f"the log ends during the start (last step seen: {reached.value if reached else 'none'}) without an "
        f"error: the server is still starting, was killed from outside, or the log is not complete; if the "
        f"log stays silent for minutes: {silence.usual(run).look}"
    )


def _bare_host(snapshot: Snapshot, unit: Absent) -> tuple[Verdict, str]:
    """A host without a unit to judge: nothing to do, unless vLLM runs there all the same or its cards do not answer."""
    strays = strays_of(snapshot)
    if strays:
        return Verdict.UNKNOWN, "; ".join(f"{one.reason}: {one.remedy}" for one in strays[:3])
    if isinstance(snapshot.gpus, Unknown) and snapshot.gpus != NOT_GIVEN:
        return Verdict.UNKNOWN, f"{unit.reason}, and its GPUs could not be read: {snapshot.gpus.reason}"
    if isinstance(snapshot.machine, Unknown) and snapshot.machine != NOT_GIVEN:
        return Verdict.UNKNOWN, f"{unit.reason}, and its processes could not be read: {snapshot.machine.reason}"
    return Verdict.NOT_APPLICABLE, unit.reason


def _live_verdict(case: Case, snapshot: Snapshot) -> tuple[Verdict, str]:
    if isinstance(snapshot.unit, Absent):
        return _bare_host(snapshot, snapshot.unit)
    for name in ("unit", "log", "metrics", "gpus"):
        reading = getattr(snapshot, name)
        if isinstance(reading, Unknown) and (name != "metrics" or _serving(snapshot)):
            return Verdict.UNKNOWN, f"the {name} could not be read: {reading.reason}"
    if isinstance(snapshot.probe, Known) and snapshot.probe.value.completion_unknown:
        return Verdict.UNKNOWN, snapshot.probe.value.completion_unknown
    if _serving(snapshot):
        return Verdict.OK, f"{_answered(snapshot)}, and no rule found a problem"
    unit = snapshot.unit.value if isinstance(snapshot.unit, Known) else None
    if unit is not None and unit.active_state == "inactive" and unit.result == "success":
        return Verdict.OK, "the unit was stopped on purpose, and nothing had failed"
    state = f"{unit.active_state} ({unit.sub_state})" if unit is not None else "unknown"
    run = case.run
    silent = silence.minutes(run, case.taken_at) if run is not None else 0
    if silent >= silence.WORTH_TELLING:
        reached = run.reached() if run is not None else None
        where = (silence.usual(run) if run is not None else silence.step(None)).look
        return Verdict.UNKNOWN, (
            f"the unit is {state} and does not serve; its last line is {silent:.0f} minutes old (last step seen: "
            f"{reached.value if reached else 'none'}), and the log shows no error: {where}"
        )
    return (
        Verdict.UNKNOWN,
        f"the unit is {state} and does not serve; no sign of a failure yet: run diagnose again when it has started",
    )


def _answered(snapshot: Snapshot) -> str:
    """How far the server was tried. /health may answer while no token comes."""
    if not isinstance(snapshot.probe, Known):
        return (
            "systemd reports the unit as running (the server listens on a Unix socket, and the doctor did not ask it)"
        )
    return f"/health answers, {placed.tried(snapshot.probe.value)}"


def _serving(snapshot: Snapshot) -> bool:
    """Does the server answer as a server in order does?"""
    if isinstance(snapshot.probe, Known):
        return snapshot.probe.value.health_status == 200
    # A server on a Unix socket is not asked; systemd's word has to do.
    return (
        isinstance(snapshot.unit, Known)
        and isinstance(snapshot.probe, Absent)
        and snapshot.unit.value.sub_state == "running"
    )


def _undated(case: Case, findings: Sequence[Finding]) -> dict[str, Scalar]:
    """Does neither a call nor a line nor the rule tell whether the server was up when it failed?

    Without a call, a start is assumed.
    """
    run, root = case.run, case.root
    if run is None or root is None or not findings or findings[0].code not in _AT_ANY_TIME:
        return {}
    assumed = root.startup_phase is StartupPhase.CONFIG and startup_phase_of(root.functions) is None
    if not assumed or root.of_a_request or run.deaths or run.reached() is not None or run.launch is not None:
        return {}
    return {"time_of_failure_unseen": True}


def _facts(case: Case) -> dict[str, Scalar]:
    """What was read of the subject itself: version, model, how far the start came, runs before this one."""
    facts: dict[str, Scalar] = {"vllm_version": case.version_text}
    facts["model"] = case.model
    if case.gpu_name:
        count = len(case.gpus or ())
        facts["card"] = f"{count} × {case.gpu_name}" if count > 1 else case.gpu_name
    if case.driver is not None and case.driver.module:
        facts["driver"] = case.driver.module
    run = case.run
    if run is not None:
        reached = run.reached()
        facts |= {
            "reached": reached.value if reached is not None else None,
            "earlier_runs": run.log.earlier_runs,
            "earlier_lives": run.log.earlier_runs,  # its name before 0.2.0
            "lines_read": len(run.lines),
            "bytes_skipped": run.log.last.skipped_bytes,
            "complete_head": run.log.last.complete_head,
        }
        root = run.root
        if root is not None and (root.of_a_request or root.startup_phase is StartupPhase.SERVING):
            facts["failed_while_serving"] = True
        facts |= {"failed_while_serving": True} if run.refused is not None else {}
        facts |= {f"log_note_{number}": note for number, note in enumerate(run.log.notes[:8], 1)}
        for name, message, field in (("available_kv_gib", "kv-available", "size"), ("kv_tokens", "kv-size", "tokens")):
            value = run.number(message, field)
            if value is not None:
                facts[name] = value
    if case.weights_gib is not None:
        facts["weights_gib"] = case.weights_gib
    if case.live and "available_kv_gib" in facts and (planned := planned_kv_gib(case)) is not None:
        facts["planned_kv_gib"] = planned
    if case.past is not None and case.past.before_crash:
        facts["before_last_crash"] = case.past.before_crash
    if case.past is not None and case.past.restarted:
        facts["guard_restarted"] = case.past.restarted
    return facts

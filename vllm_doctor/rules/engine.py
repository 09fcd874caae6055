"""Judges one snapshot: every rule is asked, the root cause comes first, the walk is written down."""

from collections.abc import Sequence

import msgspec

from vllm_doctor.records.finding import Diagnosis, Evidence, Finding, Missing, Step, Subject
from vllm_doctor.records.log import Log
from vllm_doctor.records.reading import NOT_GIVEN, Known, Unknown
from vllm_doctor.records.snapshot import Signal, Snapshot
from vllm_doctor.records.verdict import Cause, Confidence, Phase, Severity, Verdict
from vllm_doctor.redact.records import answer_to_show
from vllm_doctor.rules import surroundings
from vllm_doctor.rules.case import Case
from vllm_doctor.rules.facts import facts_of, undated
from vllm_doctor.rules.first_command import with_commands
from vllm_doctor.rules.foresight import foreseen
from vllm_doctor.rules.memory_use import memory_use
from vllm_doctor.rules.order import INTERNAL, by_code
from vllm_doctor.rules.outcome import Outcome, Rule
from vllm_doctor.rules.registry import rules
from vllm_doctor.rules.second_look import looked_at_again
from vllm_doctor.rules.served_nobody import served_nobody
from vllm_doctor.rules.strays import unjudged as strays_of
from vllm_doctor.rules.trial import tried
from vllm_doctor.rules.verdict_of import verdict_of
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


def diagnose(snapshot: Snapshot, *, preview: bool = False, memory: bool = False) -> Diagnosis:
    """The verdict on a snapshot, with everything that led to it; what is secret in it stays behind.

    `preview` also asks the rules that are in preview; `memory` says where the GPUs' memory went, as is always said of a
    live server.
    """
    each = _worth_telling([(judged(one, preview=preview, memory=memory), one) for one in _servers(snapshot)])
    each = _each_once(each)
    (worst, of), *rest = sorted(each, key=lambda pair: _WORST.get(pair[0].verdict, len(_WORST)))
    others = tuple(answer_to_show(_by_name(told, one), one) for told, one in rest)
    return msgspec.structs.replace(answer_to_show(worst, of), others=others)


def _servers(snapshot: Snapshot) -> list[Snapshot]:
    """The same host with the log of each server in it."""
    log = snapshot.log
    if not isinstance(log, Known) or not log.value.others:
        return [snapshot]
    logs = (msgspec.structs.replace(log.value, others=()), *log.value.others)
    return [
        msgspec.structs.replace(snapshot, log=Known(one, log.source), subject=_named(snapshot.subject, one))
        for one in logs
    ]


def _worth_telling(each: list[tuple[Diagnosis, Snapshot]]) -> list[tuple[Diagnosis, Snapshot]]:
    """Of several servers in one text, those that are one: what announces none counts where it serves, or failed."""
    if len(each) == 1:
        return each
    runs = [(pair, Case(pair[1]).run) for pair in each]
    return [
        pair
        for pair, run in runs
        if pair[0].findings or (run is not None and (run.is_server or run.root or run.deaths))
    ] or each


def _each_once(each: list[tuple[Diagnosis, Snapshot]]) -> list[tuple[Diagnosis, Snapshot]]:
    """Without a server of no name whose launch failed as the same launch did above: a text that was given twice, or
    replicas, of which one is told."""
    kept: list[tuple[Diagnosis, Snapshot]] = []
    told: set[tuple[str, ...]] = set()
    for diagnosis, one in each:
        first = diagnosis.findings[0] if diagnosis.findings and diagnosis.subject.place is None else None
        if first is not None and one.subject.unit is None:
            same = (first.code, first.title, first.detail, str(diagnosis.facts.get("model")), *diagnosis.launch)
            if same in told:
                continue
            told.add(same)
        kept.append((diagnosis, one))
    return kept


def _named(who: Subject, log: Log) -> Subject:
    """Of several servers in one text, the one that these lines name."""
    stream = next((line.stream for line in log.last.lines if line.stream is not None), None)
    known = who.unit is not None or who.place is not None
    return who if known or stream is None else msgspec.structs.replace(who, place=stream)


def _by_name(told: Diagnosis, of: Snapshot) -> Diagnosis:
    """A server of which no name stands in front of its lines is told from the others by its launch: its port where that
    names one, else its model."""
    case = Case(of)
    launch = case.run.launch if case.run is not None else None
    if launch is None or told.subject.unit is not None or told.subject.place is not None:
        return told
    port = case.flag("port")
    name = f"port {port}" if port is not None else launch.model
    return msgspec.structs.replace(told, subject=msgspec.structs.replace(told.subject, place=name))


def judged(snapshot: Snapshot, *, preview: bool = False, memory: bool = False) -> Diagnosis:
    """The same as the rules say it, for nobody's eyes."""
    case = Case(snapshot)
    asked = [_asked(rule, case) for rule in rules() if preview or not rule.preview]
    found = _ordered(_without_fallbacks([(one.rule, one.outcome) for one in asked]))
    run = case.run
    another = run.another if run is not None else None
    findings = with_commands(case, foreseen(case, tried(case, looked_at_again(case, found)))) if another is None else []
    missing = _missing(case, snapshot)
    verdict, because = verdict_of(case, snapshot, findings)
    if verdict is Verdict.OK and isinstance(snapshot.metrics, Known):
        against = served_nobody(snapshot.metrics.value)
        verdict, because = (Verdict.UNKNOWN, against) if against is not None else (verdict, because)
    quiet = run is not None and run.served() and not run.stats
    steps = walk(asked, findings, _read(case, snapshot), quiet=quiet)
    path = (*steps, Step("verdict", "What is the verdict?", verdict.value, because))
    return Diagnosis(
        verdict=verdict,
        phase=findings[0].phase if findings else None,
        findings=tuple(msgspec.structs.replace(f, subject=snapshot.subject) for f in findings),
        path=path,
        unknown=missing,
        subject=snapshot.subject,
        facts=facts_of(case) | undated(case, findings),
        memory=surroundings.memory(case, findings),
        launch=surroundings.launch(case),
        medium=surroundings.medium(case),
        made=surroundings.made(case),
        memory_use=memory_use(case, snapshot.subject.unit, snapshot.subject.place) if memory or snapshot.live else None,
    )


def _asked(rule: Rule, case: Case) -> Asked:
    case.forget()
    outcome = ask(rule, case)
    confirmed = isinstance(outcome, Finding) and outcome.confidence is Confidence.CONFIRMED
    if isinstance(outcome, Finding) and confirmed and (_by_words(case) or _warned_before(case)):
        outcome = msgspec.structs.replace(outcome, confidence=Confidence.LIKELY)
    return Asked(rule, outcome, frozenset(case.touched))


def _by_words(case: Case) -> bool:
    """Is it a person's account that tells in which step memory ran out? No sum is sure of a step that nobody shows."""
    return case.run is not None and case.run.placed_by_words


def _warned_before(case: Case) -> bool:
    """Is it a warning that the finding rests on, behind which something else failed? It may be the reason, or none."""
    root = case.root
    if case.run is None or root is None or not case.run.warned_of(root):
        return False
    return any(f.index > root.index and not f.ids & root.ids for f in case.run.faults)


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
    told |= {Signal.LAUNCH} if case.shows_launch else set()
    told |= {Signal.GPUS} if case.gpu_name else set()
    found = []
    for signal in Signal:
        reading = getattr(snapshot, signal.value)
        if isinstance(reading, Unknown) and not (reading == NOT_GIVEN and signal in told):
            remedy = reading.remedy or (_GIVE.get(signal, "") if reading == NOT_GIVEN else "")
            found.append(Missing(signal.value, reading.reason, remedy))
    return (*found, *strays_of(snapshot), *(one for one in snapshot.unread if one not in found))

"""The diagnosis for a person at 3 a.m.: the answer and the change on the first screen, then how it was reached."""

import re
import shlex
from collections.abc import Sequence

from vllm_doctor.records.finding import Arithmetic, Change, Diagnosis, Finding, Missing, Repair, Step, Subject
from vllm_doctor.records.reading import NOT_GIVEN
from vllm_doctor.records.verdict import Applicability, ChangeKind, Confidence, Severity, Verdict
from vllm_doctor.remedy import dropin, inventory
from vllm_doctor.remedy.argv import exact
from vllm_doctor.render import bar
from vllm_doctor.render.deeds import deed, scalar
from vllm_doctor.render.page import Page
from vllm_doctor.render.text import figure, visible
from vllm_doctor.rules.chart import NODES

_STYLES = {
    Verdict.OK: "bold green",
    Verdict.FINDING: "bold red",
    Verdict.NOT_APPLICABLE: "bold cyan",
    Verdict.UNKNOWN: "bold yellow",
}
SEVERITIES = {
    Severity.BLOCKS_START: "blocks the start",
    Severity.WILL_FAIL_UNDER_LOAD: "will fail under load",
    Severity.DEGRADED: "degraded",
    Severity.ADVICE: "advice",
}
EFFECTS = {
    Severity.BLOCKS_START: "does not start",
    Severity.WILL_FAIL_UNDER_LOAD: "fails under load",
    Severity.DEGRADED: "runs below what it could",
    Severity.ADVICE: "runs; one thing could be better",
}
APPLICABILITY = {
    Applicability.SAFE: "safe",
    Applicability.NEEDS_REVIEW: "",
    Applicability.MANUAL: "by hand",
}
CERTAINTIES = {
    Confidence.CONFIRMED: "confirmed",
    Confidence.LIKELY: "likely",
    Confidence.POSSIBLE: "possible, not proved",
}
HEADLINES = {
    Verdict.OK: "no fault found in what could be seen",
    Verdict.FINDING: "",
    Verdict.NOT_APPLICABLE: "there is nothing here to diagnose",
    Verdict.UNKNOWN: "it cannot be said yet",
}
HINTS = {
    Verdict.NOT_APPLICABLE: "A unit of another name: --unit NAME. A server in a container or elsewhere: --log FILE.",
}
_HIDDEN = "[hidden]"
# The most lines of a corrected launch that are shown unasked.
_PASTE = 6
MEDIA = {
    "command": "The whole command",
    "unit": "The unit's drop-in",
    "docker": "The container",
    "compose": "In the compose file",
    "pod": "In the pod's spec",
    "slurm": "In the batch script",
    "python": "In Python",
    "inventory": "In the inventory",
}
# Columns of what stands before an answer's words.
_FIELD = 6
# How a reader calls what was not read.
_SIGNALS = {
    "kernel": "kernel log", "gpus": "GPUs", "unit": "systemd unit", "machine": "host", "probe": "the server's answer",
    "model_config": "the model's config.json", "version": "vLLM's version", "launch": "the launch",
    "container": "the container",
}  # fmt: skip
# Where most figures are from: the very line that stands above them.
_PLAIN_SOURCES = frozenset({"the error line", "the log", "torch's message", ""})
_EXCEPTION = re.compile(r"(?P<what>\b(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b: .*)", re.DOTALL)
_SUM = re.compile(r"[\d.,]+ − [\d.,]+")
_JOURNAL = re.compile(r"\d{4}-\d\d-\d\dT\S{1,40} \S{1,200} [^\s\[\]]{1,60}\[\d{1,10}\]: (?P<what>.*)", re.DOTALL)
_HEADED = re.compile(r"\[[\w./<>-]+:\d+\] (?P<what>.*)", re.DOTALL)


def text(
    diagnosis: Diagnosis,
    *,
    color: bool = False,
    width: int = 100,
    argv: tuple[str, ...] = (),
    why: bool = False,
    path: bool = False,
    medium: str | None = None,
) -> str:
    """The answer: what, why, what to do and how sure in ten lines, then evidence and arithmetic.

    `argv` is the effective command line, from which the emergency drop-in is made. `why` adds all other changes, the
    findings beside the first and what was not seen; `path` the way through the flowchart.
    """
    page = Page(width, color=color)
    _head(page, diagnosis)
    roots = [f for f in diagnosis.findings if f.explained_by is None]
    for number, finding in enumerate(roots if why else roots[:1]):
        if number:
            page.blank()
        _answer(page, finding, diagnosis.repair if number == 0 else None)
        if number == 0:
            _paste(page, diagnosis, finding, medium)
        if number == 0 and diagnosis.memory is not None:
            page.blank()
            bar.draw(page, diagnosis.memory)
        _grounds(page, diagnosis, finding, argv, whole=why)
    if not why:
        _beside(page, roots[1:])
    if path:
        _path(page, diagnosis)
    if why or (diagnosis.verdict is Verdict.UNKNOWN and not roots):
        _unseen(page, diagnosis)
    _more(page, diagnosis, roots, why=why, path=path)
    return str(page)


def _head(page: Page, diagnosis: Diagnosis) -> None:
    word = diagnosis.verdict.value.upper().replace("_", " ")
    who = visible(subject(diagnosis.subject), 120)
    first = diagnosis.findings[0] if diagnosis.findings else None
    if first is not None:
        version = diagnosis.facts.get("vllm_version")
        who = who or (f"vLLM {visible(str(version), 60)}" if version else "vLLM")
        state = "may be at fault" if first.confidence is Confidence.POSSIBLE else EFFECTS[first.severity]
        page.line((word, _STYLES[diagnosis.verdict]), (f"  {who} {state}", "bold"))
        _notes(page, diagnosis)
        return
    page.line((word, _STYLES[diagnosis.verdict]), (f"  {HEADLINES[diagnosis.verdict]}", "bold"))
    if who:
        page.text(who, indent=2)
    if diagnosis.path and diagnosis.path[-1].because:
        page.text(visible(diagnosis.path[-1].because, 600), indent=2)
    if hint := HINTS.get(diagnosis.verdict):
        page.text(hint, indent=2)
    plain, notes = facts(diagnosis)
    if plain:
        page.text(" · ".join(plain), "dim", indent=2)
    for note in notes:
        page.text(note, "dim", indent=2)


def _notes(page: Page, diagnosis: Diagnosis) -> None:
    """Which run was judged, where that is not the last one."""
    for name, note in diagnosis.facts.items():
        if name.startswith("log_note_") and isinstance(note, str) and note.startswith("judged"):
            page.text(visible(note, 300), "dim")


def _answer(page: Page, finding: Finding, repair: Repair | None = None) -> None:
    """What, why, where and what is true now, what to do, how sure."""
    for number, part in enumerate(page.wrapped(visible(f"{finding.code} {finding.title}", 300), 0)):
        page.line(("  " * min(number, 1) + part, "bold"))
    if finding.detail:
        page.text(visible(finding.detail, 400), indent=2, most=2)
    page.field("why", because(finding), most=2)
    if repair is not None:
        if repair.where:
            page.field("where", visible(repair.where, 600), most=3)
        for number, told in enumerate(repair.now):
            page.field("" if number else "now", visible(told, 400), most=2)
    _deed(page, finding, repair)
    sure = CERTAINTIES[finding.confidence]
    if finding.refute:
        sure += f"; it is not this if {visible(finding.refute, 300)}"
    page.field("sure", sure, most=2)


def because(finding: Finding) -> str:
    """The sum in one line; where there is none the decisive words of the evidence."""
    sums = list(finding.arithmetic)
    missing = next((at for at, one in enumerate(sums) if one.name == "missing"), None)
    if missing is not None and missing:
        told = ", ".join(_figured(one) for one in sums[max(0, missing - 2) : missing])
        lacks = sums[missing]
        how = f"{lacks.formula} = " if _SUM.fullmatch(lacks.formula) else ""
        return visible(f"{told}: {how}{figure(lacks.value)} {lacks.unit} too little", 300)
    if sums:
        return visible(", ".join(_figured(one) for one in sums[:3]), 300)
    return next((visible(decisive(e.excerpt), 200) for e in finding.evidence), "") or "see the evidence"


def _figured(one: Arithmetic) -> str:
    return f"{one.name} {figure(one.value)} {one.unit}"


def decisive(excerpt: str) -> str:
    """A log line from its exception on, or without the head that vLLM's logger gives it."""
    for pattern in (_EXCEPTION, _HEADED, _JOURNAL):
        found = pattern.search(excerpt)
        if found is not None:
            return excerpt[found.start("what") :]
    return excerpt


def _deed(page: Page, finding: Finding, repair: Repair | None) -> None:
    if not finding.changes:
        nothing = "nothing is certain enough to change yet" if finding.confidence is Confidence.POSSIBLE else ""
        page.field("do", finding.next or nothing or f"no setting cures it: vllm-doctor explain {finding.code}", most=3)
        return
    change = finding.changes[0]
    if repair is not None and repair.commands:
        page.line(("do".ljust(_FIELD), "bold cyan"), (visible(deed(change)), "bold"), (_aside(change), "dim"))
        for command in repair.commands:
            page.verbatim(f"$ {visible(command, 2000)}", "bold green", indent=_FIELD)
        return
    _offer(page, "do", change)
    if not exact(change):
        # Where the first is for hands, the next that can be typed.
        for other in (c for c in finding.changes[1:] if exact(c) and c.kind in {ChangeKind.FLAG, ChangeKind.ENV}):
            _offer(page, "or", other, why=False)
            break


def _offer(page: Page, name: str, change: Change, *, why: bool = True, most: int = 2) -> None:
    """A change on a line that is never broken, then what it leads to and what to type."""
    line, aside = visible(deed(change)), _aside(change)
    fits = len(line) + len(aside) + _FIELD <= page.width
    page.line((name.ljust(_FIELD), "bold cyan"), (line, "bold green"), (aside if fits else "", "dim"))
    if aside and not fits:
        page.text(aside.strip(), "dim", indent=_FIELD)
    if why and change.why:
        page.text(visible(change.why, 400 if most else 2000), indent=_FIELD, most=most)
    if change.command:
        page.verbatim(f"$ {visible(change.command, 400)}", "green", indent=_FIELD)


def _paste(page: Page, diagnosis: Diagnosis, finding: Finding, asked: str | None) -> None:
    """The corrected launch, where it is known and the reader's own: short enough to be read, or asked for."""
    from vllm_doctor.remedy.medium import Medium, corrected

    medium = Medium(asked or diagnosis.medium)
    if medium is Medium.UNIT and asked is None:
        return  # the repair of a unit stands with its host
    change = next((c for c in finding.changes if exact(c) and c.kind in {ChangeKind.FLAG, ChangeKind.ENV}), None)
    lines = corrected(diagnosis, change, medium) if change is not None else []
    if change is None or not lines or (asked is None and len(lines) > _PASTE):
        return
    page.heading(MEDIA[medium])
    for line in lines:
        page.verbatim(visible(line, 8000), "green", indent=2)


def _aside(change: Change) -> str:
    """`   (was 131072; then requests of up to 65,408 tokens)`."""
    was_ = f"was {scalar(change.before)}" if change.before is not None else ""
    then = f"then {predicted(change)}" if change.predicted else ""
    told = "; ".join(filter(None, (was_, then, APPLICABILITY[change.applicability])))
    return f"   ({told})" if told else ""


def _grounds(page: Page, diagnosis: Diagnosis, finding: Finding, argv: tuple[str, ...], *, whole: bool) -> None:
    """What the answer rests on; with `whole` each line in full, and the other changes."""
    if finding.evidence:
        page.heading("Evidence")
        for item in finding.evidence if whole else finding.evidence[:2]:
            place = f"{item.source} {item.locator}".strip()
            when = f" at {item.observed_at}" if item.observed_at else ""
            page.text(visible(place + when, 300), "dim", indent=2)
            page.text(visible(item.excerpt if whole else decisive(item.excerpt), 600), indent=4, most=0 if whole else 3)
    sums = finding.arithmetic if whole else finding.arithmetic[:5]
    if sums:
        page.heading("Arithmetic")
        page.table([_row(one) for one in sums])
    if whole and len(finding.changes) > 1:
        page.heading("Other changes")
        for change in finding.changes[1:]:
            _offer(page, "", change, most=0)
    _lasting(page, diagnosis, finding, argv)
    follows = [f for f in diagnosis.findings if f.explained_by == finding.code]
    if whole and follows:
        page.heading("Explains")
        for other in follows:
            page.text(f"{other.code} {visible(other.title, 300)}", indent=2)


def _row(one: Arithmetic) -> tuple[str, str, str]:
    source = f" [{visible(one.source, 60)}]" if one.source not in _PLAIN_SOURCES else ""
    how = f"= {visible(one.formula)}" if one.formula else ""
    return visible(one.name), f"{figure(one.value)} {visible(one.unit)}", how + source


def _lasting(page: Page, diagnosis: Diagnosis, finding: Finding, argv: tuple[str, ...]) -> None:
    """On a host that an inventory may keep: the repair here and now, then the line that keeps it."""
    unit = diagnosis.subject.unit or finding.subject.unit
    repair = diagnosis.repair if finding is diagnosis.findings[0] else None
    lines = emergency(finding, unit, argv) if repair is None or not repair.commands else []
    if lines:
        page.heading("On this host, until the next playbook run")
        for line in lines:
            page.verbatim(visible(line, 8000), indent=2)
    keeps = repair is None or repair.inventory_keeps
    kept = inventory.line(finding.changes[0]) if keeps and finding.changes and unit is not None else None
    if kept is not None:
        page.heading("In the inventory, to keep it")
        page.verbatim(visible(kept, 2000), "green", indent=2)


def _beside(page: Page, others: Sequence[Finding]) -> None:
    if others:
        page.blank()
    for other in others[:3]:
        page.field("also", f"{other.code} {visible(other.title, 200)} ({SEVERITIES[other.severity]})", most=2)
    if len(others) > 3:
        page.field("", f"and {len(others) - 3} more: --why")


def _more(page: Page, diagnosis: Diagnosis, roots: Sequence[Finding], *, why: bool, path: bool) -> None:
    """What else can be had, and how."""
    told = []
    if not why:
        changes = len(roots[0].changes) - 1 if roots else 0
        held = [f"{changes} other change{'s' * (changes > 1)}"] if changes > 0 else []
        if diagnosis.unknown:
            names = [_SIGNALS.get(m.signal, m.signal) for m in diagnosis.unknown if not of_the_host_alone(m)]
            held.append(f"not seen: {', '.join(dict.fromkeys(names)) or 'the host itself'}")
        if held:
            told.append(f"--why ({'; '.join(held)})")
    if not path and diagnosis.path:
        told.append("--path")
    if roots:
        told.append(f"vllm-doctor explain {roots[0].code}")
    if told:
        page.blank()
        page.field("more", " · ".join(told), "dim")


_FACTS = {
    "vllm_version": "vLLM {}",
    "model": "model {}",
    "reached": "last step of the start seen: {}",
    "weights_gib": "weights {} GiB",
    "available_kv_gib": "KV cache {} GiB",
    "kv_tokens": "KV cache {} tokens",
    "earlier_lives": "{} earlier run(s) in this boot or log",
    "bytes_skipped": "{} bytes in the middle of this run were not read",
}


def facts(diagnosis: Diagnosis) -> tuple[list[str], list[str]]:
    """What was read of the subject, what is nought or not known left out; and notes about the log, a line each."""
    told = [shown.format(scalar(value)) for name, shown in _FACTS.items() if (value := diagnosis.facts.get(name))]
    notes = [str(value) for name, value in diagnosis.facts.items() if name.startswith("log_note_")]
    if diagnosis.facts.get("complete_head") is False:
        notes.insert(0, "the beginning of this run was not in what was read")
    return told, [visible(note, 300) for note in notes]


def subject(who: Subject) -> str:
    """`vllm.service on gpu7 (GPU-…)`, as far as it is known."""
    text = who.unit or who.place or ""
    if who.host:
        text += f" on {who.host}" if text else who.host
    return f"{text} ({who.gpu})" if who.gpu else text


def emergency(finding: Finding, unit: str | None, argv: tuple[str, ...]) -> list[str]:
    """The drop-in as lines to paste; empty where the change is none for a unit or the unit is not known."""
    if unit is None or not finding.changes:
        return []
    wanted = dropin.text(finding.code, argv, finding.changes[:1])
    if wanted is None:
        return []
    if _HIDDEN in wanted:
        return [f"systemctl edit {shlex.quote(unit)}   (the command line carries a secret, so it is not printed here)"]
    place, name = shlex.quote(dropin.path(unit)), shlex.quote(unit)
    return [
        f"install -D -m 644 /dev/stdin {place} <<'END'",
        *wanted.splitlines(),
        "END",
        f"systemctl daemon-reload && systemctl reset-failed {name}; systemctl restart {name}",
    ]


_FIGURES = {
    "available_kv_gib": "{} GiB for the KV cache",
    "kv_tokens": "{} tokens in it",
    "budget_gib": "{} GiB for vLLM in all",
    "needed_kv_gib": "{} GiB of KV cache needed for one request",
    "max_model_len": "requests of up to {} tokens",
    "weights_gib": "weights of {} GiB a GPU",
    "weights_gib_at_most": "weights of at most {} GiB a GPU",
}
_OUTCOMES = {
    "ok": "as planned, it starts",
    "kv-too-small": "as planned, the KV cache is still too small for one request",
    "oom-weights": "as planned, the weights still do not fit",
    "oom-profile": "as planned, the profile run still runs out of memory",
    "oom-cudagraph": "as planned, graph capture still runs out of memory",
    "rejected": "as planned, vLLM refuses the launch",
}


def predicted(change: Change) -> str:
    """`41.2 GiB for the KV cache, 514,432 tokens in it; as planned, it starts`: what the change leads to."""
    told = [
        _FIGURES.get(name, f"{visible(name)} = {{}}").format(figure(value))
        for name, value in change.predicted.items()
        if not isinstance(value, str)
    ]
    outcome = str(change.predicted.get("outcome", ""))
    return "; ".join(filter(None, [", ".join(told), _OUTCOMES.get(outcome, visible(outcome))]))


def was(change: Change) -> str:
    """`was 131072; `, or nothing where it was not set."""
    return f"was {scalar(change.before)}; " if change.before is not None else ""


def _path(page: Page, diagnosis: Diagnosis) -> None:
    if not diagnosis.path:
        return
    page.heading("Path through the flowchart")
    inner = {node.id for node in NODES if node.under is not None}
    for step in diagnosis.path:
        answer = "not seen" if unseen(step) else visible(step.answer)
        because_ = f" - {visible(step.because, 300)}" if step.because else ""
        page.text(f"{visible(step.question)} {answer}{because_}", indent=4 if step.node in inner else 2)


def unseen(step: Step) -> bool:
    """Was what the question asks for not read? (Of the whole, the verdict, it is said that it is unknown.)"""
    return step.answer == "unknown" and step.node != "verdict"


def of_the_host_alone(missing: Missing) -> bool:
    """Was it not given, and can no file give it?"""
    return missing.reason == NOT_GIVEN.reason and not missing.remedy


def _unseen(page: Page, diagnosis: Diagnosis) -> None:
    if not diagnosis.unknown:
        return
    page.heading("Not seen")
    only_there = [_SIGNALS.get(m.signal, m.signal) for m in diagnosis.unknown if of_the_host_alone(m)]
    if only_there:
        page.text(f"{', '.join(only_there)}: only the host itself tells", indent=2)
    for missing in (m for m in diagnosis.unknown if not of_the_host_alone(m)):
        page.text(f"{_SIGNALS.get(missing.signal, missing.signal)}: {visible(missing.reason, 400)}", indent=2)
        if missing.remedy:
            page.verbatim(f"-> {visible(missing.remedy, 400)}", "dim", indent=4)

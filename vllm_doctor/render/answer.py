"""The answer on a terminal: the verdict, what, why, where, what to do and how sure, within ten lines."""

from vllm_doctor.records.finding import Change, Diagnosis, Finding, Repair, subject
from vllm_doctor.records.verdict import ChangeKind, Confidence
from vllm_doctor.redact.visible import visible
from vllm_doctor.remedy import release
from vllm_doctor.remedy.argv import at_once, exact
from vllm_doctor.render.instructions import deed
from vllm_doctor.render.page import Page
from vllm_doctor.render.sentences import aside, detail_and_why, facts, release_told
from vllm_doctor.render.vocabulary import (
    CERTAINTIES,
    FIELD,
    HEADLINES,
    HINTS,
    STYLES,
    effect,
    failed_while_serving,
    place,
    time_unseen,
)

# The most lines of a corrected launch that are shown unasked.
_PASTE = 10
# A container is made anew by its whole line or not at all.
_CONTAINER = 30


def head(page: Page, diagnosis: Diagnosis) -> None:
    """The verdict and whom it is about; of what is in order or not known the reason too."""
    word = diagnosis.verdict.value.upper().replace("_", " ")
    who = visible(subject(diagnosis.subject), 120)
    first = diagnosis.findings[0] if diagnosis.findings else None
    if first is not None:
        version = release_told(diagnosis)
        who = who or (f"vLLM {visible(version, 100)}" if version else "vLLM")
        state = (
            "may have this fault"
            if first.confidence is Confidence.POSSIBLE
            else effect(first, served=failed_while_serving(diagnosis), undated=time_unseen(diagnosis))
        )
        page.line((word, STYLES[diagnosis.verdict]), (f"  {who} {state}", "bold"))
        _notes(page, diagnosis)
        return
    page.line((word, STYLES[diagnosis.verdict]), (f"  {HEADLINES[diagnosis.verdict]}", "bold"))
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
    restarted = diagnosis.facts.get("guard_restarted")
    if isinstance(restarted, str):  # what looks like a crash was its deed
        page.text(visible(f"last restarted: {restarted}", 300), "dim")


def answer(page: Page, finding: Finding, repair: Repair | None = None, *, excerpt: bool = False) -> None:
    """What, why, where and what is true now, what to do, how sure; `excerpt` says that the log was no whole one."""
    for number, part in enumerate(page.wrapped(visible(f"{finding.code} {finding.title}", 300), 0)):
        page.line(("  " * min(number, 1) + part, "bold"))
    detail, why = detail_and_why(finding)
    if detail:
        page.text(visible(detail, 400), indent=2, most=2)
    page.field("why", visible(why, 600), most=2)
    if repair is not None:
        if repair.where:
            page.field("where", visible(repair.where, 600), most=3)
        for number, told in enumerate(repair.now):
            page.field("" if number else "now", visible(told, 400), most=2)
    _deed(page, finding, repair, excerpt=excerpt)
    sure = CERTAINTIES[finding.confidence]
    if finding.refute:
        sure += f"; this finding is wrong if {visible(finding.refute, 300)}"
    page.field("sure", sure, most=2)


# Changes that are made with the first and stand with it; more are counted.
_BESIDE = 3


_NOTHING_YET = "nothing is certain enough to change yet"
_WHOLE = ": judge the whole log, from the start of the server to its end"


def _deed(page: Page, finding: Finding, repair: Repair | None, *, excerpt: bool) -> None:
    if not finding.changes:
        nothing = _NOTHING_YET + _WHOLE * excerpt if finding.confidence is Confidence.POSSIBLE else ""
        page.field(
            "do", finding.next or nothing or f"no setting is known for it: vllm-doctor explain {finding.code}", most=3
        )
        return
    change = finding.changes[0]
    if repair is not None and repair.commands:
        own = visible(repair.deed, 200)
        page.line(
            ("do".ljust(FIELD), "bold cyan"),
            (own or visible(deed(change)), "bold"),
            ("" if own else aside(change), "dim"),
        )
        for command in repair.commands:
            page.verbatim(f"$ {visible(command, 2000)}", "bold green", indent=FIELD)
        return
    offer(page, "do", change)
    beside = at_once(finding.changes)[1:]
    for other in beside[:_BESIDE]:
        offer(page, "and", other, why=False)
    if len(beside) > _BESIDE:
        page.text(f"and {len(beside) - _BESIDE} more: --why", "dim", indent=FIELD)
    if not exact(change):
        # Where the first is for hands, the next that can be typed.
        for other in (c for c in finding.changes[1:] if exact(c) and c.kind in {ChangeKind.FLAG, ChangeKind.ENV}):
            offer(page, "or", other, why=False)
            break


def offer(page: Page, name: str, change: Change, *, why: bool = True, most: int = 2) -> None:
    """A change on a line that is never broken, then what it leads to and what to type."""
    line, beside = visible(deed(change)), aside(change)
    fits = len(line) + len(beside) + FIELD <= page.width
    page.line((name.ljust(FIELD), "bold cyan"), (line, "bold green"), (beside if fits else "", "dim"))
    if beside and not fits:
        page.text(beside.strip(), "dim", indent=FIELD)
    if why and change.why:
        page.text(visible(change.why, 400 if most else 2000), indent=FIELD, most=most)
    if change.command:
        page.verbatim(f"$ {visible(change.command, 400)}", "green", indent=FIELD)


def _heading(diagnosis: Diagnosis, finding: Finding, medium: str) -> str:
    """Where the lines belong, and whether they make the first change: where that one is for hands, another one."""
    told = place(medium, whole=bool(diagnosis.launch))
    if release.wanted(finding.changes) is not None:
        return told if medium in {"docker", "compose", "pod", "inventory"} else "In the environment that starts it"
    typed = at_once(finding.changes)
    if diagnosis.made is not None or not typed or typed[0] is finding.changes[0]:
        return told
    return f"Or: {told[:1].lower()}{told[1:]}"


def paste(page: Page, diagnosis: Diagnosis, finding: Finding, asked: str | None) -> None:
    """The corrected launch, where it is known and the reader's own: short enough to be read, or asked for."""
    from vllm_doctor.remedy.medium import Medium, corrected

    medium = Medium(asked or diagnosis.medium)
    if medium is Medium.UNIT and asked is None:
        return  # the repair of a unit stands with its host
    lines = corrected(diagnosis, finding.changes, medium)
    most = _PASTE if diagnosis.made is None else _CONTAINER
    if not lines or (asked is None and len(lines) > most):
        return
    page.heading(_heading(diagnosis, finding, medium))
    for line in lines:
        page.verbatim(visible(line, 8000), "green", indent=2)

"""What an answer rests on, on a terminal: evidence, arithmetic, what makes it last, the path, what was not seen."""

import shlex

from vllm_doctor.records.finding import Arithmetic, Diagnosis, Finding
from vllm_doctor.redact.visible import visible
from vllm_doctor.remedy import dropin, inventory
from vllm_doctor.remedy.argv import at_once
from vllm_doctor.render.answer import offer
from vllm_doctor.render.page import Page
from vllm_doctor.render.sentences import decisive, of_the_host_alone, unseen
from vllm_doctor.render.text import figure
from vllm_doctor.render.words import SIGNALS
from vllm_doctor.rules.chart import NODES

_HIDDEN = "[hidden]"
# Where most figures are from: the very line that stands above them.
_PLAIN_SOURCES = frozenset({"the error line", "the log", "torch's message", ""})


def grounds(page: Page, diagnosis: Diagnosis, finding: Finding, argv: tuple[str, ...], *, whole: bool) -> None:
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
            offer(page, "", change, most=0)
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
    made = at_once(finding.changes) or finding.changes[:1]
    kept = [told for change in made if (told := inventory.line(change)) is not None]
    if kept and keeps and unit is not None:
        page.heading("In the inventory, to keep it")
        for told in kept:
            page.verbatim(visible(told, 2000), "green", indent=2)


def emergency(finding: Finding, unit: str | None, argv: tuple[str, ...]) -> list[str]:
    """The drop-in as lines to paste; empty where the change is none for a unit or the unit is not known."""
    if unit is None or not finding.changes:
        return []
    wanted = dropin.text(finding.code, argv, at_once(finding.changes))
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


def path_(page: Page, diagnosis: Diagnosis) -> None:
    """The way through the flowchart."""
    if not diagnosis.path:
        return
    page.heading("Path through the flowchart")
    inner = {node.id for node in NODES if node.under is not None}
    for step in diagnosis.path:
        answer = "not seen" if unseen(step) else visible(step.answer)
        because_ = f" - {visible(step.because, 300)}" if step.because else ""
        page.text(f"{visible(step.question)} {answer}{because_}", indent=4 if step.node in inner else 2)


def not_seen(page: Page, diagnosis: Diagnosis) -> None:
    """What was not read, with what would make it readable."""
    if not diagnosis.unknown:
        return
    page.heading("Not seen")
    only_there = [SIGNALS.get(m.signal, m.signal) for m in diagnosis.unknown if of_the_host_alone(m)]
    if only_there:
        page.text(f"{', '.join(only_there)}: only the host itself tells", indent=2)
    for missing in (m for m in diagnosis.unknown if not of_the_host_alone(m)):
        page.text(f"{SIGNALS.get(missing.signal, missing.signal)}: {visible(missing.reason, 400)}", indent=2)
        if missing.remedy:
            page.verbatim(f"-> {visible(missing.remedy, 400)}", "dim", indent=4)

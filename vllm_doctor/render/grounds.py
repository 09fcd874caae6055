"""What an answer rests on, on a terminal: evidence, arithmetic, what makes it last, the path, what was not seen."""

import shlex
from collections.abc import Sequence

from vllm_doctor.records.finding import Arithmetic, Diagnosis, Evidence, Finding
from vllm_doctor.redact.shapes import HIDDEN
from vllm_doctor.redact.visible import visible
from vllm_doctor.remedy import dropin, inventory
from vllm_doctor.remedy.argv import at_once
from vllm_doctor.render.answer import offer
from vllm_doctor.render.page import Page
from vllm_doctor.render.sentences import decisive, of_the_host_alone, unseen
from vllm_doctor.render.text import figure
from vllm_doctor.render.vocabulary import SIGNALS
from vllm_doctor.rules.chart import NODES

# Where most figures are from: the very line that stands above them.
_PLAIN_SOURCES = frozenset({"the error line", "the log", "torch's message", "XLA's message", ""})


# So many lines a whole answer has, where nothing more was asked for; and what comes after the grounds: an empty line
# and what else can be had.
_SCREEN, _MORE = 25, 3
_EXCERPT = 3


def grounds(
    page: Page, diagnosis: Diagnosis, finding: Finding, argv: tuple[str, ...], *, whole: bool, after: int = 0
) -> bool:
    """What the answer rests on; with `whole` each line in full, and the other changes, else as much as one screen has
    room for beside the `after` lines that still come. Says whether sums were left out."""
    left = False
    if whole:
        _evidence(page, finding.evidence, most=0)
        _sums(page, finding.arithmetic, most=0)
    else:
        left = _as_fits(page, finding, _SCREEN - _MORE - after - page.height) < len(finding.arithmetic)
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
    return left


def _as_fits(page: Page, finding: Finding, room: int) -> int:
    """The first piece of evidence in any case; then the sums, and more evidence. How many sums are there."""
    items = finding.evidence[:2]
    least = 2 + len(_placed(page, items[0])) if items else 0  # a heading, where it stands, and below it what it says
    excerpt = max(1, min(_EXCERPT, room - least))
    used = least + min(excerpt, len(page.wrapped(visible(decisive(items[0].excerpt), 600), 4))) if items else 0
    rows = min(5, room - used - 2)
    sums = finding.arithmetic[:rows] if rows >= min(2, len(finding.arithmetic)) else ()
    used += 2 + len(sums) if sums else 0
    shown = items if len(items) > 1 and room - used > len(_placed(page, items[1])) else items[:1]
    _evidence(page, shown, most=excerpt if len(shown) == 1 else max(1, min(excerpt, room - used - 1)))
    _sums(page, sums, most=1)
    return len(sums)


def _placed(page: Page, item: Evidence) -> list[str]:
    """Where it stands."""
    when = f" at {item.observed_at}" if item.observed_at else ""
    return page.wrapped(visible(f"{item.source} {item.locator}".strip() + when, 300), 2)


def _evidence(page: Page, items: Sequence[Evidence], *, most: int) -> None:
    if items:
        page.heading("Evidence")
    for item in items:
        for part in _placed(page, item):
            page.line(("  " + part, "dim"))
        page.text(visible(decisive(item.excerpt) if most else item.excerpt, 600), indent=4, most=most)


def _sums(page: Page, sums: Sequence[Arithmetic], *, most: int) -> None:
    if sums:
        page.heading("Arithmetic")
        page.table([_row(one) for one in sums], most=most)


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
    if HIDDEN in wanted:
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
        page.text(f"{', '.join(only_there)}: visible only on the host itself", indent=2)
    for missing in (m for m in diagnosis.unknown if not of_the_host_alone(m)):
        page.text(f"{SIGNALS.get(missing.signal, missing.signal)}: {visible(missing.reason, 400)}", indent=2)
        if missing.remedy:
            page.verbatim(f"-> {visible(missing.remedy, 400)}", "dim", indent=4)

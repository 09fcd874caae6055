"""The diagnosis for a person at 3 a.m.: the answer and the change on the first screen, then how it was reached."""

from collections.abc import Sequence

from vllm_doctor.records.finding import Diagnosis, Finding, subject
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.redact.visible import visible
from vllm_doctor.render import bar, memory_use
from vllm_doctor.render.answer import answer, head, paste
from vllm_doctor.render.grounds import grounds, not_seen, path_
from vllm_doctor.render.page import Page
from vllm_doctor.render.sentences import of_the_host_alone
from vllm_doctor.render.vocabulary import HEADLINES, SEVERITIES, SIGNALS


def text(
    diagnosis: Diagnosis,
    *,
    color: bool = False,
    width: int = 100,
    argv: tuple[str, ...] = (),
    why: bool = False,
    path: bool = False,
    memory: bool = False,
    medium: str | None = None,
) -> str:
    """The answer: what, why, what to do and how sure in ten lines, then evidence and arithmetic.

    `argv` is the effective command line, from which the emergency drop-in is made. `why` adds all other changes, the
    findings beside the first and what was not seen; `path` the way through the flowchart; `memory` where the GPUs'
    memory went.
    """
    page = Page(width, color=color)
    head(page, diagnosis)
    roots = [f for f in diagnosis.findings if f.explained_by is None]
    left = False
    for number, finding in enumerate(roots if why else roots[:1]):
        if number:
            page.blank()
        excerpt = diagnosis.facts.get("vllm_version") is None or "vllm_version_by_lines" in diagnosis.facts
        answer(page, finding, diagnosis.repair if number == 0 else None, excerpt=excerpt)
        if number == 0:
            paste(page, diagnosis, finding, medium)
        if number == 0 and diagnosis.memory is not None:
            page.blank()
            bar.draw(page, diagnosis.memory)
        after = (1 + len(roots[1:4]) if roots[1:] else 0) + (2 + len(diagnosis.others[:8]) if diagnosis.others else 0)
        left |= grounds(page, diagnosis, finding, argv, whole=why, after=after)
    if not why:
        _beside(page, roots[1:])
    _others(page, diagnosis.others)
    if memory:
        memory_use.draw(page, diagnosis.memory_use)
    if path:
        path_(page, diagnosis)
    if why or (diagnosis.verdict is Verdict.UNKNOWN and not roots):
        not_seen(page, diagnosis)
    _more(page, diagnosis, roots, "all sums" if left else "", why=why, path=path)
    return str(page)


def _beside(page: Page, others: Sequence[Finding]) -> None:
    if others:
        page.blank()
    for other in others[:3]:
        page.field("also", f"{other.code} {visible(other.title, 200)} ({SEVERITIES[other.severity]})", most=2)
    if len(others) > 3:
        page.field("", f"and {len(others) - 3} more: --why")


def _others(page: Page, others: Sequence[Diagnosis]) -> None:
    """The other servers that wrote into the same log, a line each."""
    if others:
        page.heading("Other servers in this log")
    for other in others[:8]:
        first = other.findings[0] if other.findings else None
        told = f"{first.code} {visible(first.title, 200)}" if first is not None else HEADLINES[other.verdict]
        page.text(f"{visible(subject(other.subject), 120) or 'another'}: {told}", indent=2)


def _more(page: Page, diagnosis: Diagnosis, roots: Sequence[Finding], left: str, *, why: bool, path: bool) -> None:
    """What else can be had, and how; `left` is what had no room."""
    told = []
    if not why:
        changes = len(roots[0].changes) - 1 if roots else 0
        held = [f"{changes} other change{'s' * (changes > 1)}"] if changes > 0 else []
        held += [left] if left else []
        if diagnosis.unknown:
            names = [SIGNALS.get(m.signal, m.signal) for m in diagnosis.unknown if not of_the_host_alone(m)]
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

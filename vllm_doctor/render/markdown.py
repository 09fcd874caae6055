"""The diagnosis as Markdown for a ticket: what a log said stands in code alone, so that nothing in it is markup."""

import re
from collections.abc import Iterator, Sequence

from vllm_doctor.launch import quote
from vllm_doctor.records.finding import Diagnosis, Finding, MemoryUse, subject
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.redact.visible import visible
from vllm_doctor.render import memory_use
from vllm_doctor.render.instructions import deed
from vllm_doctor.render.sentences import aside, detail_and_why, release_told
from vllm_doctor.render.text import figure
from vllm_doctor.render.vocabulary import (
    CERTAINTIES,
    HEADLINES,
    SEVERITIES,
    effect,
    failed_while_serving,
    place,
    time_unseen,
)

# What would be markup, a mention or a reference in the ticket of any of the usual trackers.
_MARKUP = re.compile(r"[\\`*_\[\]<>|#@!~&$]")
_TICKS = re.compile(r"`+")


def text(judged: Sequence[Diagnosis]) -> str:
    """All diagnoses, one under the other."""
    return "\n".join("\n".join(_part(one)) for one in judged)


def without_markup(words: str, most: int = 400) -> str:
    """A text that is none of our own, without markup."""
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", visible(" ".join(words.split()), most))


def fenced(lines: Sequence[str], kind: str = "text") -> str:
    """Lines in a fence that none of them can close."""
    body = "\n".join(visible(line, 4000) for line in lines)
    longest = max((len(found[0]) for found in _TICKS.finditer(body)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind}\n{body}\n{fence}"


def _part(diagnosis: Diagnosis) -> Iterator[str]:
    roots = [one for one in diagnosis.findings if one.explained_by is None]
    word = diagnosis.verdict.value.upper().replace("_", " ")
    who = without_markup(subject(diagnosis.subject)) or "vLLM"
    told = (
        effect(roots[0], served=failed_while_serving(diagnosis), undated=time_unseen(diagnosis))
        if roots
        else HEADLINES[diagnosis.verdict]
    )
    yield f"## {word}: {who} {told}\n" if roots else f"## {word}: {told} ({who})\n"
    if diagnosis.path and not roots:
        yield f"{without_markup(diagnosis.path[-1].because, 600)}\n"
    yield from _about(diagnosis)
    for number, finding in enumerate(roots):
        yield from _finding(diagnosis, finding, first=number == 0)
    if diagnosis.memory_use is not None:
        yield from _memory(diagnosis.memory_use)
    if diagnosis.unknown and (not roots or diagnosis.verdict is Verdict.UNKNOWN):
        yield "### Not seen\n"
        yield "".join(f"- {without_markup(one.signal)}: {without_markup(one.reason)}\n" for one in diagnosis.unknown)


def _memory(use: MemoryUse) -> Iterator[str]:
    yield f"### {memory_use.HEADING}\n"
    rows = ["| " + " | ".join(map(without_markup, row)) + " |" for row in memory_use.rows(use)]
    yield "\n".join((f"| {' | '.join(memory_use.HEAD)} |", "|---|---:|---:|---|", *rows)) + "\n"
    if lines := memory_use.beside(use):
        yield "\n".join(f"- {without_markup(line)}" for line in lines) + "\n"


def _about(diagnosis: Diagnosis) -> Iterator[str]:
    """Release, model and card, as far as they are known."""
    facts = diagnosis.facts
    named = {"vLLM": release_told(diagnosis), "model": facts.get("model"), "card": facts.get("card")}
    rows = [f"| {name} | {without_markup(str(value))} |" for name, value in named.items() if value]
    if rows:
        yield "\n".join(("| | |", "|---|---|", *rows)) + "\n"
    if diagnosis.launch:
        yield fenced([quote.words(diagnosis.launch)], "sh") + "\n"


def _finding(diagnosis: Diagnosis, finding: Finding, *, first: bool) -> Iterator[str]:
    yield f"### {finding.code} {without_markup(finding.title)}\n"
    detail, why = detail_and_why(finding)
    if detail:
        yield f"{without_markup(detail)}\n"
    yield f"- **why**: {without_markup(why)}"
    yield f"- **how sure**: {CERTAINTIES[finding.confidence]} ({SEVERITIES[finding.severity]})"
    if finding.refute:
        yield f"- **this finding is wrong if**: {without_markup(finding.refute)}"
    repair = diagnosis.repair if first else None
    if repair is not None and repair.where:
        yield f"- **where**: {without_markup(repair.where)}"
    for told in repair.now if repair is not None else ():
        yield f"- **now**: {without_markup(told)}"
    yield ""
    if repair is not None and repair.commands:
        if repair.deed:
            yield f"**Do**: {without_markup(repair.deed)}\n"
        yield fenced(repair.commands, "sh") + "\n"
    for number, change in enumerate(finding.changes):
        first_of_all = number == 0 and not (repair is not None and repair.commands)
        yield f"{'**Do**' if first_of_all else 'or'}: {without_markup(f'{deed(change)} {aside(change)}')}\n"
        if change.command:
            yield fenced([change.command], "sh") + "\n"
    if first:
        yield from _pasted(diagnosis, finding)
    if finding.evidence:
        yield "**Evidence**\n"
        yield fenced([f"{one.source} {one.locator}: {one.excerpt}" for one in finding.evidence]) + "\n"
    if sums := finding.arithmetic:
        rows = [
            f"| {without_markup(a.name)} | {figure(a.value)} {without_markup(a.unit)} | {without_markup(a.formula)} |"
            for a in sums
        ]
        yield "\n".join(("| figure | value | from |", "|---|---|---|", *rows)) + "\n"


def _pasted(diagnosis: Diagnosis, finding: Finding) -> Iterator[str]:
    from vllm_doctor.remedy.medium import Medium, corrected

    medium = Medium(diagnosis.medium)
    lines = corrected(diagnosis, finding.changes, medium) if medium is not Medium.UNIT else []
    if lines:
        yield f"{place(medium, whole=bool(diagnosis.launch))}:\n"
        yield fenced(lines, "") + "\n"

"""The diagnosis as one self-contained page, for people who were not there."""

from collections.abc import Sequence
from datetime import datetime

from vllm_doctor.launch import quote
from vllm_doctor.records.finding import Change, Diagnosis, Memory, MemoryUse, subject
from vllm_doctor.records.verdict import Confidence, Severity, Verdict
from vllm_doctor.redact.visible import visible
from vllm_doctor.render import memory_use
from vllm_doctor.render.grounds import emergency
from vllm_doctor.render.instructions import deed
from vllm_doctor.render.sentences import facts, predicted, release_told, was
from vllm_doctor.render.template import rendered
from vllm_doctor.render.vocabulary import SEVERITIES, by_whom, failed_while_serving, place
from vllm_doctor.rules.explain import meaning
from vllm_doctor.rules.order import by_code

_EFFECTS = {
    Severity.BLOCKS_START: "The service does not start until this is repaired.",
    Severity.WILL_FAIL_UNDER_LOAD: "The service runs, and fails under load until this is repaired.",
    Severity.DEGRADED: "The service runs below what it could deliver.",
    Severity.ADVICE: "The service runs; this would make it better.",
}
_CERTAINTIES = {
    Confidence.CONFIRMED: "proved by the evidence below",
    Confidence.LIKELY: "likely: the evidence below leaves little else",
    Confidence.POSSIBLE: "possible: nothing to act on yet",
}
_MEANS = {
    Verdict.OK: "The service is healthy as far as could be seen.",
    Verdict.FINDING: "A cause was found.",
    Verdict.NOT_APPLICABLE: "There was nothing to diagnose.",
    Verdict.UNKNOWN: "No answer: a needed input could not be read.",
}


def page(judged: Sequence[tuple[Diagnosis, tuple[str, ...]]], *, taken_at: str = "") -> str:
    """HTML without scripts and without anything fetched from elsewhere; every text in it is escaped.

    It is ASCII, with character references, so that no locale on its way into a file can spoil it.

    Each diagnosis comes with the effective command line of its unit, from which the emergency drop-in is made.
    """
    return rendered(
        "report.html.j2",
        parts=[_part(diagnosis, argv) for diagnosis, argv in judged],
        who=subject(judged[0][0].subject) if len(judged) == 1 else judged[0][0].subject.host or "",
        severities=SEVERITIES,
        certainties=_CERTAINTIES,
        deed=deed,
        beside=_beside,
        predicted=predicted,
        taken_at=taken_at if _is_a_time(taken_at) else "",
    )


def _is_a_time(text: str) -> bool:
    """A bundle of a stranger's may say anything in its place."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _meaning(code: str) -> str:
    rule = by_code().get(code)
    return meaning(rule) if rule is not None else ""


def _means(diagnosis: Diagnosis) -> str:
    """The verdict in a sentence or two: a cause that is only possible is not called one."""
    if not diagnosis.findings:
        return _MEANS[diagnosis.verdict]
    first = diagnosis.findings[0]
    if first.confidence is Confidence.POSSIBLE:
        return "This may be the cause; it is not proved."
    below = "The changes are below." if first.changes else "No known setting repairs it."
    told = _EFFECTS[first.severity]
    if first.severity is Severity.BLOCKS_START and failed_while_serving(diagnosis):
        told = "The service had become ready, and failed while it served."
    elif first.severity is Severity.DEGRADED and failed_while_serving(diagnosis):
        told = "The service runs, and the last requests that the log shows failed."
    return f"{_MEANS[diagnosis.verdict]} {below} {told}"


def named(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """Release, model, card, what starts it, and the launch, as far as they are known."""
    facts = diagnosis.facts
    found = [("vLLM", release_told(diagnosis)), ("model", facts.get("model")), ("host", diagnosis.subject.host)]
    found += [
        ("card", facts.get("card")),
        ("unit", diagnosis.subject.unit),
        ("place", diagnosis.subject.place),
        ("GPU", diagnosis.subject.gpu),
        ("launch", quote.words(diagnosis.launch)),
    ]
    return [(name, visible(str(value), 2000)) for name, value in found if value]


def _bar(memory: Memory) -> dict[str, object]:
    """The parts with their portions in per cent, and the class of each for its colour."""
    total = sum(part.gib for part in memory.parts) or 1.0
    used = 0
    parts: list[tuple[str, str, float, float]] = []
    for part in memory.parts:
        light = part.name if part.name in {"free", "missing"} else f"part{used % 4}"
        used += light.startswith("part")
        parts.append((light, visible(part.name, 40), part.gib, 100 * part.gib / total))
    return {"of": visible(memory.of, 40), "total": memory.total_gib, "parts": parts, "asked": memory.asked}


def _memory(use: MemoryUse) -> dict[str, object]:
    """Each term as measured and as planned, and who holds the GPUs."""
    return {"heading": memory_use.HEADING, "rows": memory_use.rows(use), "beside": memory_use.beside(use)}


def _beside(change: Change) -> str:
    """What it was, who may do it, what then follows."""
    then = f"then {predicted(change)}" if change.predicted else ""
    return "; ".join(filter(None, (was(change).rstrip("; "), by_whom(change), then)))


def _paste(diagnosis: Diagnosis) -> tuple[str, list[str]]:
    """The corrected launch in the medium that was seen: its heading and its lines; no line where there is none."""
    from vllm_doctor.remedy.medium import Medium, corrected

    medium = Medium(diagnosis.medium)
    changes = diagnosis.findings[0].changes if diagnosis.findings else ()
    if medium is Medium.UNIT:
        return "", []
    return place(medium, whole=bool(diagnosis.launch)), corrected(diagnosis, changes, medium)


def _part(diagnosis: Diagnosis, argv: tuple[str, ...]) -> dict[str, object]:
    return {
        "diagnosis": diagnosis,
        "roots": [f for f in diagnosis.findings if f.explained_by is None],
        "means": _means(diagnosis),
        "who": subject(diagnosis.subject),
        "facts": [line for told in facts(diagnosis) for line in told],
        "meanings": {f.code: _meaning(f.code) for f in diagnosis.findings},
        "named": named(diagnosis),
        "bar": _bar(diagnosis.memory) if diagnosis.memory is not None else None,
        "memory": _memory(diagnosis.memory_use) if diagnosis.memory_use is not None else None,
        "paste": _paste(diagnosis),
        "emergency": {f.code: emergency(f, diagnosis.subject.unit, argv) for f in diagnosis.findings},
    }

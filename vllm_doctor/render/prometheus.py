"""The diagnosis as a text file for node_exporter: what was found, what could not be seen, and when it last worked."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vllm_doctor.monitor.host_text import GaugeRow
from vllm_doctor.records.finding import Diagnosis, Finding
from vllm_doctor.records.verdict import Verdict
from vllm_doctor.redact.visible import visible
from vllm_doctor.render.file import put
from vllm_doctor.render.instructions import deed

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_GIB = float(1 << 30)
_LAST_SUCCESS = "vllm_doctor_last_success_timestamp_seconds"
_LAST_RUN = "vllm_doctor_last_run_timestamp_seconds"
_SINCE = "vllm_doctor_finding_since_timestamp_seconds"


class _Before(NamedTuple):
    """What the file that is about to be replaced told; seconds since the epoch.

    `since` is when the first of the runs in a row found a code of a unit; None where no run told anything.
    """

    successes: dict[str, float]
    since: dict[tuple[str, str], float] | None


_NOTHING_BEFORE = _Before({}, None)


def write(
    path: str | os.PathLike[str],
    diagnoses: Sequence[Diagnosis],
    now: float,
    codes: Sequence[str] = (),
    rows: Sequence[GaugeRow] = (),
) -> None:
    """Replace the file at once (temporary file, rename), readable by all. Raises OSError.

    `codes` are all finding codes there are: those not found are told as 0, so that an alert sees them end. A run that
    could not judge (verdict unknown) leaves the times of the last success and of the findings as they were. `rows` are
    the host's own.
    """
    put(path, _exposition(_registry(diagnoses, now, codes, _before(Path(path)), rows)), mode=0o644)


def text(diagnoses: Sequence[Diagnosis], now: float, codes: Sequence[str] = (), rows: Sequence[GaugeRow] = ()) -> str:
    """The same for standard output, where nothing is known of earlier runs."""
    return _exposition(_registry(diagnoses, now, codes, _NOTHING_BEFORE, rows))


def _exposition(registry: "CollectorRegistry") -> str:
    from prometheus_client import generate_latest

    return generate_latest(registry).decode()


def _registry(
    diagnoses: Sequence[Diagnosis], now: float, codes: Sequence[str], before: _Before, rows: Sequence[GaugeRow]
) -> "CollectorRegistry":
    from prometheus_client import CollectorRegistry, Gauge

    registry = CollectorRegistry()
    verdict = Gauge("vllm_doctor_verdict", "1 for the verdict of the last run.", ["unit", "verdict"], registry=registry)
    found = Gauge("vllm_doctor_finding", "1 for each finding of the last run.", ["unit", "code"], registry=registry)
    about = Gauge(
        "vllm_doctor_finding_info",
        "Text of a finding of the last run, and its first change.",
        ["unit", "code", "cause", "phase", "severity", "explained_by", "title", "change"],
        registry=registry,
    )
    unknown = Gauge("vllm_doctor_unknown_signals", "Signals that could not be read.", ["unit"], registry=registry)
    unseen = Gauge(
        "vllm_doctor_signal_unknown", "1 for each signal that could not be read.", ["unit", "signal"], registry=registry
    )
    success = Gauge(_LAST_SUCCESS, "When a run last came to a verdict.", ["unit"], registry=registry)
    Gauge(_LAST_RUN, "When a run last ended.", registry=registry).set(now)
    for diagnosis in diagnoses:
        unit = visible(diagnosis.subject.unit or "", 200)
        for word in Verdict:
            verdict.labels(unit, word.value).set(word is diagnosis.verdict)
        for code in codes:
            found.labels(unit, code).set(0)
        for finding in diagnosis.findings:
            found.labels(unit, finding.code).set(1)
            about.labels(
                unit,
                finding.code,
                finding.cause.value,
                finding.phase.value,
                finding.severity.value,
                finding.explained_by or "",
                visible(finding.title, 200),
                _first(finding),
            ).set(1)
        unknown.labels(unit).set(len(diagnosis.unknown))
        for missing in diagnosis.unknown:
            unseen.labels(unit, missing.signal).set(1)
        judged = diagnosis.verdict is not Verdict.UNKNOWN
        if judged or unit in before.successes:
            success.labels(unit).set(now if judged else before.successes[unit])
    if before.since is not None:
        since = Gauge(_SINCE, "When the first of the runs in a row found it.", ["unit", "code"], registry=registry)
        for (unit, code), moment in _since(diagnoses, before.since, now).items():
            since.labels(unit, code).set(moment)
    _add(registry, [*_planned(diagnoses), *_memory(diagnoses), *rows])
    return registry


def _planned(diagnoses: Sequence[Diagnosis]) -> Iterator[GaugeRow]:
    """The KV cache that the start logged and the one that the plan foresees, bytes."""
    for told in diagnoses:
        planned, found = told.facts.get("planned_kv_gib"), told.facts.get("available_kv_gib")
        if isinstance(planned, int | float) and isinstance(found, int | float) and planned > 0:
            unit = {"unit": told.subject.unit or ""}
            yield GaugeRow("vllm_plan_kv_cache_bytes", "The KV cache that the plan foresees.", unit, planned * _GIB)
            yield GaugeRow("vllm_start_kv_cache_bytes", "The KV cache that the start logged.", unit, found * _GIB)


def _memory(diagnoses: Sequence[Diagnosis]) -> Iterator[GaugeRow]:
    """Each term of one GPU's memory, bytes; what was not measured or not planned has no row."""
    for told in diagnoses:
        for term in told.memory_use.terms if told.memory_use is not None else ():
            who = {"unit": told.subject.unit or told.subject.place or "", "term": term.name}
            for name, help_, gib in (
                ("vllm_memory_measured_bytes", "A term of one GPU's memory, as measured.", term.measured),
                ("vllm_memory_planned_bytes", "A term of one GPU's memory, as planned.", term.planned),
            ):
                if gib is not None:
                    yield GaugeRow(name, help_, who, gib * _GIB)


def _first(finding: Finding) -> str:
    """The first change in a line, or where to look."""
    told = deed(finding.changes[0]) if finding.changes else finding.next or f"vllm-doctor explain {finding.code}"
    return visible(" ".join(told.split()), 200)


def _add(registry: "CollectorRegistry", rows: Sequence[GaugeRow]) -> None:
    from prometheus_client import Gauge

    gauges: dict[str, Gauge] = {}
    for row in rows:
        if row.name not in gauges:
            gauges[row.name] = Gauge(row.name, row.help, list(row.labels), registry=registry)
        words = [visible(value, 200) for value in row.labels.values()]
        (gauges[row.name].labels(*words) if words else gauges[row.name]).set(row.value)


def _since(
    diagnoses: Sequence[Diagnosis], before: dict[tuple[str, str], float], now: float
) -> dict[tuple[str, str], float]:
    """When each finding began; of a unit that could not be judged also what was known of it."""
    told = {}
    for diagnosis in diagnoses:
        unit = visible(diagnosis.subject.unit or "", 200)
        if diagnosis.verdict is Verdict.UNKNOWN:
            told.update({who: moment for who, moment in before.items() if who[0] == unit})
        for finding in diagnosis.findings:
            told[unit, finding.code] = min(now, before.get((unit, finding.code), now))
    return told


def _before(path: Path) -> _Before:
    """When each unit was last judged and each finding began, from the file that is about to be replaced."""
    from prometheus_client.parser import text_string_to_metric_families

    if not path.is_file():
        return _NOTHING_BEFORE
    try:
        families = text_string_to_metric_families(path.read_text(encoding="utf-8"))
        told = [sample for family in families for sample in family.samples]
        successes = {s.labels["unit"]: float(s.value) for s in told if s.name == _LAST_SUCCESS and "unit" in s.labels}
        runs = [float(s.value) for s in told if s.name == _LAST_RUN]
        found, since = (
            {(s.labels["unit"], s.labels["code"]): float(s.value) for s in told if s.name == name}
            for name in ("vllm_doctor_finding", _SINCE)
        )
    except (OSError, ValueError, KeyError):
        return _NOTHING_BEFORE
    if not runs:
        return _Before(successes, None)
    return _Before(successes, {**{who: runs[0] for who, value in found.items() if value == 1}, **since})

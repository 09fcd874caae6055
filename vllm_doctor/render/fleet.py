"""All hosts' answers on one page: the worst first, grouped by cause, with what to change in the inventory."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from vllm_doctor.records.finding import Diagnosis, Finding
from vllm_doctor.records.verdict import Direction, Severity, Verdict
from vllm_doctor.remedy import inventory
from vllm_doctor.render.instructions import deed
from vllm_doctor.render.template import rendered

ServiceState = Literal["answered", "unreachable", "failed", "unreadable", "drained"]


class Host(msgspec.Struct, frozen=True):
    """What a host said: the answer of `diagnose --format json`, or why there is none."""

    host: str
    state: ServiceState = "answered"
    answer: Diagnosis | None = None
    said: str = ""


class ServiceRow(msgspec.Struct, frozen=True):
    """One row of the table."""

    host: str
    unit: str
    verdict: str
    severity: str = ""
    code: str = ""
    title: str = ""
    version: str = ""
    model: str = ""
    driver: str = ""
    unknown: int = 0
    said: str = ""


class FleetChange(msgspec.Struct, frozen=True):
    """What to do, and where: `inventory` is the line for the inventory, "" where the change is no variable."""

    deed: str
    inventory: str
    services: tuple[str, ...]


class CauseGroup(msgspec.Struct, frozen=True):
    """One cause with everybody who has it."""

    code: str
    title: str
    severity: str
    services: tuple[str, ...]
    lines: tuple[FleetChange, ...]


class Drift(msgspec.Struct, frozen=True):
    """A version that differs among the hosts: each value with who has it, the commonest first."""

    what: str
    values: tuple[tuple[str, tuple[str, ...]], ...]


class Fleet(msgspec.Struct, frozen=True):
    """The whole page."""

    taken_at: str
    counts: dict[str, int]
    groups: tuple[CauseGroup, ...]
    services: tuple[ServiceRow, ...]
    drift: tuple[Drift, ...]
    schema_version: int = 1


# As long as any name of a host (RFC 1035), of a unit and of a model is; a stranger's answer may hold a longer one.
_LONGEST = 255
_LONGEST_SAID = 2000


def _cut(text: str, most: int = _LONGEST) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _bounded(host: Host) -> Host:
    said = _cut(host.said, _LONGEST_SAID)
    return msgspec.structs.replace(host, host=_cut(host.host), said=said)


_RANKS = {"unreachable": 4, "failed": 4, "unreadable": 4, "unknown": 5, "not_applicable": 6, "drained": 7, "ok": 8}
_SEVERITIES = list(Severity)


def fleet(hosts: Sequence[Host], taken_at: str) -> Fleet:
    """Judge nothing anew: put together what the hosts said."""
    rows: list[ServiceRow] = []
    found: dict[str, list[tuple[Finding, str]]] = {}
    for host in map(_bounded, hosts):
        if host.answer is None:
            rows.append(ServiceRow(host.host, "", host.state, said=host.said))
            continue
        for told in (host.answer, *host.answer.others):
            name = f"{host.host} {_place(told)}".strip()
            roots = [f for f in told.findings if f.explained_by is None]
            for finding in roots:
                found.setdefault(finding.code, []).append((finding, name))
            rows.append(_row(host, told, roots))
    rows.sort(key=_rank)
    groups = sorted((_group(code, pairs) for code, pairs in found.items()), key=_weight)
    counts = Counter(row.verdict for row in rows)
    versions = [("vLLM", [(r.version, r.host) for r in rows]), ("driver", [(r.driver, r.host) for r in rows])]
    drift = tuple(d for what, pairs in versions if (d := _drift(what, pairs)) is not None)
    return Fleet(taken_at, dict(counts), tuple(groups), tuple(rows), drift)


def _row(host: Host, told: Diagnosis, roots: Sequence[Finding]) -> ServiceRow:
    first = roots[0] if roots else None
    return ServiceRow(
        host=host.host,
        unit=_place(told),
        verdict=told.verdict.value,
        severity=first.severity.value if first else "",
        code=first.code if first else "",
        title=_cut(first.title, _LONGEST_SAID) if first else "",
        version=_cut(str(told.facts.get("vllm_version") or "")),
        model=_cut(str(told.facts.get("model") or "")),
        driver=_cut(str(told.facts.get("driver") or "")),
        unknown=len(told.unknown),
        said=_cut("; ".join(f"{m.signal}: {m.reason}" for m in told.unknown[:3]), _LONGEST_SAID)
        if told.verdict is Verdict.UNKNOWN
        else "",
    )


def _place(told: Diagnosis) -> str:
    return _cut(told.subject.unit or told.subject.place or "")


def _rank(row: ServiceRow) -> tuple[int, str, str]:
    if row.severity:
        return _SEVERITIES.index(Severity(row.severity)), row.host, row.unit
    return _RANKS.get(row.verdict, 4), row.host, row.unit


def _group(code: str, pairs: Sequence[tuple[Finding, str]]) -> CauseGroup:
    deeds: dict[tuple[str, str], list[str]] = {}
    for finding, name in pairs:
        if not finding.changes:
            deeds.setdefault((finding.next or f"vllm-doctor explain {code}", ""), []).append(name)
            continue
        change = finding.changes[0]
        told = change.after is not None or change.direction is Direction.REMOVE
        line = inventory.line(change) if told else None
        deeds.setdefault((deed(change), line or ""), []).append(name)
    lines = [FleetChange(do, line, tuple(names)) for (do, line), names in deeds.items()]
    lines.sort(key=lambda one: -len(one.services))
    severity = min((finding.severity for finding, _ in pairs), key=_SEVERITIES.index)
    return CauseGroup(code, pairs[0][0].title, severity.value, tuple(name for _, name in pairs), tuple(lines))


def _weight(group: CauseGroup) -> tuple[int, int, str]:
    return _SEVERITIES.index(Severity(group.severity)), -len(group.services), group.code


def _drift(what: str, pairs: Sequence[tuple[str, str]]) -> Drift | None:
    """None where all hosts have one value."""
    having: dict[str, list[str]] = {}
    for value, host in dict.fromkeys(pairs):
        if value:
            having.setdefault(value, []).append(host)
    if len(having) < 2:
        return None
    ordered = sorted(having.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    return Drift(what, tuple((value, tuple(hosts)) for value, hosts in ordered))


def page(told: Fleet) -> str:
    """HTML without scripts and without anything fetched from elsewhere, in ASCII; every text in it is escaped."""
    usual: Mapping[str, str] = {d.what: d.values[0][0] for d in told.drift}
    return rendered("fleet.html.j2", fleet=told, usual=usual)

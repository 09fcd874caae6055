"""Figures over time: from the guard's records of this host, or from a Prometheus."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from vllm_doctor.gather.http import NO_PASS, Login, Pass
from vllm_doctor.knowledge.version import Version
from vllm_doctor.monitor.metric_names import metric_names
from vllm_doctor.monitor.rules import suffixed
from vllm_doctor.operate.history.store_format import CardMinute, Minute
from vllm_doctor.records import excerpt

Point = tuple[float, float]
_POINTS = 300
_LINES = 24
_TEXT_FILE = "vllm_doctor_last_run_timestamp_seconds"
_ASK_S = 10.0
_MOST = 32 << 20
_WORD = re.compile(r"<([a-z_]+)>(_bucket|_count)?")
_LEGEND = re.compile(r"\{\{(\w+)\}\}")


class Curve(msgspec.Struct, frozen=True):
    """One line: seconds since the epoch and value; a gap is where nothing was told for long."""

    name: str
    points: tuple[Point, ...]


class Chart(msgspec.Struct, frozen=True):
    """Lines of one unit (`percentunit`, `short`, `s`, `bytes`, `celsius`); `note` says why there are none."""

    title: str
    unit: str
    lines: tuple[Curve, ...]
    top: float | None = None
    note: str = ""


class NotTold(Exception):  # noqa: N818 - it names what the operator meets
    """The source of the figures gave none; the text says why."""


@cache
def source() -> tuple[dict[str, Any], ...]:
    """charts.yml."""
    import yaml

    return tuple(yaml.safe_load(Path(__file__).with_name("charts.yml").read_text(encoding="utf-8")))


def filled(query: str, releases: Sequence[Version]) -> str:
    """A query of charts.yml under the names of these releases."""
    known, _ = metric_names(releases)
    return _WORD.sub(lambda found: suffixed(known[found[1]], found[2] or ""), query)


def of_guard(minutes: Sequence[Minute], cards: Iterable[CardMinute]) -> tuple[Chart, ...]:
    """The charts that the guard's records of one unit give."""

    def gauge(name: str, told: Callable[[Minute], float | None]) -> Curve:
        return Curve(name, thinned([(m.at, float(v)) for m in minutes if (v := told(m)) is not None]))

    def rate(name: str, told: Callable[[Minute], float | None], times: float = 1.0) -> Curve:
        return Curve(name, thinned(_rates([(m.at, v) for m in minutes if (v := told(m)) is not None], times)))

    memory: dict[str, list[Point]] = {}
    for card in cards:
        for word, size in (("vLLM", card.own), ("others", card.others), ("free", card.free)):
            if size is not None:
                memory.setdefault(f"{excerpt.short(card.uuid)} {word}", []).append((card.at, float(size)))
    shown = (
        Chart("KV cache in use", "percentunit", (gauge("KV cache", lambda m: m.kv),), 1.0),
        Chart("Requests", "short", (gauge("running", lambda m: m.running), gauge("waiting", lambda m: m.waiting))),
        Chart(
            "Tokens a second", "short", (rate("generated", lambda m: m.generated), rate("prompt", lambda m: m.prompt))
        ),
        Chart("Preemptions a minute", "short", (rate("preemptions", lambda m: m.preemptions, 60.0),)),
        Chart("GPU memory", "bytes", tuple(Curve(n, thinned(p)) for n, p in memory.items())),
        Chart(
            "Host memory of the service",
            "bytes",
            (gauge("used", lambda m: m.host), gauge("limit", lambda m: m.host_limit)),
        ),
        Chart("/health", "short", (gauge("200", lambda m: None if m.health is None else float(m.health == 200)),), 1.0),
    )
    return tuple(_with_note(c, "not in the guard's records of this time") for c in shown)


def _with_note(chart: Chart, note: str) -> Chart:
    lines = tuple(line for line in chart.lines if line.points)
    return msgspec.structs.replace(chart, lines=lines, note="" if lines else note)


def _rates(points: Sequence[Point], times: float) -> list[Point]:
    """Growth a second; none over a counter that fell (a restart) or over a gap of ten minutes."""
    return [
        (b[0], times * (b[1] - a[1]) / (b[0] - a[0]))
        for a, b in pairwise(points)
        if 0 < b[0] - a[0] <= 600 and b[1] >= a[1]
    ]


def thinned(points: Sequence[Point]) -> tuple[Point, ...]:
    """At most 301 points: of each stretch the first, the lowest and the highest, so an outage shows as a peak does."""
    told = [p for p in points if math.isfinite(p[1])]
    if len(told) <= _POINTS + 1:  # what a Prometheus answers
        return tuple(told)
    step = math.ceil(3 * len(told) / _POINTS)
    stretches = (told[at : at + step] for at in range(0, len(told), step))
    kept = (sorted({s[0], min(s, key=lambda p: p[1]), max(s, key=lambda p: p[1])}) for s in stretches)
    return tuple(point for few in kept for point in few)


def of_prometheus(
    url: str, since: float, until: float, releases: Sequence[Version], given: Pass | Login = NO_PASS
) -> tuple[Chart, ...]:
    """The charts that a Prometheus tells. Raises NotTold."""
    step = max(15.0, (until - since) / _POINTS)
    charts: list[Chart] = []
    for row in source():
        lines: list[Curve] = []
        for line in row["lines"]:
            query = filled(line["query"], releases)
            lines += _series(url, query, line["name"], (since, until, step), given)
        lines.sort(key=lambda one: -max(v for _, v in one.points))
        more = f"{len(lines) - _LINES} more lines are not drawn" if len(lines) > _LINES else ""
        needs = f" ({row['needs']})" if "needs" in row else ""
        lacking = f"Prometheus has no figures for this{needs}"
        if not lines and "none" in row and _series(url, _TEXT_FILE, "", (since, until, step), given):
            lacking = row["none"]
        note = more if lines else lacking
        charts.append(Chart(row["title"], row["unit"], tuple(lines[:_LINES]), row.get("top"), note))
    return tuple(charts)


def _series(url: str, query: str, legend: str, span: tuple[float, float, float], given: Pass | Login) -> list[Curve]:
    from vllm_doctor.gather.prometheus_query import QueryRefused, Silent, Strange, ask

    words = {"query": query, "start": span[0], "end": span[1], "step": span[2]}
    told = ask(f"{url.rstrip('/')}/api/v1/query_range", words, deadline_s=_ASK_S, max_bytes=_MOST, given=given)
    if isinstance(told, Silent):
        raise NotTold(told.why)
    if isinstance(told, Strange) and told.status in {401, 403}:
        if isinstance(given, Login) and given.authorization:
            raise NotTold(f"{url}: it refuses the user or the password of --http-config (HTTP {told.status})")
        raise NotTold(
            f"{url}: it needs a password (HTTP {told.status}): --http-config FILE has it (basic_auth), as role "
            "monitoring writes it to /etc/prometheus/vllm-doctor/client.yml"
        )
    if isinstance(told, Strange):
        raise NotTold(f"{url}: no answer of a Prometheus (HTTP {told.status}, {told.why})")
    if isinstance(told, QueryRefused):
        raise NotTold(f"{url}: {told.why}")
    lines = []
    for one in told:
        points = thinned([(at, value) for at, text in one.values if (value := _number(text)) is not None])
        if points:
            name = _LEGEND.sub(lambda found, one=one: one.metric.get(found[1], ""), legend)  # type: ignore[misc]
            lines.append(Curve(" ".join(name.split()), points))
    return lines


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None

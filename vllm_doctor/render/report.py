"""Figures over time as one self-contained page: pictures drawn here, no script, readable on a phone, light and dark."""

from collections.abc import Sequence

import msgspec

from vllm_doctor.monitor.over_time import Chart, Curve, Point
from vllm_doctor.render.template import rendered

_WIDTH, _HEIGHT = 600.0, 150.0
_GIB = float(1 << 30)


class ReportEvent(msgspec.Struct, frozen=True):
    """Something that happened."""

    at: float
    unit: str
    kind: str
    text: str


class ServiceReport(msgspec.Struct, frozen=True):
    """The page of one service or fleet: from when to when, seconds since the epoch, and where the figures come from."""

    who: str
    since: float
    until: float
    source: str
    charts: tuple[Chart, ...]
    events: tuple[ReportEvent, ...] = ()


def page(reports: Sequence[ServiceReport]) -> str:
    """HTML in ASCII; every text in it is escaped."""
    drawn = [(one, [_drawn(c, one) for c in one.charts]) for one in reports]
    return rendered("figures.html.j2", reports=drawn)


def _drawn(chart: Chart, report: ServiceReport) -> dict[str, object]:
    highest = max((v for line in chart.lines for _, v in line.points), default=0.0)
    top = chart.top if chart.top is not None and highest <= chart.top else highest * 1.05 or 1.0
    return {
        "title": chart.title,
        "note": chart.note,
        "top": figure_text(top, chart.unit),
        "lines": [
            {
                "name": line.name,
                "paths": _paths(line, report, top),
                "low": figure_text(min(v for _, v in line.points), chart.unit),
                "high": figure_text(max(v for _, v in line.points), chart.unit),
                "last": figure_text(line.points[-1][1], chart.unit),
            }
            for line in chart.lines
        ],
    }


def _paths(line: Curve, report: ServiceReport, top: float) -> list[str]:
    """The points of each unbroken stretch; a gap is drawn as one."""
    span = max(1.0, report.until - report.since)
    usual = max(180.0, 4 * span / 300)  # a stretch of thinned() is shorter
    stretches: list[list[Point]] = []
    for point in line.points:
        if stretches and point[0] - stretches[-1][-1][0] <= usual:
            stretches[-1].append(point)
        else:
            stretches.append([point])

    def drawn(at: float, value: float) -> str:
        return f"{_WIDTH * (at - report.since) / span:.1f},{_HEIGHT * (1 - max(0.0, value) / top):.1f}"

    # A point alone is drawn a little wider than it is.
    wide = [one if len(one) > 1 else [*one, (one[0][0] + span / 300, one[0][1])] for one in stretches]
    return [" ".join(drawn(at, value) for at, value in one) for one in wide]


def figure_text(value: float, unit: str) -> str:
    """A figure with its unit."""
    if unit == "percentunit":
        return f"{100 * value:.0f} %"
    if unit == "bytes":
        return f"{value / _GIB:.1f} GiB"
    if unit == "s":
        return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
    word = " °C" if unit == "celsius" else ""
    return (f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.2g}") + word

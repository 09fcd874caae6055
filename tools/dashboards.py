#!/usr/bin/env python3
"""Write the dashboards from charts.yml with Grafana's own builder, or with --check say whether they are stale.

Metrics stay <words> in them: `vllm-doctor export` fills in the names of the releases that run.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from grafana_foundation_sdk.builders import common, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import VisibilityMode
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

FOLDER = Path(__file__).resolve().parent.parent / "vllm_doctor" / "monitor"
SOURCE = DataSourceRef(type_val="prometheus", uid="${source}")
OVERVIEW = ("KV cache in use", "Requests", "Tokens a second", "Time to the first token", "GPU memory")
FINDINGS = 'max by (host, unit, code, severity, title, change) (vllm_doctor_finding_info{explained_by=""})'
HEADS = (
    ("Servers that answer", 'sum(up{job="vllm"})'),
    ("Servers that do not", 'count(up{job="vllm"} == 0) or vector(0)'),
    ("Alerts", 'count(ALERTS{alertstate="firing",alertname=~"Vllm.*"}) or vector(0)'),
    ("Requests that wait", "sum(<waiting>)"),
)


def query(text: str, legend: str = "", at: int = 0) -> prometheus.Dataquery:
    """One query of a panel."""
    return prometheus.Dataquery().expr(text).legend_format(legend).datasource(SOURCE).ref_id("ABCDEFGH"[at])


def chart(row: dict[str, Any]) -> timeseries.Panel:
    """The lines of a chart."""
    panel = timeseries.Panel().title(row["title"]).unit(row["unit"]).datasource(SOURCE).min(0).height(8).span(12)
    panel = panel.fill_opacity(5).show_points(VisibilityMode.NEVER).legend(common.VizLegendOptions().show_legend(True))
    if "top" in row:
        panel = panel.max(row["top"])
    for at, line in enumerate(row["lines"]):
        panel = panel.with_target(query(line["query"], line["name"], at))
    return panel


def spread(row: dict[str, Any]) -> heatmap.Panel:
    """How a time is spread over all requests."""
    buckets = query(f"sum by (le) (rate(<{row['heatmap']}>_bucket[5m]))", "{{le}}").format(PromQueryFormat.HEATMAP)
    panel = heatmap.Panel().title(f"{row['title']}, all requests").datasource(SOURCE).height(8).span(12)
    return panel.calculate(False).with_target(buckets)


def findings() -> table.Panel:
    """What the doctor finds, with the first change."""
    told = query(FINDINGS).format(PromQueryFormat.TABLE).instant()
    return table.Panel().title("Findings of the doctor").datasource(SOURCE).height(8).span(24).with_target(told)


def frame(title: str, uid: str) -> builder.Dashboard:
    """What both dashboards share: variables, and the findings as annotations."""
    made = builder.Dashboard(title).uid(uid).tags(["vllm"]).refresh("30s").time("now-6h", "now").readonly()
    made = made.with_variable(builder.DatasourceVariable("source").label("Prometheus").type("prometheus"))
    for name in ("site", "host", "model", "card"):
        asked = f'label_values(up{{job="vllm"}}, {name})'
        made = made.with_variable(
            builder.QueryVariable(name).label(name).query(asked).datasource(SOURCE).multi(True).include_all(True)
            .all_value(".*").refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        )  # fmt: skip
    note = builder.AnnotationQuery().name("Findings").datasource(SOURCE).enable(True).icon_color("red").expr(FINDINGS)
    return made.annotation(note)


def overview(charts: list[dict[str, Any]]) -> builder.Dashboard:
    """All hosts: what is wrong first."""
    made = frame("vLLM: fleet", "vllm-fleet")
    for title, text in HEADS:
        made = made.with_panel(stat.Panel().title(title).datasource(SOURCE).height(4).span(6).with_target(query(text)))
    made = made.with_panel(findings())
    for row in charts:
        if row["title"] in OVERVIEW:
            made = made.with_panel(chart(row))
    return made


def host(charts: list[dict[str, Any]]) -> builder.Dashboard:
    """One host: everything that is told of it."""
    made = frame("vLLM: one host", "vllm-host")
    for row in charts:
        made = made.with_panel(chart(row))
        if "heatmap" in row:
            made = made.with_panel(spread(row))
    return made.with_panel(findings())


def main() -> int:
    """Write them, or say what is stale."""
    charts = yaml.safe_load((FOLDER / "charts.yml").read_text(encoding="utf-8"))
    stale = []
    for name, made in (("fleet", overview(charts)), ("host", host(charts))):
        text = JSONEncoder(sort_keys=True, indent=1).encode(made.build()) + "\n"
        path = FOLDER / "dashboards" / f"{name}.json"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(str(path))
            if "--check" not in sys.argv:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    if stale:
        print("stale:" if "--check" in sys.argv else "wrote", *stale)
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())

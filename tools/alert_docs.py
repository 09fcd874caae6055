#!/usr/bin/env python3
"""Write the table of alerts in docs/monitoring.md from vllm_doctor/monitor/alerts.yml; --check: is it stale?"""

from __future__ import annotations

import sys
from pathlib import Path

import generated

from vllm_doctor.knowledge.versions import newest_known
from vllm_doctor.monitor import rules

TARGET = Path(__file__).resolve().parent.parent / "docs/monitoring.md"
BEGIN, END = "<!-- alerts: made by make docs -->", "<!-- /alerts -->"


def table() -> str:
    """One row for each rule; those of an objective have the long window behind their name."""
    rows = []
    for row in rules.groups([newest_known()])[1]["rules"]:
        window = row["labels"].get("window")
        name = f"`{row['alert']}`{f' ({window})' if window else ''}"
        rows.append(f"| {name} | {row['labels']['severity']} | {row['for']} | {rules.latest(row)} |")
    head = ["| Alert | Severity | `for` | From the fault to the alert, at most |", "|---|---|---|---|"]
    return "\n".join([*head, *dict.fromkeys(rows)])


def main(arguments: list[str]) -> int:
    """Write or check."""
    before, _, rest = TARGET.read_text(encoding="utf-8").partition(BEGIN)
    wanted = f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"
    return generated.main(arguments, {TARGET: wanted}, "alerts.yml says")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/env python3
"""Write docs/findings.md from the order of the rules, or with --check say that it is stale."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import generated

from vllm_doctor.rules.chart import NODES
from vllm_doctor.rules.explain import meaning
from vllm_doctor.rules.order import OrderRow, by_code

REPO = Path(__file__).resolve().parent.parent
TARGET = REPO / "docs" / "findings.md"
HEAD = """\
# What the doctor can find

Made from the pages of the rules and [their order](../vllm_doctor/rules/ORDER.md) (`make docs`), in the order in which
the flowchart asks. `vllm-doctor explain CODE` prints a finding's whole page: how it is recognised, what to do, and
which common advice about it is wrong.
`vllm-doctor flowchart` draws the chart.
"""


_PREVIEW = " (In preview: asked only with `VLLM_DOCTOR_PREVIEW=1`.)"


def first_sentence(rule: OrderRow) -> str:
    """What the finding means, in a line."""
    return re.split(r"(?<=\.)\s(?=[A-Z`-]|vLLM)", meaning(rule), maxsplit=1)[0].replace("|", "\\|")


def row(rule: OrderRow) -> str:
    """One line of a table; the code leads to the page."""
    link = os.path.relpath(rule.page, TARGET.parent)
    meant = first_sentence(rule) + (_PREVIEW if rule.preview else "")
    return f"| [{rule.code}]({link}) | {rule.title} | `{rule.cause.value}` | {meant} |"


def text() -> str:
    """The whole page: a section for each box of the flowchart that has findings."""
    parts = [HEAD]
    for node in NODES:
        here = [rule for rule in by_code().values() if rule.node == node.id]
        if node.under is None or here:
            parts.append(f"\n{'##' if node.under is None else '###'} {node.question}\n")
        if here:
            parts.append("\n| Code | Finding | Cause | What it means |\n| --- | --- | --- | --- |\n")
            parts.append("".join(f"{row(rule)}\n" for rule in here))
    return "".join(parts)


def main(arguments: list[str]) -> int:
    """Write or check."""
    return generated.main(arguments, {TARGET: text()}, "the rules say")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

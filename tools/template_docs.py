#!/usr/bin/env python3
"""Write the table of cards in templates/README.md from vllm_doctor/knowledge/templates.json; --check: is it stale?"""

from __future__ import annotations

import sys
from pathlib import Path

import generated

from vllm_doctor.knowledge import templates

TARGET = Path(__file__).resolve().parent.parent / "templates/README.md"
BEGIN, END = "<!-- cards: made by make docs -->", "<!-- /cards -->"


def table() -> str:
    """One row for each card."""
    rows = [f"| `{card}` | `{behaviour}` | {why} |" for card, (behaviour, why) in templates.cards().items()]
    return "\n".join(["| Card | Template | Why, and what there is to know |", "|---|---|---|", *rows])


def main(arguments: list[str]) -> int:
    """Write or check."""
    before, _, rest = TARGET.read_text().partition(BEGIN)
    wanted = f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"
    return generated.main(arguments, {TARGET: wanted}, "templates.json says")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

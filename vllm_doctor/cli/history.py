"""`vllm-doctor history`: the wiring of options; no logic."""

from __future__ import annotations

from typing import Annotated

import typer

from vllm_doctor.cli import complete
from vllm_doctor.cli.choices import Form

EXAMPLES = """\
Examples:

\b
  vllm-doctor history                              all units, the last week
  vllm-doctor history --unit vllm@main --since 2d
  vllm-doctor history --since 2026-11-20 --format json
"""


def history(
    *,
    unit: Annotated[
        str | None, typer.Option(metavar="UNIT", help="One unit alone.", autocompletion=complete.units)
    ] = None,
    since: Annotated[
        str, typer.Option(metavar="SPAN|DATE", help="A span (90m, 12h, 7d) or a date (2026-11-20, 2026-11-20T03:00).")
    ] = "7d",
    format_: Annotated[
        Form, typer.Option("--format", metavar="[human|json]", help="The format of the answer.")
    ] = "human",
) -> None:
    """Say what happened: starts with their memory, crashes, the guard's decisions, recoveries, drop-ins, changes."""
    from vllm_doctor.cli.history_run import run
    from vllm_doctor.records.unit_name import service

    name = service(unit) if unit is not None else None
    raise typer.Exit(run(name, since, json=format_ == "json"))

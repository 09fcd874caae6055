"""`vllm-doctor recover`: the wiring of options; no logic."""

from __future__ import annotations

from typing import Annotated

import typer

from vllm_doctor.cli import complete

EXAMPLES = """\
Examples:

\b
  vllm-doctor recover --unit vllm@main --dry-run   what would be done
  vllm-doctor recover --unit vllm@main             shows the plan, asks, runs it
  vllm-doctor recover --unit vllm@main --as-it-is  without the smaller launch

recover names a needed GPU reset or reboot, and leaves both to you.
"""


def recover(
    *,
    unit: Annotated[
        str, typer.Option(metavar="UNIT", help="The unit, such as vllm@main.", autocompletion=complete.units)
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done; touch nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for consent.")] = False,
    as_it_is: Annotated[bool, typer.Option("--as-it-is", help="Start the unit with its present launch.")] = False,
    hours: Annotated[
        float, typer.Option(min=0.1, max=168, metavar="HOURS", help="How long the smaller launch holds.")
    ] = 24,
    ready_seconds: Annotated[
        float, typer.Option(min=1, max=86400, metavar="SECONDS", help="Time the start may take.")
    ] = 1800,
) -> None:
    """Stop a unit with all its processes, free its GPUs, start it with a smaller launch, and wait for a completion."""
    from vllm_doctor.cli.recover_run import run
    from vllm_doctor.records.unit_name import service

    name = service(unit)
    raise typer.Exit(run(name, dry_run=dry_run, yes=yes, as_it_is=as_it_is, hours=hours, ready_s=ready_seconds))

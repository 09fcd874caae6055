"""`vllm-doctor recover`: the wiring of options; no logic."""

from __future__ import annotations

from typing import Annotated

import typer

from vllm_doctor.cli import complete

EXAMPLES = """\
Examples:

\b
  vllm-doctor recover --unit vllm@main --dry-run   what would be done
  vllm-doctor recover --unit vllm@main             shows it, asks, does it
  vllm-doctor recover --unit vllm@main --as-it-is  without the smaller launch

GPU resets and reboots are said with NVIDIA's reason, and left to you.
"""


def recover(
    *,
    unit: Annotated[str, typer.Option(help="The unit, such as vllm@main.", autocompletion=complete.units)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done; touch nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_it_is: Annotated[bool, typer.Option("--as-it-is", help="Start it with the launch that it has.")] = False,
    hours: Annotated[float, typer.Option(min=0.1, max=168, help="How long the smaller launch holds.")] = 24,
    ready_seconds: Annotated[float, typer.Option(min=1, max=86400, help="Time the start may take.")] = 1800,
) -> None:
    """Stop one unit whole, free what it left on its GPUs, start it with less, and wait for a completion."""
    from vllm_doctor.cli.recover_run import run

    name = unit if unit.endswith(".service") else f"{unit}.service"
    raise typer.Exit(run(name, dry_run=dry_run, yes=yes, as_it_is=as_it_is, hours=hours, ready_s=ready_seconds))

"""`vllm-doctor guard`: the wiring of options; no logic."""

from __future__ import annotations

from typing import Annotated

import typer

from vllm_doctor.cli.choices import Form

EXAMPLES = """\
Examples:

\b
  vllm-doctor guard --once              one look: what the guard sees, what it would do
  vllm-doctor guard --dry-run           watch, keep records, restart nothing
  touch /etc/vllm-doctor/guard.stop     from now on the guard restarts nothing
"""


def guard(
    *,
    once: Annotated[bool, typer.Option("--once", help="Look once; write nothing and restart nothing.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what the guard would do; restart nothing.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only check the policy file, and name its errors.")] = False,
    policy: Annotated[
        str | None, typer.Option(metavar="FILE", help="The policy's JSON file. Default: /etc/vllm-doctor/guard.json.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The store's file. Default: /var/lib/vllm-doctor-guard/history.sqlite."),
    ] = None,
    format_: Annotated[
        Form,
        typer.Option("--format", metavar="[human|json]", help="The format of what --once prints."),
    ] = "human",
) -> None:
    """Watch the vLLM units, keep records, and restart a unit only if a restart helps and the policy allows it."""
    from vllm_doctor.cli.guard_run import run

    raise typer.Exit(run(policy=policy, store=store, once=once, check=check, dry=dry_run, json=format_ == "json"))

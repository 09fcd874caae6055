"""`vllm-doctor guard`: the wiring of options; no logic."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

EXAMPLES = """\
Examples:

\b
  vllm-doctor guard --once              one look: what is seen, what it would do
  vllm-doctor guard --dry-run           watch, keep records, restart nothing
  touch /etc/vllm-doctor/guard.stop     it restarts nothing from that moment on
"""


def guard(
    *,
    once: Annotated[bool, typer.Option("--once", help="One look; keep and do nothing.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would do; restart nothing.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only read the policy, and say what is wrong with it.")
    ] = False,
    policy: Annotated[
        str | None, typer.Option(help="The policy's JSON file. Default: /etc/vllm-doctor/guard.json.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="The store's file. Default: /var/lib/vllm-doctor-guard/history.sqlite.")
    ] = None,
    format_: Annotated[Literal["human", "json"], typer.Option("--format", help="Of --once: human or json.")] = "human",
) -> None:
    """Watch the vLLM units, keep records, and restart one only where a restart helps and the policy lets it."""
    from vllm_doctor.cli.guard_run import run

    raise typer.Exit(run(policy=policy, store=store, once=once, check=check, dry=dry_run, json=format_ == "json"))

"""`vllm-doctor watch`: the wiring of options; no logic."""

from __future__ import annotations

from typing import Annotated

import typer

from vllm_doctor.cli import complete
from vllm_doctor.cli.choices import Form

EXAMPLES = """\
Examples:

\b
  vllm-doctor watch                                all vLLM units of this host
  vllm-doctor watch --url http://gpu04:8000        a server, wherever it runs
  vllm-doctor watch --once --format json           for a script
"""


def watch(
    *,
    unit: Annotated[
        str | None, typer.Option(metavar="UNIT", help="One unit alone.", autocompletion=complete.units)
    ] = None,
    url: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="A server's address, instead of this host's units; may be repeated."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Measure twice, print one answer, stop.")] = False,
    every: Annotated[
        float, typer.Option(min=0.5, max=3600, metavar="SECONDS", help="Seconds between two measurements.")
    ] = 2.0,
    format_: Annotated[
        Form, typer.Option("--format", metavar="[human|json]", help="The format of the answer.")
    ] = "human",
) -> None:
    """Show GPU memory, KV cache, requests, tokens, latency and findings as they change. The key for --url
    is VLLM_API_KEY."""
    from vllm_doctor.cli.watch_run import run
    from vllm_doctor.records.unit_name import service

    name = service(unit) if unit is not None else None
    raise typer.Exit(run(name, tuple(url or ()), once=once, every_s=every, json=format_ == "json"))

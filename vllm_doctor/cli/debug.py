"""`vllm-doctor debug`: the wiring of options; no logic."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import typer

from vllm_doctor.cli import complete

EXAMPLES = """\
Examples:

\b
  vllm-doctor debug on --unit vllm@main --for 15m              vLLM's debug lines
  vllm-doctor debug on --unit vllm@main --with cuda --dry-run  what it would cost
  vllm-doctor debug off --unit vllm@main
  vllm-doctor debug status

log is vLLM's debug lines, nccl and nccl-trace NCCL's, cuda is
CUDA_LAUNCH_BLOCKING=1, trace is vLLM's function trace. A systemd timer
removes the setting at the end and restarts the service, even if nobody is logged in.
"""


class What(StrEnum):
    """What can be turned on: the words of knowledge/debug.json."""

    LOG = "log"
    NCCL = "nccl"
    NCCL_TRACE = "nccl-trace"
    CUDA = "cuda"
    TRACE = "trace"


def debug(
    action: Annotated[
        Literal["on", "off", "status"], typer.Argument(metavar="on|off|status", help="on, off or status.")
    ],
    *,
    unit: Annotated[
        str | None, typer.Option(metavar="UNIT", help="The unit, such as vllm@main.", autocompletion=complete.units)
    ] = None,
    for_: Annotated[str, typer.Option("--for", metavar="SPAN", help="How long: 90s, 15m, 2h; at most a day.")] = "15m",
    with_: Annotated[
        list[What] | None,
        typer.Option(
            "--with",
            metavar="[log|nccl|nccl-trace|cuda|trace]",
            help="The logs to turn on; may be repeated. Default: log.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the change and its cost; change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    ready_seconds: Annotated[
        float, typer.Option(min=1, max=86400, metavar="SECONDS", help="Time the start may take.")
    ] = 1800,
) -> None:
    """Turn debug logging of one unit on for a while; the service restarts at the start and at the end."""
    from vllm_doctor.cli.debug_run import DebugOptions, run
    from vllm_doctor.records.unit_name import service

    name = service(unit) if unit is not None else None
    raise typer.Exit(
        run(
            DebugOptions(
                action, name, for_, tuple(one.value for one in with_ or (What.LOG,)), dry_run, yes, ready_seconds
            )
        )
    )

"""`vllm-doctor tune`: the wiring of options; no logic."""

from __future__ import annotations

from math import ceil, isfinite
from typing import Annotated, Literal

import typer

from vllm_doctor.cli import complete
from vllm_doctor.cli.choices import Form
from vllm_doctor.cli.errors import UsageProblem

EXAMPLES = """\
Examples:

\b
  vllm-doctor tune --unit vllm@main --dry-run                       what would be tried
  vllm-doctor tune --unit vllm@main --yes --minutes 60
  vllm-doctor tune --unit vllm@main --yes --itl-ms 50 --ttft-ms 2000
"""


def tune(
    *,
    unit: Annotated[
        str,
        typer.Option(
            metavar="UNIT",
            help="The unit to tune, such as vllm@main. Every step restarts the unit and cuts its requests.",
            autocompletion=complete.units,
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; restart the service for each step.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be tried; touch nothing.")] = False,
    minutes: Annotated[
        float,
        typer.Option(
            min=0.1,
            max=10080,
            metavar="MINUTES",
            help="Minutes for the whole ramp, without the restart of the old configuration.",
        ),
    ] = 30,
    step_seconds: Annotated[
        float, typer.Option(min=1, max=86400, metavar="SECONDS", help="Time of load for a step.")
    ] = 30,
    ready_seconds: Annotated[
        float, typer.Option(min=1, max=86400, metavar="SECONDS", help="Time a start may take.")
    ] = 900,
    from_seqs: Annotated[
        int | None,
        typer.Option(min=1, max=1 << 20, metavar="N", help="Begin with this max_num_seqs, not the unit's own."),
    ] = None,
    from_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, max=1 << 30, metavar="N", help="Begin with this max_num_batched_tokens, not the unit's own."
        ),
    ] = None,
    most_seqs: Annotated[
        int | None, typer.Option(min=1, max=1 << 20, metavar="N", help="Highest max_num_seqs to try.")
    ] = None,
    prompt_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1 << 24,
            metavar="TOKENS",
            help="Prompt length of the load. Default: the mean that the server measured, else 512.",
        ),
    ] = None,
    output_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1 << 24,
            metavar="TOKENS",
            help="Output length of the load. Default: the mean measured, else 128.",
        ),
    ] = None,
    kv_use: Annotated[
        float,
        typer.Option(min=0.05, max=1, metavar="0..1", help="Stop raising when the KV cache is this full, 0 to 1."),
    ] = 0.90,
    slowdown: Annotated[
        float,
        typer.Option(
            min=1, max=1000, metavar="FACTOR", help="Limit: p99 between tokens, as a multiple of the first step's."
        ),
    ] = 2.0,
    ttft_ms: Annotated[
        float | None, typer.Option(min=1, max=3_600_000, metavar="MS", help="Limit of the p99 to the first token.")
    ] = None,
    itl_ms: Annotated[
        float | None, typer.Option(min=1, max=3_600_000, metavar="MS", help="Limit of the p99 between tokens.")
    ] = None,
    load: Annotated[
        Literal["auto", "vllm-bench", "guidellm", "own"],
        typer.Option(
            metavar="[auto|vllm-bench|guidellm|own]",
            help="auto, vllm-bench (the release's own benchmark), guidellm (0.8) or own.",
        ),
    ] = "auto",
    without_plan: Annotated[
        bool,
        typer.Option("--without-plan", help="Continue if no plan can be made; the KV cache alone bounds the ramp."),
    ] = False,
    busy: Annotated[
        bool, typer.Option("--busy", help="Start although requests are running; the running requests are lost.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Ignore the results of an earlier ramp.")] = False,
    format_: Annotated[
        Form, typer.Option("--format", metavar="[human|json]", help="The format of the answer.")
    ] = "human",
) -> None:
    """Find the largest safe max_num_seqs and max_num_batched_tokens under load, and put back what served before."""
    from vllm_doctor.cli.tune_options import TuneOptions
    from vllm_doctor.cli.tune_run import run
    from vllm_doctor.records.unit_name import service

    bounds = {
        "minutes": minutes,
        "step-seconds": step_seconds,
        "ready-seconds": ready_seconds,
        "kv-use": kv_use,
        "slowdown": slowdown,
        "ttft-ms": ttft_ms,
        "itl-ms": itl_ms,
    }
    for name, value in bounds.items():
        if value is not None and not isfinite(value):
            raise UsageProblem(f"--{name}: found {value}; needed: a number, or nothing bounds the ramp")
    # One step's load, and a little to find the server ready and its last requests ended.
    least = ceil((step_seconds + 5) / 6) / 10
    if minutes < least:
        raise UsageProblem(
            f"--minutes: found {minutes:g}; needed: at least {least:g}, one step of --step-seconds {step_seconds:g} "
            "(and for each further step as much again and a restart)"
        )
    code = run(
        TuneOptions(
            unit=service(unit),
            yes=yes,
            dry_run=dry_run,
            budget_s=minutes * 60,
            step_s=step_seconds,
            ready_s=ready_seconds,
            from_seqs=from_seqs,
            from_tokens=from_tokens,
            most_seqs=most_seqs,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            kv_use=kv_use,
            slowdown=slowdown,
            ttft_ms=ttft_ms,
            itl_ms=itl_ms,
            load=load,
            without_plan=without_plan,
            busy=busy,
            fresh=fresh,
            json=format_ == "json",
        )
    )
    raise typer.Exit(code)

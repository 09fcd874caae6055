"""`vllm-doctor fleet`: the wiring of options; no logic."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

EXAMPLES = """\
Examples:

\b
  vllm-doctor fleet reports/fleet/answers -o fleet.html      what playbooks/diagnose.yml gathered
  vllm-doctor fleet gpu01.json gpu02.json --format json      answers of diagnose --format json
"""


def fleet(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...", help="Folders or files with answers (diagnose --format json).", show_default=False
        ),
    ],
    *,
    format_: Annotated[
        Literal["html", "json"], typer.Option("--format", metavar="[html|json]", help="The format of the page.")
    ] = "html",
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file to write. Default: standard output.", show_default=False
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Put the answers of many hosts on one page: worst first, grouped by cause, with the inventory lines to change."""
    from vllm_doctor.cli.fleet_run import run

    raise typer.Exit(run(paths, html=format_ == "html", output=None if output == "-" else output, force=force))
